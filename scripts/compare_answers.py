"""How far decrypted answers are from those in the clear, and whether retrieval notices.

    hushed decrypt --manifest manifest.json --public minilm.public --keys keys --reply reply --json > answers.json
    hushed clear models/minilm --input texts.txt --json > clear.json
    python3 scripts/compare_answers.py answers.json clear.json [--queries 100] [--json]

Texts that were cut on the way (--truncate) have no clear counterpart; they are counted and left out. Reported: the smallest and the
mean cosine, the texts below 0.999, and for a seeded sample of texts, each a query against all others: how many find the same text
first, and how many of all pairs change places although their clear scores differ by more than 1e-3. As in a search, the query is the
decrypted one and the documents are embedded in the clear. Exits with 1 when a cosine is below 0.999 or such a pair changes
places.
"""
import argparse
import json
import pathlib
import random
import sys

from accuracy import TARGET, TIE, swaps
from two_processes import cosine


def answers(path):
    """Of each text its embedding and its number of tokens."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    return {row["text_index"]: (row["embedding"], row.get("tokens")) for row in rows if "embedding" in row}


def unit(vector):
    length = sum(x * x for x in vector) ** 0.5
    return [x / length for x in vector]


def scores(query, documents):
    return [sum(map(float.__mul__, query, document)) for document in documents]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("answers", type=pathlib.Path)
    parser.add_argument("clear", type=pathlib.Path)
    parser.add_argument("--queries", type=int, default=100, help="texts that serve as queries (default 100)")
    parser.add_argument("--json", action="store_true", help="one object instead of text")
    options = parser.parse_args()
    found, clear = answers(options.answers), answers(options.clear)
    if missing := sorted(set(found) ^ set(clear)):
        sys.exit(f"compare_answers: not the same texts: {len(missing)} are in one file only, the first is {missing[0]}")
    whole = sorted(text for text in found if found[text][1] == clear[text][1])
    if not whole:
        sys.exit("compare_answers: no text was encrypted whole")
    cosines = {text: cosine(found[text][0], clear[text][0]) for text in whole}
    documents = {text: unit(clear[text][0]) for text in whole}
    queries = random.Random(1).sample(whole, min(options.queries, len(whole)))
    same_first, moved, pairs = 0, 0, 0
    for text in queries:
        others = [documents[other] for other in whole if other != text]
        exact, private = scores(documents[text], others), scores(unit(found[text][0]), others)
        same_first += exact.index(max(exact)) == private.index(max(private))
        moved += swaps(exact, private)
        pairs += len(others) * (len(others) - 1) // 2
    report = {
        "name": "compare-answers",
        "texts": len(found),
        "cut": len(found) - len(whole),
        "cosine_min": min(cosines.values()),
        "cosine_min_text": min(cosines, key=cosines.get),
        "cosine_mean": sum(cosines.values()) / len(whole),
        "below_target": [text for text in whole if cosines[text] < TARGET],
        "queries": len(queries),
        "same_first_answer": same_first / len(queries),
        "pairs": pairs,
        "pairs_out_of_order": moved,
    }
    if options.json:
        print(json.dumps(report))
    else:
        print(f"{len(found)} texts, {report['cut']} of them cut and left out")
        print(f"cosine at least {report['cosine_min']:.6f} (text {report['cosine_min_text']}), {report['cosine_mean']:.7f} on average")
        print(f"below {TARGET}: {len(report['below_target'])} {report['below_target'] or ''}")
        print(f"queries with the same first answer: {same_first} of {len(queries)}")
        print(f"pairs in another order although their scores differ by more than {TIE}: {moved} of {pairs}")
    return bool(report["below_target"] or moved)


if __name__ == "__main__":
    sys.exit(main())
