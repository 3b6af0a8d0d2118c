"""One private text alone under encryption: public documents, a private query, no interaction. What `make encrypted-one` shows.

The client encrypts once, the server works alone for minutes, the client decrypts: real weights, N = 2^16 at 128 bits, through files.
Keys (5 GiB) are made once and kept in out/encrypted-one, for as long as the manifest stays the same. QUERY="…" is your own question.
"""
import json
import os
import sys

from encrypted_run import CALIBRATION
from one_alone import Run
from two_processes import ROOT, cosine, embeddings, hushed, lines, model_folder, run


def read(name):
    text = (ROOT / "data" / "search" / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip()]


def main():
    documents, query = read("documents.txt"), os.environ.get("QUERY", "").strip() or read("queries.txt")[0]
    model = model_folder()
    [clear, *vectors] = embeddings(hushed("clear", model, "--input", "-", stdin=lines([query, *documents])))
    run = Run(model, ROOT / "out" / "encrypted-one", CALIBRATION, query, "--lengths", "private")
    [private] = embeddings(hushed(*run.decrypt()))

    print(f"\nQuery: {query}")
    scores = sorted(((cosine(private, v), d) for v, d in zip(vectors, documents)), reverse=True)
    for place, (score, document) in enumerate(scores[:5], start=1):
        print(f"{place}. {score:.3f}  {document}")
    near = cosine(private, clear)
    print(f"\ncosine to the embedding in the clear: {near:.6f}")
    run.show()
    print("\nThe server saw that a text of at most 128 tokens came, and when; never the text, its length or the answer. Nothing\n"
          "checks the server: there is no canary beside a single text. The same text takes 2pc seconds, with both parties at work (`make run`).")
    if "--json" in sys.argv:
        print(json.dumps({"name": "encrypted-one", "cosine": near, "seconds": run.took, "bytes": run.sizes()}))
    return near < 0.999


if __name__ == "__main__":
    run(main)
