#!/usr/bin/env python3
"""Writes tiny model folders of BitNet b1.58, and what numpy computes with them.

    python3 scripts/tiny_bitnets.py OUT        (needs numpy; OUT is crates/hushed-model/tests/golden/tiny, where llama-tied is)

`bitnet` is as Hugging Face's `BitNetForCausalLM` is saved: packed ternary layers with a `weight_scale` that multiplies, sub-norms, squared
ReLU, softmax, four heads that share two of keys and values. `bitnet-sigmoid` is as a model that was trained for encryption: sigmoid
attention, SiLU, no sub-norms, a `weight_scale` that divides. Both have the tokenizer of llama-tied and a tied head. `expected.json` has,
for texts whose token ids llama-tied's has, the logits of the last row in float64, and under `int8` those of some token ids if the rows
that ternary layers read are rounded to 8 bits. `bitnet/expected-sigmoid.json` has the same of the weights of `bitnet` with sigmoid
attention and SiLU.

The forward pass is written from the papers (Touvron et al. 2023; Ma et al. 2024; Ramapuram et al. 2024), row by row.
"""

import json
import pathlib
import shutil
import struct
import sys

import numpy as np


def bf16(x):
    """Rounded to bfloat16, as float32."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    return bits.astype(np.uint32).view(np.float32)


def pack(signs):
    """Row i + b·rows/4 in bits 2b and 2b + 1 of row i."""
    quarter = signs.shape[0] // 4
    packed = np.zeros((quarter, signs.shape[1]), np.uint8)
    for b in range(4):
        packed |= (signs[b * quarter : (b + 1) * quarter] + 1).astype(np.uint8) << (2 * b)
    return packed


def save(path, tensors):
    """A safetensors file of uint8 and bfloat16 tensors."""
    header, data = {}, b""
    for name, x in sorted(tensors.items()):
        packed = x.dtype == np.uint8
        raw = x.tobytes() if packed else (x.view(np.uint32) >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "U8" if packed else "BF16", "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class Model:
    def __init__(self, config, seed):
        self.config = config
        self.rng = np.random.default_rng(seed)
        self.stored, self.weights = {}, {}
        self.int8 = False
        d, hidden = config["hidden_size"], config["intermediate_size"]
        keys = d // config["num_attention_heads"] * config["num_key_value_heads"]
        self.floats("model.embed_tokens.weight", (config["vocab_size"], d), 0.0, 0.5)
        self.floats("model.norm.weight", (d,), 0.9, 0.2)
        for i in range(config["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            for name, rows, columns in [("q", d, d), ("k", keys, d), ("v", keys, d), ("o", d, d)]:
                self.ternary(f"{layer}self_attn.{name}_proj", rows, columns)
            for name, rows, columns in [("gate", hidden, d), ("up", hidden, d), ("down", d, hidden)]:
                self.ternary(f"{layer}mlp.{name}_proj", rows, columns)
            norms = {"input_layernorm": d, "post_attention_layernorm": d}
            if config.get("sub_norms", True):
                norms |= {"self_attn.attn_sub_norm": d, "mlp.ffn_sub_norm": hidden}
            for name, width in norms.items():
                self.floats(f"{layer}{name}.weight", (width,), 0.9, 0.2)

    def floats(self, name, shape, mean, spread):
        numbers = bf16(mean + spread * self.rng.standard_normal(shape))
        self.stored[name] = numbers
        self.weights[name] = numbers.astype(np.float64)

    def ternary(self, name, rows, columns):
        """Signs and zeros of a normal matrix, as absmean quantisation rounds it."""
        dense = self.rng.standard_normal((rows, columns))
        signs = np.clip(np.round(dense / np.abs(dense).mean()), -1, 1).astype(np.int64)
        scale = 1.1 / np.sqrt(columns) * self.rng.uniform(0.8, 1.2)
        divides = self.config["quantization_config"].get("linear_class", "bitlinear") == "bitlinear"
        stored = bf16(np.array([1 / scale if divides else scale]))
        self.stored[f"{name}.weight"] = pack(signs)
        self.stored[f"{name}.weight_scale"] = stored
        exact = float(stored[0])
        self.weights[name] = signs * (1 / exact if divides else exact)

    def layer(self, name, row):
        """A ternary layer, of the row or of the row rounded to 8 bits: Ma et al. 2024, equations 4 and 5, with the clamp of their code."""
        if self.int8:
            scale = 127 / max(np.abs(row).max(), 1e-5)
            # Near a tie the last bits of a row decide; gains and token vectors of 8 bits even make exact ties.
            assert np.abs(np.abs(row * scale) % 1 - 0.5).min() > 1e-5, "a tie: take other token ids"
            row = np.clip(np.rint(row * scale), -128, 127) / scale
        return self.weights[name] @ row

    def norm(self, name, row):
        return row / np.sqrt(np.mean(row * row) + self.config["rms_norm_eps"]) * self.weights[f"{name}.weight"]

    def turned(self, head, place):
        half = len(head) // 2
        turns = np.exp(1j * place * self.config["rope_theta"] ** (-np.arange(half) / half))
        pairs = (head[:half] + 1j * head[half:]) * turns
        return np.concatenate([pairs.real, pairs.imag])

    def weigh(self, scores):
        if self.config.get("attention_weights") == "sigmoid":
            return 1 / (1 + np.exp(-(scores + self.config["sigmoid_bias"])))
        powers = np.exp(scores - scores.max())
        return powers / powers.sum()

    def attention(self, layer, rows):
        c = self.config
        heads, shared = c["num_attention_heads"], c["num_attention_heads"] // c["num_key_value_heads"]
        dh = c["hidden_size"] // heads
        part = lambda row, name: self.layer(f"{layer}self_attn.{name}_proj", row).reshape(-1, dh)
        keys, values, out = [], [], []
        for place, row in enumerate(rows):
            keys.append([self.turned(k, place) for k in part(row, "k")])
            values.append(part(row, "v"))
            queries = [self.turned(q, place) for q in part(row, "q")]
            seen = []
            for h, q in enumerate(queries):
                scores = np.array([q @ k[h // shared] for k in keys]) / np.sqrt(dh)
                weights = self.weigh(scores)
                seen.append(sum(w * v[h // shared] for w, v in zip(weights, values)))
            joined = np.concatenate(seen)
            if c.get("sub_norms", True):
                joined = self.norm(f"{layer}self_attn.attn_sub_norm", joined)
            out.append(self.layer(f"{layer}self_attn.o_proj", joined))
        return out

    def feed_forward(self, layer, row):
        gate = self.layer(f"{layer}mlp.gate_proj", row)
        f = np.maximum(gate, 0) ** 2 if self.config["hidden_act"] == "relu2" else gate / (1 + np.exp(-gate))
        hidden = f * self.layer(f"{layer}mlp.up_proj", row)
        if self.config.get("sub_norms", True):
            hidden = self.norm(f"{layer}mlp.ffn_sub_norm", hidden)
        return self.layer(f"{layer}mlp.down_proj", hidden)

    def logits(self, ids, int8=False):
        self.int8 = int8
        table = self.weights["model.embed_tokens.weight"]
        rows = [table[id] for id in ids]
        for i in range(self.config["num_hidden_layers"]):
            layer = f"model.layers.{i}."
            attended = self.attention(layer, [self.norm(f"{layer}input_layernorm", row) for row in rows])
            rows = [row + a for row, a in zip(rows, attended)]
            rows = [row + self.feed_forward(layer, self.norm(f"{layer}post_attention_layernorm", row)) for row in rows]
        return table @ self.norm("model.norm", rows[-1])


def write(out, name, seed, shape):
    beside, folder = out / "llama-tied", out / name
    texts = json.loads((beside / "expected.json").read_text())["texts"]
    taken = json.loads((beside / "config.json").read_text())
    config = {"architectures": ["BitNetForCausalLM"], "model_type": "bitnet", "tie_word_embeddings": True, "rms_norm_eps": 1e-5}
    config |= {field: taken[field] for field in ["vocab_size", "bos_token_id", "eos_token_id"]} | shape
    model = Model(config, seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    shutil.copy(beside / "tokenizer.json", folder / "tokenizer.json")
    save(folder / "model.safetensors", model.stored)
    answers(model, texts, folder / "expected.json")
    return model, texts


def digits(logits):
    return [float(f"{x:.12g}") for x in logits]


def answers(model, texts, path):
    expected = {"texts": []}
    for text in texts:
        expected["texts"].append({"text": text["text"], "ids": text["ids"], "answer": digits(model.logits(text["ids"]))})
    ids = [(7 * i * i + 11 * i + 3) % 300 for i in range(17)]
    expected["int8"] = {"ids": ids, "answer": digits(model.logits(ids, int8=True))}
    path.write_text(json.dumps(expected, ensure_ascii=False) + "\n")


def main():
    out = pathlib.Path(sys.argv[1])
    quantised = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"}
    shape = {"hidden_size": 32, "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    shape |= {"max_position_embeddings": 160, "rope_theta": 500000.0, "hidden_act": "relu2", "quantization_config": quantised}
    model, texts = write(out, "bitnet", 5, shape)
    model.config |= {"hidden_act": "silu", "attention_weights": "sigmoid", "sigmoid_bias": -2.75}
    answers(model, texts, out / "bitnet" / "expected-sigmoid.json")
    shape = {"hidden_size": 16, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2}
    shape |= {"max_position_embeddings": 96, "rope_theta": 10000.0, "hidden_act": "silu", "quantization_config": {"quant_method": "bitnet"}}
    shape |= {"sub_norms": False, "attention_weights": "sigmoid", "sigmoid_bias": -2.75}
    write(out, "bitnet-sigmoid", 6, shape)


if __name__ == "__main__":
    main()
