"""Models with trained weights, from packages: checked, planned, and run privately beside the same in the clear.

    python3 scripts/trained_models.py [NAME ...] [--models DIR] [--texts N] [--json]
    python3 scripts/trained_models.py --rerank DIR [--json]

NAME is one of those that scripts/fetch_encoders.py fetches (all without one); with --models their folders are taken from DIR. The first N texts
of data/sample.txt are embedded by two processes over TLS on loopback: reported are the smallest cosine to the embedding in the clear, which
must be 0.9999, and what one text of 16 tokens takes. Of the classifier of reactions the label is compared. --rerank takes the folder of a
cross-encoder (scripts/train_cross_encoder.py): twenty passages of the documents, 64 tokens with the question, are sorted privately; the
order must be that in the clear.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

from two_processes import ROOT, Failed, Server, cosine, embeddings, hushed, lines, run

TARGET = 0.9999
# Esterifications, an amide, an ether, a reduction, a Suzuki coupling, a nitration, in SMILES.
REACTIONS = [
    "CC(=O)O.OCC>>CC(=O)OCC",
    "O=C(O)c1ccccc1.CO>>COC(=O)c1ccccc1",
    "CC(=O)Cl.NCc1ccccc1>>CC(=O)NCc1ccccc1",
    "Oc1ccccc1.CI>>COc1ccccc1",
    "O=Cc1ccccc1>>OCc1ccccc1",
    "OB(O)c1ccccc1.Brc1ccncc1>>c1ccc(-c2ccncc2)cc1",
    "c1ccccc1.O=[N+]([O-])O>>O=[N+]([O-])c1ccccc1",
]
# A token a word, and two around them; what a text costs depends on nothing else.
OF_16_TOKENS = [" ".join(["the"] * 14)]
QUESTION = "How does the server learn nothing about the text?"
# About as many tokens as fit beside the question into 64.
PASSAGES, WORDS = 20, 60
ROWS = 64


def private(verb, server, texts, *options):
    """The rows of a verb, and what they took."""
    started = time.monotonic()
    rows = hushed(verb, "--server", server.address, "--pin", server.pin, "--input", "-", *options, stdin=lines(texts))
    return rows[:-1], rows[-1], time.monotonic() - started


def cost(summary):
    mb = (summary["bytes_up"] + summary["bytes_down"]) / 1e6
    return {"seconds": summary["seconds"], "megabytes": mb, "rounds": summary["rounds"]}


def compare(name, model, count):
    [checked] = [row for row in hushed("check", model) if "protocols" in row]
    reactions = name.startswith("rxn")
    texts = REACTIONS if reactions else (ROOT / "data" / "sample.txt").read_text(encoding="utf-8").splitlines()
    texts = texts[:count]
    planned = hushed("plan", model, "--tokens", "16")[0]["plan"]
    report = {"name": name, "protocols": checked["protocols"], "texts": len(texts), "planned_rounds": planned["rounds"]}
    report["planned_megabytes"] = (planned["bytes_up"] + planned["bytes_down"]) / 1e6
    clear = hushed("clear", model, "--input", "-", stdin=lines(texts))
    labels = "logits" in clear[0]
    with Server(model) as server:
        rows, _, _ = private("classify" if labels else "embed", server, texts)
        if not labels:
            same = [cosine(a, b) for a, b in zip(embeddings(clear), embeddings(rows), strict=True)]
            report["cosine_min"] = min(same)
            right = min(same) >= TARGET
        else:
            named = [row["label"] for row in clear if "label" in row]
            report["labels_same"] = sum(a == b["label"] for a, b in zip(named, rows, strict=True))
            right = report["labels_same"] == len(texts)
        if not reactions:
            private("embed", server, OF_16_TOKENS)
            _, summary, _ = private("embed", server, OF_16_TOKENS)
            report["of_16_tokens"] = cost(summary)
    return report, right


def passages():
    """Paragraphs of the documents."""
    found = []
    for page in sorted(ROOT.glob("docs/*.md")):
        for block in page.read_text(encoding="utf-8").split("\n\n"):
            words = block.split()
            if len(words) >= WORDS and block[0].isalpha() and "|" not in block:
                found.append(" ".join(words[:WORDS]))
    return found[:: max(1, len(found) // PASSAGES)][:PASSAGES]


def scored(model, texts):
    """The rows of pairs with the question, in the clear."""
    return [row for row in hushed("clear", model, "--query", QUESTION, "--input", "-", stdin=lines(texts)) if "logits" in row]


def rerank(model):
    texts = passages()
    while True:
        clear = scored(model, texts)
        long = [row["text_index"] for row in clear if row["tokens"] > ROWS]
        if not long:
            break
        for i in long:
            texts[i] = texts[i].rsplit(" ", 1)[0]
    scores = {row["text_index"]: row["logits"][0] for row in clear}
    rows = {row["tokens"] for row in clear}
    with Server(model, "--max-tokens", str(ROWS)) as server:
        question = ["--query", QUESTION, "--bucket", str(ROWS), "--batch", "4"]
        found, summary, seconds = private("rerank", server, texts, *question)
    order = [row["document_index"] for row in found]
    expected = sorted(scores, key=lambda i: -scores[i])
    report = {"name": "rerank", "passages": len(texts), "rows": sorted(rows), "same_order": order == expected, "wall_seconds": seconds}
    return report | cost(summary), order == expected


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--models", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--texts", type=int, default=5)
    parser.add_argument("--rerank", type=pathlib.Path, metavar="DIR")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.rerank:
        reports = [rerank(options.rerank)]
    else:
        fetch = [str(ROOT / "scripts" / "fetch_encoders.py"), *options.names]
        fetch += ["--models", str(options.models)] if options.models else []
        done = subprocess.run(fetch, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise Failed("the models are not there: see the message above")
        folders = [pathlib.Path(line) for line in done.stdout.split("\n") if line]
        reports = (compare(folder.name, folder, options.texts) for folder in folders)
    wrong = 0
    for report, right in reports:
        wrong += not right
        print(json.dumps(report) if options.json else "\n".join(f"{name}: {value}" for name, value in report.items()) + "\n", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    run(main)
