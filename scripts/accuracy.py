"""How close the private embeddings are to those in the clear, and whether retrieval notices.

    python3 scripts/accuracy.py [--input data/sample.txt] [--limit N] [--json]

Every line of the file is embedded both ways. Reported: the smallest and the mean cosine, the sentences below 0.999, the share of
queries whose first answer is the same, and whether any pair whose clear scores differ by more than 1e-3 changes places.
Each sentence serves once as a query against all the others. Exits with 1 when a target is missed.
"""
import argparse
import json
import pathlib
import sys

from two_processes import ROOT, Failed, Server, cosine, embeddings, hushed, lines, model_folder

TARGET = 0.999
TIE = 1e-3


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=pathlib.Path, default=ROOT / "data" / "sample.txt")
    parser.add_argument("--limit", type=int, help="only the first N sentences")
    parser.add_argument("--json", action="store_true", help="one object instead of text")
    options = parser.parse_args()
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
    if options.json:
        print(json.dumps(report))
    else:
        print(f"{len(texts)} sentences: cosine at least {report['cosine_min']:.6f}, {report['cosine_mean']:.6f} on average")
        print(f"below {TARGET}: {len(below)} {below if below else ''}")
        print(f"queries with the same first answer: {100 * report['same_first_answer']:.1f} %")
        print(f"pairs in another order although their scores differ by more than {TIE}: {moved}")
    return bool(below or moved)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as problem:
        sys.exit(f"accuracy: {problem}")
