"""One text alone under encryption, simulated on a hundred texts that nothing was calibrated with: what `make verify-one` shows.

`hushed verify --texts 1` runs each text by itself in packed rows, its length private, by polynomials and with the errors of ciphertexts at N = 2^16: about
half an hour of one core. Longer texts are cut at 128 tokens. Exits with 1 when an answer is below 0.999 or a text is left out.
"""
import json
import sys

from encrypted_run import CALIBRATION, TEXTS
from two_processes import ROOT, hushed, lines, model_folder, run

ROWS, AT_ONCE, LEAST = 128, 10, 0.999


def main():
    files = [*TEXTS, ROOT / "data" / "unseen-more.txt"]
    texts = [text for path in files for text in path.read_text(encoding="utf-8").splitlines() if text.strip()]
    model, found, left_out = model_folder(), [], 0
    for first in range(0, len(texts), AT_ONCE):
        rows = hushed(
            "verify", model, "--protocol", "fhe", "--rows", ROWS, "--texts", 1, "--lengths", "private", "--truncate",
            "--calibration", CALIBRATION,
            "--input", "-", stdin=lines(texts[first:first + AT_ONCE]))
        for row in rows:
            left_out += row.get("left_out", 0)
            if row.get("cosine", {}).get("predicted") is not None:
                found.append((row["cosine"]["predicted"], row["cosine"]["polynomial"], row["tokens"], first + row["text_index"]))
        print(f"{len(found)} of {len(texts)} texts, least cosine {min(found)[0]:.6f}", file=sys.stderr, flush=True)
    print("cosine     polynomials  tokens  text")
    for predicted, polynomial, tokens, text in sorted(found)[:5]:
        print(f"{predicted:.6f}   {polynomial:.6f}  {tokens:6}  {texts[text][:60]}")
    tokens, least, mean = [row[2] for row in found], min(found)[0], sum(row[0] for row in found) / len(found)
    print(f"{len(found)} texts of {min(tokens)} to {max(tokens)} tokens, {left_out} left out: least cosine {least:.6f}, mean {mean:.6f}")
    if "--json" in sys.argv:
        print(json.dumps({
            "name": "verify-one", "texts": len(found), "left_out": left_out, "cosine_min": least, "cosine_mean": mean,
            "tokens": [min(tokens), max(tokens)]}))
    return least < LEAST or left_out > 0


if __name__ == "__main__":
    run(main)
