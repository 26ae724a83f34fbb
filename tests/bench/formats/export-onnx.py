"""The model as ONNX: export-onnx.py MODEL OUT

Writes to OUT, in the layout transformers.js expects,
  onnx/model.onnx            f32, as sentence-transformers computes it
  onnx/model_quantized.onnx  8-bit weights by dynamic quantization, one scale a matrix (what transformers.js calls q8)
and the tokenizer's files, set to the 256 tokens sentence-transformers reads.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from onnxruntime.quantization import QuantType, quantize_dynamic
from transformers import AutoModel

source, out = map(Path, sys.argv[1:])
NAMES = ["input_ids", "attention_mask", "token_type_ids"]


class Encoder(torch.nn.Module):
    """The transformer alone, with tensors in and a tensor out, as an exporter wants it."""

    def __init__(self):
        super().__init__()
        self.inner = AutoModel.from_pretrained(source, attn_implementation="eager", dtype=torch.float32)

    def forward(self, input_ids, attention_mask, token_type_ids):
        output = self.inner(
            input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids
        )
        return output.last_hidden_state


def export(path):
    ids = torch.randint(1000, 20000, (2, 9))
    example = (ids, torch.ones_like(ids), torch.zeros_like(ids))
    torch.onnx.export(
        Encoder().eval(),
        example,
        str(path),
        dynamo=False,
        opset_version=17,
        input_names=NAMES,
        output_names=["last_hidden_state"],
        dynamic_axes={name: {0: "batch", 1: "tokens"} for name in [*NAMES, "last_hidden_state"]},
    )


def quantize(path, to):
    options = {"EnableSubgraph": True, "MatMulConstBOnly": True}
    quantize_dynamic(str(path), str(to), weight_type=QuantType.QInt8, extra_options=options)


def copy_tokenizer():
    for name in ["config.json", "tokenizer.json", "special_tokens_map.json", "vocab.txt"]:
        shutil.copy(source / name, out)
    settings = json.loads((source / "tokenizer_config.json").read_text())
    settings["model_max_length"] = 256
    (out / "tokenizer_config.json").write_text(json.dumps(settings))


(out / "onnx").mkdir()
copy_tokenizer()
export(out / "onnx" / "model.onnx")
quantize(out / "onnx" / "model.onnx", out / "onnx" / "model_quantized.onnx")
