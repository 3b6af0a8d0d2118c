#!/usr/bin/env python3
"""Writes the golden files of hushed-model: what all-MiniLM-L6-v2 computes, by a reference that shares no code with this repository.

    python3 scripts/golden.py DIR OUT        (needs numpy; DIR is the model folder, OUT is crates/hushed-model/tests/golden)
    python3 scripts/golden.py --classifier DIR OUT        (DIR: cargo run -p hushed-model --features testing --example tiny_classifier DIR)

The forward pass is BERT's (Devlin et al. 2019) in float64, the tokenizer is the WordPiece algorithm written from its description, the
weights are read with 20 lines. `layers.json` has, for a few texts, token ids, the final embedding, and for every step a few probed
values, the root mean square and the largest absolute value; `tokens.json` has the token ids of every line of data/*.txt.
`classifier.json` has token ids and logits of the random classifier that tests write.
"""

import json
import math
import pathlib
import struct
import sys
import unicodedata

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXTS = [
    "The weather is lovely today.",
    "Die Versicherung zahlt nur, wenn der Schaden innerhalb von drei Tagen gemeldet wird.",
    "To reset the device, hold the button on its left side for ten seconds until the light turns amber, release it, wait for a"
    " single beep, and press it once more within five seconds.",
]
PROBES = 6


def read_safetensors(path):
    raw = path.read_bytes()
    (n,) = struct.unpack("<Q", raw[:8])
    tensors = {}
    for name, info in json.loads(raw[8 : 8 + n]).items():
        if name != "__metadata__" and info["dtype"] == "F32":
            start, end = info["data_offsets"]
            numbers = np.frombuffer(raw[8 + n + start : 8 + n + end], dtype="<f4")
            tensors[name] = numbers.reshape(info["shape"]).astype(np.float64)
    return tensors


class WordPiece:
    """BERT's uncased tokenizer: clean, lower, strip accents, split at white space and punctuation, longest pieces first."""

    def __init__(self, vocab_file):
        lines = vocab_file.read_text(encoding="utf-8").split("\n")
        self.ids = {line: i for i, line in enumerate(lines) if line}

    def __call__(self, text):
        words, word = [], ""
        for c in self.normalise(text):
            if c.isspace():
                words, word = words + [word], ""
            elif self.is_punctuation(c):
                words, word = words + [word, c], ""
            else:
                word += c
        words = [w for w in words + [word] if w]
        return [self.ids["[CLS]"]] + [i for w in words for i in self.pieces(w)] + [self.ids["[SEP]"]]

    def normalise(self, text):
        out = ""
        for c in text:
            if c in "\t\n\r" or unicodedata.category(c) == "Zs":
                out += " "
            elif ord(c) in (0, 0xFFFD) or unicodedata.category(c) in ("Cc", "Cf", "Cn", "Co"):
                continue
            elif self.is_chinese(ord(c)):
                out += f" {c} "
            else:
                out += c
        out = "".join(c for c in unicodedata.normalize("NFD", out) if unicodedata.category(c) != "Mn")
        return out.lower()

    def is_chinese(self, c):
        ranges = [(0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F),
                  (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)]
        return any(a <= c <= b for a, b in ranges)

    def is_punctuation(self, c):
        ascii_mark = 33 <= ord(c) <= 126 and not c.isalnum()
        return ascii_mark or unicodedata.category(c).startswith("P")

    def pieces(self, word):
        if len(word) > 100:
            return [self.ids["[UNK]"]]
        found, start = [], 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self.ids:
                    found.append(self.ids[piece])
                    start = end
                    break
            else:
                return [self.ids["[UNK]"]]
        return found


def layer_norm(x, t, name):
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-12) * t[f"{name}.weight"] + t[f"{name}.bias"]


def linear(x, t, name):
    return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]


def gelu(x):
    return x * 0.5 * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0)))


def encode(t, ids, config, seen):
    m, d, h = len(ids), config["hidden_size"], config["num_attention_heads"]
    dh = d // h

    def see(site, value):
        seen[site] = value
        return value

    x = t["embeddings.word_embeddings.weight"][ids] + t["embeddings.position_embeddings.weight"][:m]
    x = see("embed", x + t["embeddings.token_type_embeddings.weight"][0])
    x = see("embed.norm", layer_norm(x, t, "embeddings.LayerNorm"))
    for i in range(config["num_hidden_layers"]):
        at, name = f"layer.{i}.attention", f"encoder.layer.{i}"

        def heads(a):
            return a.reshape(m, h, dh).transpose(1, 0, 2)  # h × m × dh

        q, k, v = (see(f"{at}.{p}", linear(x, t, f"{name}.attention.self.{p}")) for p in ("query", "key", "value"))
        s = see(f"{at}.scores", heads(q) @ heads(k).transpose(0, 2, 1) / math.sqrt(dh))
        e = np.exp(s - s.max(axis=-1, keepdims=True))
        p = see(f"{at}.weigh", e / e.sum(axis=-1, keepdims=True))
        o = see(f"{at}.attend", (p @ heads(v)).transpose(1, 0, 2).reshape(m, d))
        y = see(f"{at}.output", linear(o, t, f"{name}.attention.output.dense"))
        x = see(f"{at}.norm", layer_norm(see(f"{at}.add", x + y), t, f"{name}.attention.output.LayerNorm"))
        at = f"layer.{i}.feed_forward"
        y = see(f"{at}.up", linear(x, t, f"{name}.intermediate.dense"))
        y = see(f"{at}.activation", gelu(y))
        y = see(f"{at}.down", linear(y, t, f"{name}.output.dense"))
        x = see(f"{at}.norm", layer_norm(see(f"{at}.add", x + y), t, f"{name}.output.LayerNorm"))
    return x


def forward(t, ids, config, seen):
    pooled = encode(t, ids, config, seen).mean(axis=0, keepdims=True)
    seen["pool"] = pooled
    return pooled[0] / np.linalg.norm(pooled[0])


def logits(t, ids, config):
    encoder = {name.removeprefix("bert."): numbers for name, numbers in t.items()}
    first = encode(encoder, ids, config, {})[0]
    return linear(np.tanh(linear(first, encoder, "pooler.dense")), encoder, "classifier")


def summary(value):
    flat = value.reshape(-1)
    # Spread over the whole tensor, by a stride that is no multiple of a width; the test computes the same places.
    places = [(j * 7919) % flat.size for j in range(PROBES)]
    return {"rms": math.sqrt((flat**2).mean()), "max": np.abs(flat).max(), "probes": [flat[p] for p in places], "size": flat.size}


def classifier(folder, out):
    config = json.loads((folder / "config.json").read_text())
    tensors = read_safetensors(folder / "model.safetensors")
    cases = []
    for length in (3, 5, 12, 30):
        ids = [2] + [5 + (i * 31 + length * 17) % 80 for i in range(length - 2)] + [3]
        cases.append({"ids": ids, "logits": [float(f"{v:.12g}") for v in logits(tensors, ids, config)]})
    (out / "classifier.json").write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


def main():
    if sys.argv[1] == "--classifier":
        return classifier(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
    folder, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    config = json.loads((folder / "config.json").read_text())
    tensors = read_safetensors(folder / "model.safetensors")
    tokenizer = WordPiece(folder / "vocab.txt")
    out.mkdir(parents=True, exist_ok=True)
    short = lambda v: float(f"{v:.12g}")
    layers = []
    for text in TEXTS:
        seen = {}
        ids = tokenizer(text)
        embedding = forward(tensors, ids, config, seen)
        sites = {}
        for site, value in seen.items():
            s = summary(value)
            sites[site] = {"size": s["size"], "rms": short(s["rms"]), "max": short(s["max"]), "probes": [short(p) for p in s["probes"]]}
        layers.append({"text": text, "ids": ids, "embedding": [short(v) for v in embedding], "sites": sites})
    (out / "layers.json").write_text("[\n" + ",\n".join(json.dumps(l, ensure_ascii=False) for l in layers) + "\n]\n", encoding="utf-8")
    tokens = {}
    for name in ("sample.txt", "hostile.txt", "search/documents.txt", "search/queries.txt"):
        lines = (ROOT / "data" / name).read_text(encoding="utf-8").split("\n")[:-1]
        tokens[name] = [tokenizer(line) for line in lines]
        lengths = [len(t) for t in tokens[name]]
        print(f"{name}: {len(lines)} texts of {min(lengths)} to {max(lengths)} tokens", file=sys.stderr)
    lists = (f"{json.dumps(name)}: [\n" + ",\n".join(json.dumps(t) for t in ids) + "\n]" for name, ids in tokens.items())
    (out / "tokens.json").write_text("{\n" + ",\n".join(lists) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
