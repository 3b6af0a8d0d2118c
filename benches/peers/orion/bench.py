"""Orion (`orion-fhe` from PyPI) beside ours, one JSON object, fields as in docs/benchmarks.md.

    GOMAXPROCS=1 OMP_NUM_THREADS=1 python bench.py [inputs outputs]     one linear layer on one vector
    GOMAXPROCS=1 OMP_NUM_THREADS=1 python bench.py mlp                  the MLP for digits of data/networks on one image

768 × 3072 takes 17 GB of memory, most of it for diagonals, and some minutes to prepare. The MLP is read from the current
folder, which is the repository's.
"""
import contextlib
import json
import math
import os
import pathlib
import statistics
import sys
import time

import torch

import orion
import orion.nn as on

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import digits

PEER = "orion-fhe 1.0.2"
RUNS = 3
# The level that one layer uses, over a first prime as wide as ours, and special primes for key switches of one digit.
CONFIG = {
    "ckks_params": {"LogN": 16, "LogQ": [50, 40], "LogP": [50, 50], "LogScale": 40, "H": 32768, "RingType": "standard"},
    "orion": {"embedding_method": "hybrid", "backend": "lattigo", "debug": False, "io_mode": "none"},
}


# The MLP: a level for each map and each square, over primes as ours. What is secure in a ring of 2^13, primes of 26 bits,
# errs by 1 in a number of the answer.
MLP = {"LogN": 14, "LogQ": [50] + [40] * 5, "LogP": [50, 50], "LogScale": 40, "H": 8192, "RingType": "standard"}


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


class Mlp(on.Module):
    def __init__(self, layers):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = (Layer(weight.shape[1], weight.shape[0]) for weight, _ in layers)
        self.act1, self.act2 = on.Quad(), on.Quad()
        for layer, (weight, bias) in zip((self.fc1, self.fc2, self.fc3), layers):
            layer.weight.data, layer.bias.data = torch.tensor(weight).float(), torch.tensor(bias).float()

    def forward(self, x):
        return self.fc3(self.act2(self.fc2(self.act1(self.fc1(x)))))


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


def mlp():
    torch.set_num_threads(1)
    with contextlib.redirect_stdout(sys.stderr):
        orion.init_scheme({**CONFIG, "ckks_params": MLP})
        net = Mlp(digits.layers())
        net.eval()
        images = digits.images(RUNS + 1)
        start = time.perf_counter()
        orion.fit(net, torch.tensor(images[:1]).float())
        level = orion.compile(net)
        setup = time.perf_counter() - start
        net.he()
        seconds, whole, error = [], [], 0.0
        for image in images:
            begun = time.perf_counter()
            ct = orion.encrypt(orion.encode(torch.tensor(image[None]).float(), level))
            start = time.perf_counter()
            out = net(ct)
            seconds.append(time.perf_counter() - start)
            found = out.decrypt().decode().double().flatten()[:10].numpy()
            whole.append(time.perf_counter() - begun)
            error = max(error, abs(found - digits.clear(image)).max())
    # The first is a warm-up.
    print(json.dumps({
        "peer": PEER, "name": "fhe-network", "network": "mlp", "threads": int(os.environ.get("GOMAXPROCS", "0")),
        "params": {"log_n": MLP["LogN"], "log_q": sum(MLP["LogQ"]), "log_p": sum(MLP["LogP"]), "scale": MLP["LogScale"]},
        "seconds": statistics.median(seconds[1:]), "seconds_with_the_client": statistics.median(whole[1:]), "runs": RUNS,
        "setup_seconds": setup, "error": error, "peak_rss": peak(),
    }))


if sys.argv[1:] == ["mlp"]:
    mlp()
else:
    bench(*(map(int, sys.argv[1:3]) if len(sys.argv) == 3 else (768, 3072)))
