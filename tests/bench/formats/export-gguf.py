"""The model as GGUF, for llama.cpp: export-gguf.py MODEL OUT

Writes to OUT
  f16.gguf   matrices in half precision
  q8_0.gguf  matrices in 8 bits, one scale for 32 weights
Vectors stay in f32 in both, as llama.cpp's own converter has it.
"""

import json
import sys
from pathlib import Path

import gguf
import numpy
from gguf import GGMLQuantizationType, LlamaFileType, TokenType
from safetensors.numpy import load_file

source, out = map(Path, sys.argv[1:])
config = json.loads((source / "config.json").read_text())
vocabulary = (source / "vocab.txt").read_text().splitlines()

EMBEDDINGS = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
SPECIAL = {"[PAD]", "[CLS]", "[SEP]", "[MASK]"}


def gguf_name(name):
    """llama.cpp's name of a weight; None for what it has no use for."""
    module, kind = name.rsplit(".", 1)
    if module in EMBEDDINGS:
        return f"{EMBEDDINGS[module]}.{kind}"
    if module.startswith("encoder.layer."):
        _, _, index, part = module.split(".", 3)
        return f"blk.{index}.{LAYER[part]}.{kind}"
    return None


def as_word(token):
    """WordPiece as llama.cpp keeps it: a mark opens a word, and none is a continuation."""
    if token.startswith("[") and token.endswith("]"):
        return token
    return token[2:] if token.startswith("##") else f"\u2581{token}"


def token_type(token):
    if token == "[UNK]":
        return TokenType.UNKNOWN
    return TokenType.CONTROL if token in SPECIAL else TokenType.NORMAL


def write_settings(writer):
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)


def write_tokenizer(writer):
    writer.add_vocab_size(len(vocabulary))
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_token_list([as_word(token).encode() for token in vocabulary])
    writer.add_token_types([token_type(token) for token in vocabulary])
    writer.add_bos_token_id(vocabulary.index("[CLS]"))
    writer.add_eos_token_id(vocabulary.index("[SEP]"))
    writer.add_sep_token_id(vocabulary.index("[SEP]"))
    writer.add_unk_token_id(vocabulary.index("[UNK]"))
    writer.add_pad_token_id(vocabulary.index("[PAD]"))
    writer.add_mask_token_id(vocabulary.index("[MASK]"))
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)


def write(path, file_type, matrix_type):
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_file_type(file_type)
    write_settings(writer)
    write_tokenizer(writer)
    for name, weight in load_file(source / "model.safetensors").items():
        to = gguf_name(name.removeprefix("bert."))
        if to is None:
            continue
        weight = weight.astype(numpy.float32)
        # Small tables are read row by row: llama.cpp keeps them as they are.
        if weight.ndim == 2 and to not in ("position_embd.weight", "token_types.weight"):
            packed = gguf.quants.quantize(weight, matrix_type)
            writer.add_tensor(to, packed, raw_dtype=matrix_type)
        else:
            writer.add_tensor(to, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


write(out / "f16.gguf", LlamaFileType.MOSTLY_F16, GGMLQuantizationType.F16)
write(out / "q8_0.gguf", LlamaFileType.MOSTLY_Q8_0, GGMLQuantizationType.Q8_0)
