"""What every tool should compute: reference.py MODEL TEXTS OUT

Writes to OUT the vectors of the JSON list TEXTS by sentence-transformers in f32, one text a call:
a row of little-endian floats for each text.
"""

import json
import sys
from pathlib import Path

import numpy
import torch
from sentence_transformers import SentenceTransformer

source, texts, out = map(Path, sys.argv[1:])
# Threads that wait for each other make little work long on a busy machine.
torch.set_num_threads(1)
model = SentenceTransformer(str(source), device="cpu", model_kwargs={"dtype": torch.float32})
rows = [model.encode(text, normalize_embeddings=True) for text in json.loads(texts.read_text())]
numpy.asarray(rows, dtype="<f4").tofile(out)
