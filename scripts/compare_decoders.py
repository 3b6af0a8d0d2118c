#!/usr/bin/env python3
"""What ternary weights, sigmoid attention and norms inside blocks cost a small decoder: trains the decoder of make_decoder.py in each form,
with the same text, windows and steps, and prints the perplexity of the text that was held out. In make_decoder.py's environment:

    DIR/bin/python scripts/compare_decoders.py out/decoder-forms.jsonl --texts out/decoder-texts --steps 480 --seeds 3

A row a form and seed is appended to the file, and what is there already is not trained again. "dropped in" is the net that was trained with
softmax attention, read with sigmoid attention. Scores and arguments of the gate are penalised in all forms alike.
"""

import argparse
import json
import pathlib
import statistics
import textwrap
import types

import make_decoder as made

FORMS = [made.Form(ternary, attention, sub) for ternary, attention in [(False, "softmax"), (True, "softmax"), (True, "sigmoid")] for sub in (False, True)]
# Windows that perplexity is taken over.
WINDOWS = 200


def name_of(form):
    return f"{'ternary' if form.ternary else 'f32'}, {form.attention}, {'with' if form.sub_norms else 'without'} sub-norms"


def rows_of(form, seed, tokens, others, steps):
    """The row of the form and, if it has ternary softmax attention, that of sigmoid attention dropped into it."""
    asked = types.SimpleNamespace(seed=seed, steps=steps, minutes=float("inf"))
    weights, _ = made.train(tokens, asked, form)
    read = {name_of(form): form}
    if form.ternary and form.attention == "softmax":
        dropped = form._replace(attention="sigmoid")
        read[f"{name_of(dropped)}, dropped in"] = dropped
    for name, form in read.items():
        perplexity, (scores, gates), count = made.held_out(weights, others, WINDOWS, form)
        yield {"form": name, "seed": seed, "steps": steps, "perplexity": perplexity, "tokens": count, "scores": scores, "gates": gates}


def table(rows):
    print("| form | held-out perplexity, mean | each seed | largest score | largest argument of a gate |\n|---|---|---|---|---|")
    for name in dict.fromkeys(row["form"] for row in rows):
        of = [row for row in rows if row["form"] == name]
        values = [row["perplexity"] for row in of]
        each = ", ".join(f"{value:.1f}" for value in values)
        most = " | ".join(f"{max(row[what] for row in of):.1f}" for what in ("scores", "gates"))
        print(f"| {name} | {statistics.mean(values):.1f} | {each} | {most} |")


def main():
    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=pathlib.Path)
    parser.add_argument("--texts", type=pathlib.Path, required=True, help="what fetch_texts.sh unpacked")
    parser.add_argument("--steps", type=int, default=480)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    kept, held = made.split(made.texts_in(asked.texts))
    tokenizer = made.tokenizer_of(kept)
    tokens, others = made.tokens_of(tokenizer, kept), made.tokens_of(tokenizer, held)
    rows = [json.loads(line) for line in asked.rows.read_text().splitlines()] if asked.rows.exists() else []
    trained = {(row["form"], row["seed"], row["steps"]) for row in rows}
    for seed in range(1, asked.seeds + 1):
        for form in FORMS:
            if (name_of(form), seed, asked.steps) in trained:
                continue
            new = list(rows_of(form, seed, tokens, others, asked.steps))
            rows += new
            with asked.rows.open("a") as out:
                out.writelines(json.dumps(row) + "\n" for row in new)
    table([row for row in rows if row["steps"] == asked.steps and row["seed"] <= asked.seeds])


if __name__ == "__main__":
    main()
