#!/usr/bin/env python3
"""Writes a tiny classifier of classes of which several or none may be right, and what `transformers` says of texts with it.

    (the environment of scripts/tiny_folders.py, or that of scripts/tiny_embedders.py, which made the folder)
    DIR/bin/python scripts/tiny_labels.py GOLDEN       (GOLDEN is crates/hushed-model/tests/golden)

`tiny/multi-label` is a BERT with random weights from a seed, stored as F16, and the tokenizer of `tiny/distilbert`. Its `expected.json` has for
every text its ids, and of each class the logit in float64 and the probability that the `text-classification` pipeline finds.
"""

import pathlib
import shutil
import sys
import tempfile

import torch
import transformers as t
from tokenizers import Tokenizer
from tiny_folders import TEXTS, put, randomise

LABELS = ["complaint", "invoice", "notice", "question", "urgent"]
SIZES = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 24, "max_position_embeddings": 64}


def spread(model, tokenizer):
    """Has every class above one half for some of the texts: random layers say much the same of all of them."""
    with torch.no_grad():
        model.classifier.weight.mul_(12)
        logits = torch.cat([model(**tokenizer(text, truncation=True, return_tensors="pt")).logits for text in TEXTS])
        model.classifier.bias.sub_(logits.mean(0))
        for weights in model.classifier.parameters():
            weights.copy_(weights.half().float())


def main():
    torch.set_num_threads(1)
    golden = pathlib.Path(sys.argv[1])
    wordpiece = Tokenizer.from_file(str(golden / "tiny/distilbert/tokenizer.json"))
    tokenizer = t.BertTokenizerFast(tokenizer_object=wordpiece, do_lower_case=False, model_max_length=64)
    fields = {"vocab_size": len(tokenizer), "id2label": dict(enumerate(LABELS)), "problem_type": "multi_label_classification"}
    config = t.BertConfig(attn_implementation="eager", **SIZES, **fields)
    model = randomise(t.BertForSequenceClassification(config), 5)
    spread(model, tokenizer)
    path = golden / "tiny/multi-label"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as saved:
        model.half().save_pretrained(saved)
        tokenizer.save_pretrained(saved)
        for name in ["config.json", "model.safetensors"]:
            shutil.copy(pathlib.Path(saved) / name, path / name)
    shutil.copy(golden / "tiny/distilbert/tokenizer.json", path / "tokenizer.json")
    model.double()
    classify = t.pipeline("text-classification", model=model, tokenizer=tokenizer, top_k=None, device="cpu")
    expected = []
    for text in TEXTS:
        inputs = tokenizer(text, truncation=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**inputs).logits[0].tolist()
        found = {each["label"]: each["score"] for each in classify([text], truncation=True)[0]}
        ids, probabilities = inputs["input_ids"][0].tolist(), [found[label] for label in LABELS]
        expected.append({"text": text, "ids": ids, "answer": logits, "probabilities": probabilities})
    put(path / "expected.json", expected)


if __name__ == "__main__":
    main()
