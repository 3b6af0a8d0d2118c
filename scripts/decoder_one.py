"""One private prompt alone through a ternary decoder under encryption, read at all rows. What `make decoder-one` shows.

`data/decoder-small`, N = 2^16 at 128 bits, through files, beside the same in the clear. Keys (5 GiB) are made once and kept in
out/decoder-one, for as long as the manifest stays the same. PROMPT="…" is your own text of up to 128 tokens.
"""
import json
import os
import sys

from one_alone import Run
from two_processes import ROOT, hushed, run

MODEL = ROOT / "data" / "decoder-small"
TEXT = "A closure can capture values from the scope in which it is defined, and a function cannot. Closures are often used"


def scored(rows):
    return next(row for row in rows if "log_probabilities" in row)


def main():
    prompt = " ".join(os.environ.get("PROMPT", "").split()) or TEXT
    run = Run(
        MODEL, ROOT / "out" / "decoder-one", MODEL / "calibration-fhe.json", prompt,
        "--answer", "rows", "--canary", "a canary sings in the mine")
    [answer] = [row for row in hushed(*run.decrypt()) if "next" in row]
    private = scored(hushed(*run.decrypt(), "--perplexity", run.text))
    clear = scored(hushed("clear", MODEL, "--perplexity", run.text))
    pairs = zip(private["log_probabilities"], clear["log_probabilities"], strict=True)
    apart = max((abs(a - b) for a, b in pairs), default=0.0)

    print(f"\n{prompt}")
    for token in answer["next"]:
        print(f"  {token['log_probability']:8.3f}  {token['text']!r}")
    print(f"\n{answer['tokens']} tokens; perplexity {private['perplexity']:.3f}, in the clear {clear['perplexity']:.3f}")
    print(f"log probabilities of its tokens differ by at most {apart:.4f}")
    run.show()
    if "--json" in sys.argv:
        print(json.dumps({
            "name": "decoder-one", "tokens": answer["tokens"], "apart": apart,
            "perplexity": [private["perplexity"], clear["perplexity"]], "seconds": run.took, "bytes": run.sizes()}))
    return apart > 0.1


if __name__ == "__main__":
    run(main)
