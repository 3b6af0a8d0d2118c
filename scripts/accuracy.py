"""How close private answers are to those in the clear.

    python3 scripts/accuracy.py [embeddings|tokens|digits ...] [--json]                  (all three without a name)

embeddings  Every line of --input is embedded both ways. Reported: the smallest and the mean cosine, the sentences below 0.999, the share of
            queries whose first answer is the same, and whether any pair whose clear scores differ by more than 1e-3 changes places. Each
            sentence serves once as a query against all the others.
tokens      The likeliest token after each of 2,000 positions of a text (--positions changes it), by a model that generates (--generator), found
            privately and in the clear: 99.5 % are the same, and all whose clear logit leads by more than 0.05.
digits      The labels of 449 handwritten digits that data/vit-digits was not trained on (--digits changes it): 99.5 % are the same.

Private answers come from the protocol between two parties, over TLS, or in one process for tokens (`hushed verify`). Exits with 1 when a
target is missed.
"""
import argparse
import json
import pathlib
import struct
import sys
import tempfile
import zlib

from two_processes import ROOT, Failed, Server, cosine, embeddings, hushed, lines, model_folder

TARGET = 0.999
TIE = 1e-3
# Of tokens and labels.
SAME = 0.995
# Most tokens of a text that is run at once, and characters that hold more than one.
WINDOW, CHARACTERS = 250, 6
SIDE, SHADES = 8, "0123456789abcdefg"


def ranks(query, vectors):
    """Scores of a query against every vector, its own place left out by the caller."""
    return [cosine(query, v) for v in vectors]


def swaps(clear, private):
    """Pairs that change places although their clear scores differ by more than TIE."""
    order = sorted(range(len(clear)), key=lambda i: -clear[i])
    count = 0
    for at, i in enumerate(order):
        for j in order[at + 1:]:
            count += clear[i] - clear[j] > TIE and private[i] <= private[j]
    return count


def of_embeddings(options):
    texts = options.input.read_text(encoding="utf-8").splitlines()[: options.limit]
    model = model_folder()
    clear = embeddings(hushed("clear", model, "--input", "-", stdin=lines(texts)))
    with Server(model) as server:
        private, cost = server.embed(texts)

    cosines = [cosine(a, b) for a, b in zip(clear, private, strict=True)]
    below = [i for i, c in enumerate(cosines) if c < TARGET]
    same_first, moved = 0, 0
    for i in range(len(texts)):
        others = [j for j in range(len(texts)) if j != i]
        exact = ranks(clear[i], [clear[j] for j in others])
        # The query is private; the documents are embedded in the clear, as in a search.
        found = ranks(private[i], [clear[j] for j in others])
        same_first += exact.index(max(exact)) == found.index(max(found))
        moved += swaps(exact, found)
    report = {
        "name": "accuracy",
        "texts": len(texts),
        "cosine_min": min(cosines),
        "cosine_mean": sum(cosines) / len(cosines),
        "below_target": below,
        "same_first_answer": same_first / len(texts),
        "pairs_out_of_order": moved,
        "session": cost,
    }
    text = [
        f"{len(texts)} sentences: cosine at least {report['cosine_min']:.6f}, {report['cosine_mean']:.6f} on average",
        f"below {TARGET}: {len(below)} {below if below else ''}",
        f"queries with the same first answer: {100 * report['same_first_answer']:.1f} %",
        f"pairs in another order although their scores differ by more than {TIE}: {moved}",
    ]
    return report, text, bool(below or moved)


def windows(path, tokens):
    """Texts of a line each, long enough for a window of tokens."""
    text, length = " ".join(path.read_text(encoding="utf-8").split()), CHARACTERS * tokens
    return [text[at : at + length] for at in range(0, len(text) - length, length)]


def of_tokens(options):
    config = json.loads((options.generator / "config.json").read_text(encoding="utf-8"))
    window = min(WINDOW, config.get("max_position_embeddings", WINDOW))
    texts = windows(options.text, window)[: -(-options.positions // window)]
    rows = hushed("verify", options.generator, "--input", "-", "--truncate", stdin=lines(texts))
    found = rows[-1]
    if found["positions"] < options.positions:
        raise Failed(f"{options.text} has {found['positions']} tokens: fewer than {options.positions}")
    report = {"name": "accuracy-tokens", "model": str(options.generator), **found, "differ": [row["differs"] for row in rows if "differs" in row]}
    margins = [row["margin"] for row in report["differ"]]
    text = [
        f"{found['positions']} positions: {found['agree']} with the token of the clear model, {100 * found['agree'] / found['positions']:.2f} %",
        f"of {found['sure']} whose clear logit leads by more than 0.05: {found['sure_agree']}",
        f"largest lead of a token that was missed: {max(margins, default=0.0):.4f}",
    ]
    missed = found["agree"] < SAME * found["positions"] or found["sure_agree"] < found["sure"]
    return report, text, missed


def png(digit):
    """A file of shades of gray."""
    rows = [bytes(round(SHADES.index(c) * 255 / 16) for c in digit[at : at + SIDE]) for at in range(0, SIDE * SIDE, SIDE)]
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows))),
        (b"IEND", b""),
    ]
    parts = [struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def of_digits(options):
    rows = [line.split() for line in (options.digits / "held-out.txt").read_text().splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        images = []
        for place, (_, digit) in enumerate(rows):
            path = pathlib.Path(folder, f"{place:04}.png")
            path.write_bytes(png(digit))
            images += ["--image", path]
        labels = lambda found: [row["label"] for row in found if "text_index" in row]
        clear = labels(hushed("clear", options.digits, *images))
        with Server(options.digits) as server:
            private = labels(hushed("classify", "--server", server.address, "--pin", server.pin, "--batch", "15", *images))
    same = sum(a == b for a, b in zip(clear, private, strict=True))
    right = sum(label == digit for label, (digit, _) in zip(private, rows, strict=True))
    report = {"name": "accuracy-digits", "digits": len(rows), "agree": same, "right": right}
    text = [f"{len(rows)} digits: {same} with the label of the clear model, {100 * same / len(rows):.2f} %; {right} are right"]
    return report, text, same < SAME * len(rows)


PARTS = {"embeddings": of_embeddings, "tokens": of_tokens, "digits": of_digits}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="embeddings, tokens, digits")
    parser.add_argument("--input", type=pathlib.Path, default=ROOT / "data" / "sample.txt")
    parser.add_argument("--limit", type=int, help="only the first N sentences")
    parser.add_argument("--generator", type=pathlib.Path, default=ROOT / "data" / "gpt2-small")
    parser.add_argument("--text", type=pathlib.Path, default=ROOT / "data" / "decoder-small" / "held-out.txt")
    parser.add_argument("--positions", type=int, default=2000)
    parser.add_argument("--digits", type=pathlib.Path, default=ROOT / "data" / "vit-digits")
    parser.add_argument("--json", action="store_true", help="an object a part instead of text")
    options = parser.parse_args()
    if wrong := set(options.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(wrong))}")
    missed = False
    for part in options.parts or PARTS:
        report, text, failed = PARTS[part](options)
        missed |= failed
        print(json.dumps(report) if options.json else "\n".join(text), flush=True)
    return missed


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as problem:
        sys.exit(f"accuracy: {problem}")
