#!/usr/bin/env python3
"""Writes the token ids of texts that contain special tokens, by the `tokenizers` library and the tiny folders' own files.

    python3 -m venv DIR && DIR/bin/pip install tokenizers==0.23.3
    DIR/bin/python scripts/special_tokens.py crates/hushed-model/tests/golden
"""

import json
import pathlib
import sys

from tokenizers import Tokenizer

TEXTS = {
    "distilbert": ["[SEP]", "[CLS] hello [SEP]", "a[MASK]b", "x [sep] y", "[ SEP ]", "the [MASK] of the world"],
    "roberta": ["</s>", "<s> hello</s>", "a <mask> b", "< s >", "hello <mask>"],
    "xlm-roberta": ["</s>", "<s> hello</s>", "a <mask> b", "< s >", "hello <mask>"],
    "gpt2": ["<|endoftext|>", "hello<|endoftext|> world", "<|endof text|>"],
    "llama": ["</s>", "<s>hello</s> world", "< s >"],
}


def main():
    out = pathlib.Path(sys.argv[1])
    found = {}
    for name, texts in TEXTS.items():
        tokenizer = Tokenizer.from_file(str(out / "tiny" / name / "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        found[name] = [{"text": text, "ids": tokenizer.encode(text).ids} for text in texts]
    (out / "special_tokens.json").write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
