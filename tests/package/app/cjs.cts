import { Executor, Model } from "uform";

function main(path: string): string {
  using executor = Executor.forRam({ threads: 1 });
  using model = Model.loadRam(path, { executor });
  const found = model.encodeTextSync("a red bicycle", { executor });
  const norm: number = Math.hypot(...found.data);
  return found.rows === 1 && Math.abs(norm - 1) < 1e-5 ? "close" : `norm ${norm}`;
}

console.log(main(process.argv[2]!));
