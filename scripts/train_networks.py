#!/usr/bin/env python3
"""Trains small networks that run under a key, on data that scikit-learn comes with.

    (an environment with torch, scikit-learn, safetensors and the package hushed)
    DIR/bin/python scripts/train_networks.py OUT        (a minute on one core)

    mlp        64-128-128-10 with squares, the digits of E. Alpaydin and C. Kaynak (UCI, 1998; CC BY 4.0)
    cnn        a convolution with a stride, squares, two linear layers, the same digits
    cancer     logistic regression, the tumours of W. H. Wolberg, O. L. Mangasarian, D. W. Street (UCI, 1995; CC BY 4.0)
    diabetes   an MLP that regresses, the patients of B. Efron et al. (2004)

Every fifth entry is not trained on. OUT/NAME is a folder with graph.json and model.safetensors (F16), and with
samples.jsonl and held-out.jsonl, whose lines are inputs; the labels of the latter are in labels.json. Inputs are as they
are published (points of digits from 0 to 16), columns of tables less their mean and divided by their deviation.
"""

import argparse
import json
import pathlib

import numpy
import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from torch import nn
from torch.nn import functional as F

import hushed.nn
from hushed.nn import from_torch

SAMPLES, HELD = 50, 5


class Mlp(nn.Module):
    """The MLP of the Orion papers, for digits of 8 x 8 points."""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(64, 128), nn.Linear(128, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = torch.square(self.fc1(x * 0.0625))
        return self.fc3(torch.square(self.fc2(x)))


class Cnn(nn.Module):
    """As LoLa's network for MNIST, for digits of 8 x 8 points."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 5, 3, stride=2, padding=1)
        self.fc1, self.fc2 = nn.Linear(80, 100), nn.Linear(100, 10)

    def forward(self, x):
        x = torch.square(self.conv(x * 0.0625)).flatten(1)
        return self.fc2(torch.square(self.fc1(x)))


def trained(module, inputs, loss, asked, epochs):
    """Trains in F32, and rounds the weights to what the file holds."""
    optimiser = torch.optim.AdamW(module.parameters(), lr=2e-3, weight_decay=0.01)
    generator = torch.Generator().manual_seed(asked.seed)
    for epoch in range(epochs):
        order = torch.randperm(len(inputs), generator=generator)
        for chosen in order.split(64):
            value = loss(module(inputs[chosen]), chosen)
            optimiser.zero_grad(set_to_none=True)
            value.backward()
            optimiser.step()
    module.load_state_dict({name: value.half().float() for name, value in module.state_dict().items()})
    return module.eval()


def save(out, inputs, held, labels):
    """Beside what the package wrote: weights of half the bytes, and inputs."""
    weights = out / "model.safetensors"
    save_file({name: value.half().contiguous() for name, value in load_file(weights).items()}, weights)
    for name, some in [("samples.jsonl", inputs[~held][:SAMPLES]), ("held-out.jsonl", inputs[held])]:
        rows = [[int(v) if v == int(v) else round(float(v), 5) for v in numpy.ravel(x)] for x in some]
        lines = [json.dumps(row, separators=(",", ":")) for row in rows]
        (out / name).write_text("\n".join(lines) + "\n")
    (out / "labels.json").write_text(json.dumps([float(v) for v in labels[held]]) + "\n")


def digits(out, name, module, shape, asked):
    data = load_digits()
    inputs = torch.tensor(data.images, dtype=torch.float32).reshape(-1, *shape)
    labels, held = torch.tensor(data.target), torch.arange(len(inputs)) % HELD == 0
    learnt = labels[~held]
    trained(module, inputs[~held], lambda found, chosen: F.cross_entropy(found, learnt[chosen]), asked, 40)
    right = module(inputs[held]).argmax(1) == labels[held]
    print(f"{name}: {int(right.sum())} of {len(right)} held-out digits", flush=True)
    from_torch(module, torch.zeros(1, *shape)).save(out / name)
    save(out / name, inputs.numpy(), held.numpy(), labels.numpy())


def standardised(data):
    held = numpy.arange(len(data)) % HELD == 0
    mean, deviation = data[~held].mean(0), data[~held].std(0)
    return (data - mean) / deviation, held


def table(out, name, layers, net, data, labels, loss, asked):
    """`net` has the same layers in the package, with the degrees of their polynomials."""
    inputs, held = standardised(data)
    wanted = torch.tensor(labels[~held], dtype=torch.float32)[:, None]
    module = nn.Sequential(*layers)
    tensors = torch.tensor(inputs, dtype=torch.float32)
    trained(module, tensors[~held], lambda found, chosen: loss(found, wanted[chosen]), asked, 60)
    net.load_state_dict(module.state_dict())
    found = module(tensors[held]).detach().numpy()[:, 0]
    if loss is F.binary_cross_entropy:
        print(f"{name}: {int(((found > 0.5) == labels[held]).sum())} of {held.sum()} held-out entries", flush=True)
    else:
        left = ((found - labels[held]) ** 2).mean() / ((labels[held] - labels[~held].mean()) ** 2).mean()
        print(f"{name}: {1 - left:.3f} of the variance of {held.sum()} held-out entries", flush=True)
    net.save(out / name, (data.shape[1],))
    save(out / name, inputs, held, labels)


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("out", type=pathlib.Path)
    ask.add_argument("--seed", type=int, default=1)
    asked = ask.parse_args()
    torch.manual_seed(asked.seed)
    torch.set_num_threads(1)
    asked.out.mkdir(parents=True, exist_ok=True)
    digits(asked.out, "mlp", Mlp(), (64,), asked)
    digits(asked.out, "cnn", Cnn(), (1, 8, 8), asked)
    cancer = load_breast_cancer()
    net = hushed.nn.Sequential(hushed.nn.Linear(30, 1), hushed.nn.Sigmoid(degree=31))
    layers = [nn.Linear(30, 1), nn.Sigmoid()]
    table(asked.out, "cancer", layers, net, cancer.data, cancer.target, F.binary_cross_entropy, asked)
    patients = load_diabetes(scaled=False)
    net = hushed.nn.Sequential(hushed.nn.Linear(10, 32), hushed.nn.SiLU(degree=7), hushed.nn.Linear(32, 1))
    layers = [nn.Linear(10, 32), nn.SiLU(), nn.Linear(32, 1)]
    wanted = (patients.target - patients.target.mean()) / patients.target.std()
    table(asked.out, "diabetes", layers, net, patients.data, wanted, F.mse_loss, asked)


if __name__ == "__main__":
    main()
