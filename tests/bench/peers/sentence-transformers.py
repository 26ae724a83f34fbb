"""sentence-transformers on PyTorch: sentence-transformers.py MODEL THREADS f32|bf16"""

import sys

import sentence_transformers
import torch

from serve import serve

path, threads, precision = sys.argv[1:]
torch.set_num_threads(int(threads))
dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[precision]
model = sentence_transformers.SentenceTransformer(path, device="cpu", model_kwargs={"dtype": dtype})
versions = {"sentence-transformers": sentence_transformers.__version__, "torch": torch.__version__}


def embed(texts):
    """It sorts a call's texts by length and computes them 32 at a time."""
    return model.encode(texts, batch_size=32, normalize_embeddings=True, show_progress_bar=False)


serve(versions, embed)
