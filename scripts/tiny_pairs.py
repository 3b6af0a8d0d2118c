#!/usr/bin/env python3
"""Writes two tiny cross-encoders, what `transformers` computes with them for pairs of texts, and pairs as token ids of many tokenizers.

    (the environment of scripts/tiny_folders.py)
    DIR/bin/python scripts/tiny_pairs.py GOLDEN       (GOLDEN is crates/hushed-model/tests/golden)

`tiny/cross-encoder` is a BERT with two token types, `tiny/cross-encoder-roberta` a RoBERTa, both with one number as their answer. They have
random weights from a seed, stored as F16, the tokenizers of `tiny/distilbert` and `tiny/roberta`, and `expected.json`: for every pair its ids,
its token types and its logit in float64. `pairs.json` has the ids and types that the `tokenizers` library finds for pairs within a limit.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers as t
from tokenizers import Tokenizer, processors
from tiny_folders import put, randomise

TOKENS = 64
SIZES = {"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 24}
QUERY = "How long is the notice period?"
LONG = "The notice period is three months to the end of a quarter, unless both sides agree on something else in writing. "
PAIRS = [
    [QUERY, "Either side may end the contract with notice of three months."],
    [QUERY, "The weather is lovely today."],
    ["Hello world", "a"],
    ["a", "Hello world, it's 3.14159!"],
    [QUERY, LONG * 3],
    [LONG * 3, QUERY],
    [LONG * 2, LONG * 2 + QUERY],
    ["Die Versicherung zahlt nicht", "größer, schöner, weißer!"],
]
LIMITS = [None, 33, 12, 9]


def folder(path, kind, config, tokenizer, fields):
    model = randomise(kind(config(attn_implementation="eager", id2label={0: "LABEL_0"}, **SIZES, **fields)), 11)
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as saved:
        model.half().save_pretrained(saved)
        tokenizer.save_pretrained(saved)
        for name in ["config.json", "model.safetensors", "tokenizer.json"]:
            shutil.copy(pathlib.Path(saved) / name, path / name)
    model.double()
    expected = []
    for pair in PAIRS:
        inputs = tokenizer(*pair, truncation=True, max_length=TOKENS, return_tensors="pt")
        with torch.no_grad():
            logit = model(**inputs).logits[0].tolist()
        types = inputs.get("token_type_ids", torch.zeros_like(inputs["input_ids"]))
        expected.append({"texts": pair, "ids": inputs["input_ids"][0].tolist(), "types": types[0].tolist(), "answer": logit})
    put(path / "expected.json", expected)


def vectors(golden):
    tiny = {name: json.loads((golden / "tiny" / name / "tokenizer.json").read_text()) for name in ["distilbert", "roberta", "xlm-roberta"]}
    files = {**tiny, "minilm": json.loads((golden / "tokenizers/minilm.json").read_text())["tokenizer"]}
    marks = files["minilm"]["model"]["vocab"]
    for name, mark in files["minilm"]["post_processor"]["special_tokens"].items():
        mark["ids"] = [marks[name]]  # The file was numbered again, and this was left as it was.
    bert = processors.BertProcessing(("[SEP]", marks["[SEP]"]), ("[CLS]", marks["[CLS]"])).__getstate__()
    cases = []
    for name, file, post in [*((n, f, None) for n, f in files.items()), ("minilm", files["minilm"], json.loads(bert))]:
        if post is not None:
            file = {**file, "post_processor": post}
        tokenizer = Tokenizer.from_str(json.dumps({**file, "truncation": None, "padding": None}))
        for limit in LIMITS:
            for side in ["right", "left"] if limit else ["right"]:
                if limit:
                    tokenizer.enable_truncation(limit, strategy="longest_first", direction=side)
                for pair in PAIRS:
                    found = tokenizer.encode(*pair)
                    cases.append([name, post is not None, limit, side, PAIRS.index(pair), found.ids, found.type_ids])
    names = ["tokenizer", "bert_processing", "limit", "side", "pair", "ids", "types"]
    lines = ",\n".join(json.dumps(dict(zip(names, case)), separators=(",", ":")) for case in cases)
    pairs, post = json.dumps(PAIRS, ensure_ascii=False), bert.decode() if isinstance(bert, bytes) else bert
    (golden / "pairs.json").write_text(f'{{"pairs": {pairs},\n"bert_processing": {post},\n"cases": [\n{lines}\n]}}\n')


def main():
    torch.set_num_threads(1)
    golden = pathlib.Path(sys.argv[1])
    wordpiece = Tokenizer.from_file(str(golden / "tiny/distilbert/tokenizer.json"))
    marks = [("[CLS]", wordpiece.token_to_id("[CLS]")), ("[SEP]", wordpiece.token_to_id("[SEP]"))]
    wordpiece.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1", marks)
    tokenizer = t.BertTokenizerFast(tokenizer_object=wordpiece, do_lower_case=False)
    fields = {"vocab_size": len(tokenizer), "max_position_embeddings": TOKENS, "type_vocab_size": 2}
    folder(golden / "tiny/cross-encoder", t.BertForSequenceClassification, t.BertConfig, tokenizer, fields)

    bytes_ = Tokenizer.from_file(str(golden / "tiny/roberta/tokenizer.json"))
    tokenizer = t.RobertaTokenizerFast(tokenizer_object=bytes_)
    fields = {"vocab_size": len(tokenizer), "max_position_embeddings": TOKENS + 2, "type_vocab_size": 1, "pad_token_id": 1}
    fields |= {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}
    folder(golden / "tiny/cross-encoder-roberta", t.RobertaForSequenceClassification, t.RobertaConfig, tokenizer, fields)
    vectors(golden)


if __name__ == "__main__":
    main()
