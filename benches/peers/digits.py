"""The MLP for digits of data/networks, for the peers that run it. The current folder is the repository's."""
import json
import pathlib

import numpy as np

FOLDER = pathlib.Path("data/networks/mlp")


def tensors(path):
    """The arrays of a file of safetensors, which holds halves."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, data = json.loads(data[8 : 8 + length]), data[8 + length :]
    return {
        name: np.frombuffer(data[slice(*entry["data_offsets"])], "<f2").reshape(entry["shape"]).astype(np.float64)
        for name, entry in header.items()
    }


def layers():
    """Weights (outputs × inputs) and biases of the three layers, with squares between. The first one takes digits as
    they are published: the factor before it is part of its weights."""
    nodes = json.loads((FOLDER / "graph.json").read_text())["nodes"]
    assert [node["op"] for node in nodes] == ["Mul", "Linear", "Square", "Linear", "Square", "Linear"]
    weights = tensors(FOLDER / "model.safetensors")
    found = [(weights[f"{node['name']}.weight"], weights[f"{node['name']}.bias"]) for node in nodes[1::2]]
    (first, bias), *others = found
    return [(first * nodes[0]["attributes"]["value"], bias), *others]


def images(count):
    """The first held-out digits, 64 numbers each."""
    lines = (FOLDER / "held-out.jsonl").read_text().splitlines()
    return np.array([json.loads(line) for line in lines[:count]], dtype=np.float64)


def clear(image):
    """The ten numbers of the answer."""
    (a, bias_a), (b, bias_b), (c, bias_c) = layers()
    return c @ (b @ (a @ image + bias_a) ** 2 + bias_b) ** 2 + bias_c
