"""The program's side of the protocol that serve.mjs tells, in Python, for one caller."""

import json
import sys
import time


def serve(versions, embed):
    """Serves until the input ends; `embed` turns a list of texts into an array with a row a text."""
    replies, sys.stdout = sys.stdout, sys.stderr  # what libraries print is no reply

    def say(message):
        print(json.dumps(message), file=replies, flush=True)

    say({"versions": versions})
    for line in sys.stdin:
        say(answer(json.loads(line), embed))


def answer(request, embed):
    times, vectors = [], []
    begin = time.perf_counter()
    for texts in request["calls"]:
        start = time.perf_counter()
        rows = embed(texts)
        times.append(1000 * (time.perf_counter() - start))
        if request.get("vectors"):
            vectors.extend(rows.tolist())
    reply = {"times": times, "wall": 1000 * (time.perf_counter() - begin)}
    return {**reply, "vectors": vectors} if request.get("vectors") else reply
