#!/usr/bin/env python3
"""Trains a small cross-encoder: the body of paraphrase-MiniLM-L3-v2, with a head, on questions and passages of this repository's documents.

    (the environment of scripts/tiny_embedders.py)
    DIR/bin/python scripts/train_cross_encoder.py OUT [--body DIR] [--frozen LAYERS]

A passage is a paragraph of text without one of its sentences. What is asked about it is that sentence, or the headings above the paragraph. The
model learns to tell its passage from others, half of them of the same page. The token table stays as it is, and so do the first layers that --frozen counts.
Every eighth page is left out of the training; at the end its questions are asked of their passage and nineteen others of these pages. A quarter of
an hour on one core. Writes a folder as `sentence-transformers` does, for `hushed rerank`; its score goes through a sigmoid.
"""
import argparse
import json
import pathlib
import random
import re
import shutil
import subprocess
import time

import torch
import transformers
from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKENS, OTHERS, BATCH, SHOWN = 64, 3, 8, 20


def paragraphs(page):
    """(headings above it, sentences) of every paragraph of prose."""
    headings, block = {}, []
    text = re.sub(r"```.*?```|<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.S)
    for line in [*text.splitlines(), ""]:
        if line.startswith("#"):
            depth = len(line) - len(line.lstrip("#"))
            headings = {d: h for d, h in headings.items() if d < depth} | {depth: line.strip("# ")}
        elif line.strip() and not line.startswith(("|", "<", "    ", "!")):
            block.append(line.strip("-* "))
            continue
        if block:
            prose = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block)).replace("`", "")
            sentences = re.split(r"(?<=[.:?!]) +(?=[A-Z0-9])", prose)
            yield " ".join(headings.values()), [s for s in sentences if len(s) > 20]
            block = []


def pairs(page, chance):
    """(question, passage) of a page."""
    for headings, sentences in paragraphs(page):
        if len(sentences) > 1:
            asked = chance.randrange(len(sentences))
            rest = " ".join(sentences[:asked] + sentences[asked + 1:])
            yield sentences[asked], rest
            if headings:
                yield headings, rest


class Scorer:
    def __init__(self, body):
        self.tokenizer = Tokenizer.from_file(str(body / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(TOKENS, strategy="longest_first")
        config = transformers.BertConfig.from_pretrained(body, num_labels=1)
        self.model = transformers.BertForSequenceClassification.from_pretrained(body, config=config, attn_implementation="eager")

    def __call__(self, pairs):
        found = [self.tokenizer.encode(*pair) for pair in pairs]
        width = max(len(f.ids) for f in found)
        padded = lambda of: torch.tensor([of(f) + [0] * (width - len(f.ids)) for f in found])
        inputs = {"input_ids": padded(lambda f: f.ids), "token_type_ids": padded(lambda f: f.type_ids), "attention_mask": padded(lambda f: f.attention_mask)}
        return self.model(**inputs).logits[:, 0]


def ranks(score, asked, passages, chance):
    """The place of the right passage among SHOWN, for every question."""
    places = []
    for question, passage in asked:
        others = chance.sample([p for p in passages if p != passage], SHOWN - 1)
        scores = score(question, [passage, *others])
        places.append(1 + int((scores[1:] >= scores[0]).sum()))
    return places


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--body", type=pathlib.Path)
    parser.add_argument("--frozen", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    body = options.body
    if body is None:
        fetch = [ROOT / "scripts" / "fetch_encoders.py", "paraphrase-MiniLM-L3-v2"]
        body = pathlib.Path(subprocess.run(fetch, stdout=subprocess.PIPE, text=True, check=True).stdout.strip())
    chance = random.Random(options.seed)
    torch.manual_seed(options.seed)
    pages = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("*.md")])
    kept = [page for i, page in enumerate(pages) if i % 8 != 7]
    by_page = [list(pairs(page, chance)) for page in kept]
    unseen = [pair for page in pages if page not in kept for pair in pairs(page, chance)]
    everything = [(pair, page) for page in by_page for pair in page]
    print(f"{len(everything)} questions of {len(kept)} pages; {len(unseen)} of the others")

    scorer = Scorer(body)
    model = scorer.model
    for part in [model.bert.embeddings, *model.bert.encoder.layer[: options.frozen]]:
        part.requires_grad_(False)
    # The head learns faster than the layers, which have learned already.
    heads = [p for name, p in model.named_parameters() if not name.startswith("bert.encoder") and p.requires_grad]
    rest = [p for name, p in model.named_parameters() if name.startswith("bert.encoder") and p.requires_grad]
    steps = options.rounds * (len(everything) // BATCH)
    optimizer = torch.optim.AdamW([{"params": heads, "lr": 1e-3}, {"params": rest, "lr": 6e-5}], weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 50) * (1.0 - step / steps))
    loss_of = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(float(OTHERS)))
    model.train()
    started, total, first = time.monotonic(), 0.0, 0.0
    for step in range(steps):
        batch, labels = [], []
        for (question, passage), page in chance.choices(everything, k=BATCH):
            batch.append((question, passage))
            for other in range(OTHERS):
                source = page if other % 2 else chance.choice(by_page)
                wrong = [p for _, p in source if p != passage]
                batch.append((question, chance.choice(wrong or [p for _, p in unseen])))
            labels += [1.0] + [0.0] * OTHERS
        scores = scorer(batch)
        loss = loss_of(scores, torch.tensor(labels))
        first += (scores.reshape(BATCH, -1).argmax(1) == 0).float().mean().item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        total += loss.item()
        if (step + 1) % 25 == 0:
            seconds = time.monotonic() - started
            print(f"step {step + 1} of {steps}: loss {total / 25:.3f}, {first / 25:.0%} first of {OTHERS + 1}, {seconds:.0f} s", flush=True)
            total = first = 0.0

    model.eval()
    passages = sorted({passage for _, passage in unseen})
    plain = transformers.BertModel.from_pretrained(body, add_pooling_layer=False).eval()

    def embedded(text):
        return plain(torch.tensor([scorer.tokenizer.encode(text).ids])).last_hidden_state[0].mean(0)

    with torch.no_grad():
        vectors = {passage: embedded(passage) for passage in passages}
        by_cosine = lambda q, ps: torch.cosine_similarity(embedded(q)[None], torch.stack([vectors[p] for p in ps]))
        by_score = lambda q, ps: scorer([(q, p) for p in ps])
        report = {}
        for name, score in [("cosine of the body's embeddings", by_cosine), ("cross-encoder", by_score)]:
            places = ranks(score, unseen, passages, random.Random(options.seed))
            report[name] = [sum(p == 1 for p in places) / len(places), sum(1 / p for p in places) / len(places)]
            print(f"{name}: first of {SHOWN} for {report[name][0]:.1%} of {len(places)} questions, mean reciprocal rank {report[name][1]:.3f}")

    shutil.rmtree(options.out, ignore_errors=True)
    model.config.id2label = {0: "LABEL_0"}
    model.save_pretrained(options.out)
    shutil.copy(body / "tokenizer.json", options.out)
    config = json.loads((options.out / "config.json").read_text())
    config["sentence_transformers"] = {"activation_fn": "torch.nn.modules.activation.Sigmoid", "version": "5.4.0"}
    (options.out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    print(options.out)


if __name__ == "__main__":
    main()
