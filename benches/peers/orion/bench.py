"""Orion (`orion-fhe` from PyPI) beside ours: one linear layer on one vector, one JSON object, fields as in docs/benchmarks.md.

    GOMAXPROCS=1 OMP_NUM_THREADS=1 python bench.py [inputs outputs]

768 × 3072 takes 17 GB of memory, most of it for diagonals, and some minutes to prepare.
"""
import contextlib
import json
import math
import os
import statistics
import sys
import time

import torch

import orion
import orion.nn as on

PEER = "orion-fhe 1.0.2"
RUNS = 3
# The level that one layer uses, over a first prime as wide as ours, and special primes for key switches of one digit.
CONFIG = {
    "ckks_params": {"LogN": 16, "LogQ": [50, 40], "LogP": [50, 50], "LogScale": 40, "H": 32768, "RingType": "standard"},
    "orion": {"embedding_method": "hybrid", "backend": "lattigo", "debug": False, "io_mode": "none"},
}


class Layer(on.Linear):
    """A layer that is not the last of its network. The last one gets the `square` packing, which leaves nothing in unused
    slots, and which Orion makes from a dense matrix of 2^15 × 2^15, for more memory than such a machine has."""

    def generate_diagonals(self, last):
        super().generate_diagonals(last=False)
        # Orion keeps an object for each number. Almost all are zero, and one object for those saves 3 GB.
        for diagonals in self.diagonals.values():
            for diagonal in diagonals.values():
                diagonal[:] = [number or 0.0 for number in diagonal]


class Network(on.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.layer = Layer(inputs, outputs)

    def forward(self, x):
        return self.layer(x)


def peak():
    """Peak resident memory in bytes."""
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return int(line.split()[1]) << 10
    return 0


def bench(inputs, outputs):
    torch.set_num_threads(1)
    # Orion reports what it does on standard output.
    with contextlib.redirect_stdout(sys.stderr):
        scheme = orion.init_scheme(CONFIG)
        net = Network(inputs, outputs)
        net.eval()
        x = 2 * torch.rand(1, inputs) - 1
        start = time.perf_counter()
        orion.fit(net, x)
        level = orion.compile(net)
        setup = time.perf_counter() - start
        ct = orion.encrypt(orion.encode(x, level))
        net.he()
        samples = []
        for _ in range(RUNS + 1):
            start = time.perf_counter()
            out = net(ct)
            samples.append(time.perf_counter() - start)
    layer = net.layer
    weight, bias = layer.weight.detach().double(), layer.bias.detach().double()
    error = (out.decrypt().decode().double() - torch.nn.functional.linear(x.double(), weight, bias)).abs()
    bits = -torch.log2(error.clamp(min=1e-30))
    keys = {key for transform in layer.transform_ids.values() for key in scheme.lt_evaluator.get_required_rotation_keys(transform)}
    print(json.dumps({
        "peer": PEER, "name": "matvec", "threads": int(os.environ.get("GOMAXPROCS", "0")), "level": level,
        "params": {"log_n": 16, "log_q": sum(CONFIG["ckks_params"]["LogQ"]), "inputs": inputs, "outputs": outputs,
                   "method": "baby-step giant-step, double hoisted"},
        # A map of one block rotates once by each of its keys; the first is of no rotation.
        "rotations": len(keys - {1}) + layer.output_rotations, "diagonals": sum(map(len, layer.diagonals.values())),
        "levels_used": level - out.level(), "seconds": statistics.median(samples[1:]), "runs": RUNS, "setup_seconds": setup,
        "precision_bits_min": bits.min().item(), "precision_bits_mean": bits.mean().item(), "peak_rss": peak(),
    }))


bench(*(map(int, sys.argv[1:3]) if len(sys.argv) == 3 else (768, 3072)))
