using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [(name = "main", worker = .app)],
  sockets = [(name = "http", address = "localhost:0", http = (), service = "main")],
);

const app :Workerd.Worker = (
  compatibilityDate = "2026-01-01",
  modules = [
    (name = "workerd.mjs", esModule = embed "workerd.mjs"),
    (name = "uform/wasm32.wasm", wasm = embed "uform/wasm32.wasm"),
    (name = "model/config.json", data = embed "model/config.json"),
    (name = "model/modules.json", data = embed "model/modules.json"),
    (name = "model/1_Pooling/config.json", data = embed "model/1_Pooling/config.json"),
    (name = "model/tokenizer.json", data = embed "model/tokenizer.json"),
    (name = "model/model.safetensors", data = embed "model/model.safetensors"),
  ],
);
