"""One private text alone under encryption: public documents, a private query, no interaction. What `make encrypted-one` shows.

The client encrypts once, the server works alone for minutes, the client decrypts: real weights, N = 2^16 at 128 bits, through files.
Keys (5 GiB) are made once and kept in out/encrypted-one, for as long as the manifest stays the same. QUERY="…" is your own question.
"""
import json
import os
import shutil
import sys

from encrypted_run import CALIBRATION, shown
from two_processes import ROOT, Failed, cosine, embeddings, hushed, lines, model_folder

ROWS = 128


def read(name):
    text = (ROOT / "data" / "search" / name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line.strip()]


def main():
    work = ROOT / "out" / "encrypted-one"
    work.mkdir(parents=True, exist_ok=True)
    manifest, public, keys, text = work / "manifest.json", work / "model.public", work / "keys", work / "query.txt"
    request, reply = work / "request", work / "reply"
    documents, query = read("documents.txt"), os.environ.get("QUERY", "").strip() or read("queries.txt")[0]
    model = model_folder()
    [clear, *vectors] = embeddings(hushed("clear", model, "--input", "-", stdin=lines([query, *documents])))

    before = manifest.read_bytes() if manifest.exists() else None
    took = {"plan": shown(
        "plan", model, "--protocol", "fhe", "--rows", ROWS, "--texts", 1, "--calibration", CALIBRATION,
        "--manifest", manifest, "--public-model", public, "--public-embedding")}
    if manifest.read_bytes() != before or not (keys / "evaluation.keys").exists():
        shutil.rmtree(keys, ignore_errors=True)
        took["keygen"] = shown("keygen", "--manifest", manifest, "--out", keys)
    for old in (request, reply):
        old.unlink(missing_ok=True)
    text.write_text(query + "\n", encoding="utf-8")
    took["encrypt"] = shown(
        "encrypt", "--manifest", manifest, "--public", public, "--keys", keys, "--input", text, "--out", request)
    took["run"] = shown(
        "run", model, "--manifest", manifest, "--keys", keys / "evaluation.keys", "--request", request, "--out", reply,
        "--calibration", CALIBRATION)
    [private] = embeddings(hushed("decrypt", "--manifest", manifest, "--public", public, "--keys", keys, "--reply", reply))

    print(f"\nQuery: {query}")
    scores = sorted(((cosine(private, v), d) for v, d in zip(vectors, documents)), reverse=True)
    for place, (score, document) in enumerate(scores[:5], start=1):
        print(f"{place}. {score:.3f}  {document}")
    sizes = {name: path.stat().st_size for name, path in [("keys", keys / "evaluation.keys"), ("request", request), ("reply", reply)]}
    near = cosine(private, clear)
    print(f"\ncosine to the embedding in the clear: {near:.6f}")
    print("\n".join(f"{verb:<10} {seconds:10.1f} s" for verb, seconds in took.items()))
    print("\n".join(f"{name:<10} {size / 2**20:10.1f} MiB" for name, size in sizes.items()))
    print("\nThe server saw that one text came, its number of tokens and when; never the text or the answer. Nothing checks it: there\n"
          "is no canary beside a single text. The same text takes 2pc seconds, with both parties at work (`make run`).")
    if "--json" in sys.argv:
        print(json.dumps({"name": "encrypted-one", "cosine": near, "seconds": took, "bytes": sizes}))
    return near < 0.999


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as problem:
        sys.exit(f"encrypted_one: {problem}")
    except KeyboardInterrupt:
        sys.exit(130)
