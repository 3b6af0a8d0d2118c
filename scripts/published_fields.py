#!/usr/bin/env python3
"""Lists the fields that libraries write into model folders, with their defaults, without a model or torch.

    python3 -m venv DIR && DIR/bin/pip install transformers==VERSION
    DIR/bin/python scripts/published_fields.py crates/hushed-model/tests/golden/fields.json [sentence_transformers.whl]

Adds an entry for this version to the file. Run with several versions, old and new: every one wrote fields that others do not. Of a wheel of
`sentence-transformers`, only the lists of keys in its sources are read.
"""

import json
import pathlib
import re
import sys
import tempfile
import warnings
import zipfile

warnings.simplefilter("ignore")
import tokenizers
import transformers

CONFIGS = ["BertConfig", "RobertaConfig", "XLMRobertaConfig", "DistilBertConfig", "GPT2Config", "LlamaConfig", "BitNetConfig", "ViTConfig"]
TOKENIZERS = ["PreTrainedTokenizerFast", "BertTokenizerFast", "DistilBertTokenizerFast", "RobertaTokenizerFast", "GPT2TokenizerFast", "LlamaTokenizerFast"]


def tokenizer_config(name, tiny):
    """What this class writes after reading the tiny tokenizer of its kind; `None` if it does not read it."""
    kind = next((k for k in ("DistilBert", "Roberta", "GPT2", "Llama") if name.startswith(k)), "distilbert").lower()
    try:
        tokenizer = getattr(transformers, name)(tokenizer_file=str(tiny / kind / "tokenizer.json"))
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save_pretrained(folder)
            return json.loads((pathlib.Path(folder) / "tokenizer_config.json").read_text())
    except Exception as error:  # versions differ in what they read
        print(f"{name}: {error}"[:200], file=sys.stderr)
        return None


def keys(source):
    """The names in `config_keys = [...]`, wherever it is assigned."""
    listed = re.search(r"config_keys(?:: list\[str\])? = \[(.*?)\]", source, re.S)
    return re.findall(r'"(\w+)"', listed.group(1)) if listed else []


def sentence(wheel):
    with zipfile.ZipFile(wheel) as archive:
        def source(*ends):
            name = next(n for n in archive.namelist() if n.endswith(ends))
            return archive.read(name).decode()

        pooling = source("models/Pooling.py", "sentence_transformer/modules/pooling.py")
        transformer = source("models/Transformer.py", "base/modules/transformer.py")
    return {"1_Pooling/config.json": keys(pooling), "sentence_bert_config.json": keys(transformer)}


def main():
    out = pathlib.Path(sys.argv[1])
    tiny = out.parent / "tiny"
    found = json.loads(out.read_text()) if out.exists() else {}
    configs = {name: getattr(transformers, name)().to_dict() for name in CONFIGS if hasattr(transformers, name)}
    entry = {"config.json": configs, "generation_config.json": transformers.GenerationConfig().to_dict()}
    written = {name: tokenizer_config(name, tiny) for name in TOKENIZERS}
    entry["tokenizer_config.json"] = {name: config for name, config in written.items() if config}
    if hasattr(transformers, "ViTImageProcessor"):
        try:
            entry["preprocessor_config.json"] = transformers.ViTImageProcessor().to_dict()
        except Exception as error:  # needs another package
            print(f"ViTImageProcessor: {error}"[:200], file=sys.stderr)
    found[f"transformers {transformers.__version__}"] = entry
    for wheel in sys.argv[2:]:
        found[pathlib.Path(wheel).name.rsplit("-py3", 1)[0].replace("-", " ")] = sentence(wheel)
    out.write_text(json.dumps(found, indent=None, separators=(",", ":"), sort_keys=True).replace('"transformers ', '\n"transformers ') + "\n")


if __name__ == "__main__":
    main()
