#!/usr/bin/env python3
"""What a decoder under encryption should refresh after a sum: the columns x, or n = x/RMS(x) of each row, to be multiplied by the RMS again?

    out/decoder-venv/bin/python scripts/decoder_residuals.py data/decoder-small      (numpy and tokenizers; a minute)

A refresh errs in proportion to the largest number that it may see. So for each half of each layer this prints max |x|, max |n| and the RMS
of rows over the calibration's texts, and "gain": how much smaller the error of a number of x would be, root mean square over rows, if n was
refreshed. "columns" is the bound of the median column over the largest. Reads the folder itself and shares no code with Hushed.
"""

import argparse
import json
import pathlib
import struct

import numpy as np
from tokenizers import Tokenizer

EPSILON, THETA = 1e-5, 1e4
MAPS = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]


def tensors_of(path):
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        first, end = entry["data_offsets"]
        data = raw[8 + length + first : 8 + length + end]
        if entry["dtype"] == "U8":
            yield name, np.frombuffer(data, np.uint8).reshape(entry["shape"])
        else:
            wide = np.frombuffer(data, "<u2").astype(np.uint32) << 16
            yield name, wide.view(np.float32).reshape(entry["shape"]).astype(np.float64)


def unpacked(packed, scale):
    quarters = [(packed >> (2 * b)) & 3 for b in range(4)]
    return (np.concatenate(quarters).astype(np.float64) - 1) * scale[0]


def norm(x, gain):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * gain


def turned(x):
    half = x.shape[-1] // 2
    angles = np.arange(x.shape[0])[:, None] * THETA ** (-np.arange(half) / half)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def sums_of(config, tensors, ids):
    """The residual stream after each half."""
    heads, width = config["num_attention_heads"], config["hidden_size"]
    rows, x = len(ids), tensors["model.embed_tokens.weight"][ids]
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}."
        q, k, v, o, gate, up, down = (unpacked(tensors[f"{at}{name}.weight"], tensors[f"{at}{name}.weight_scale"]) for name in MAPS)
        y = norm(x, tensors[at + "input_layernorm.weight"])
        q, k, v = ((y @ w.T).reshape(rows, heads, -1) for w in (q, k, v))
        scores = np.einsum("qhc,khc->hqk", turned(q), turned(k)) / np.sqrt(width // heads)
        weights = sigmoid(scores + config["sigmoid_bias"]) * np.tril(np.ones((rows, rows)))
        x = x + np.einsum("hqk,khc->qhc", weights, v).reshape(rows, width) @ o.T
        yield f"{i}.attention", x
        y = norm(x, tensors[at + "post_attention_layernorm.weight"])
        g = y @ gate.T
        x = x + (g * sigmoid(g) * (y @ up.T)) @ down.T
        yield f"{i}.feed_forward", x


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    config = json.loads((folder / "config.json").read_text())
    tensors = dict(tensors_of(folder / "model.safetensors"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    seen = {}
    for line in (folder / "sample.txt").read_text().splitlines():
        for half, x in sums_of(config, tensors, tokenizer.encode(line).ids[: config["max_position_embeddings"]]):
            rms = np.sqrt((x * x).mean(-1))
            seen.setdefault(half, []).append((np.abs(x).max(0), np.abs(x / rms[:, None]).max(), rms))
    print("| half | max \\|x\\| | max \\|n\\| | RMS of rows: least, median, most | gain | columns |\n|---|---|---|---|---|---|")
    for half, of in seen.items():
        columns = np.max([x for x, _, _ in of], axis=0)
        normed, rms = max(n for _, n, _ in of), np.concatenate([r for _, _, r in of])
        gain = columns.max() / (normed * np.sqrt((rms**2).mean()))
        spread = ", ".join(f"{r:.2f}" for r in (rms.min(), np.median(rms), rms.max()))
        print(f"| {half} | {columns.max():.2f} | {normed:.2f} | {spread} | {gain:.2f} | {np.median(columns) / columns.max():.2f} |")


if __name__ == "__main__":
    main()
