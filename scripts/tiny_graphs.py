"""Makes the tiny graph folders that tests read: python scripts/tiny_graphs.py FOLDER

Needs torch and the package hushed. Each network is a module of torch with random weights (seed 1). Its folder has what
hushed.nn.from_torch writes, and expected.json: inputs, and torch's answers to them in float64.
"""

import json
import pathlib
import sys

import torch
from torch import nn
from torch.nn import functional as F

from hushed.nn import from_torch


class Mlp(nn.Module):
    """Linear layers, a batch normalisation, a residual addition."""

    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU())
        self.second = nn.Linear(8, 8, bias=False)
        self.drop = nn.Dropout()
        self.last = nn.Linear(8, 3)

    def forward(self, x):
        x = self.first(x)
        return self.last(x + self.drop(torch.square(self.second(x))))


class Cnn(nn.Module):
    """Convolutions with strides, padding, groups and dilation, and both kinds of pooling."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(2, 4, 3, stride=2, padding=1),
            nn.BatchNorm2d(4, eps=1e-3),
            nn.SiLU(),
            nn.Conv2d(4, 6, (1, 3), padding=(0, 2), dilation=(1, 2), groups=2, bias=False),
            nn.ReLU(),
            nn.AvgPool2d(2, stride=1, padding=1, count_include_pad=False),
            nn.Conv2d(6, 6, 3, padding=1, groups=6),
            nn.Tanh(),
            nn.AvgPool2d((3, 2), padding=(1, 0)),
        )
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classes = nn.Linear(24, 5)

    def forward(self, x):
        x = self.features(x)
        return self.classes(x.flatten(1)), self.pool(x)


class Calls(nn.Module):
    """Two inputs, two answers; functions, arithmetic, a constant, one layer called twice."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.offset = nn.Parameter(torch.randn(3, 4))

    def forward(self, image, side):
        a = F.gelu(self.shared(image), approximate="tanh") * 0.5 + 1
        b = F.elu(self.shared(a)) - self.offset
        c = torch.sigmoid(b * a) / 4
        d = 2 - c.view(-1, 12)
        return d, torch.tanh(side) * -torch.relu(side) + side**2


class Joins(nn.Module):
    """Values put together and taken apart into means."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.outer = nn.Linear(8, 4)

    def forward(self, x):
        inner = torch.exp(self.inner(x))
        wide = torch.cat((x, inner, torch.square(x)), dim=-1)
        tall = torch.cat([inner, self.inner(x).mean(1, keepdim=True)], 1)
        return self.outer(wide), tall.mean((1, 2))


class Norms(nn.Module):
    """Normalised rows, with gains and without."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(6, 6), nn.Linear(6, 3)
        self.layer = nn.LayerNorm(6, eps=1e-2)
        self.layer.degree = 31
        self.plain = nn.LayerNorm((2, 6), elementwise_affine=False)
        self.root = nn.RMSNorm(6)
        self.root.degree = 31

    def forward(self, x):
        return self.outer(self.layer(self.inner(x)) + self.plain(x)), self.root(x)


#: Those of a group are made before any of it answers: a group that is added changes no other.
GROUPS = (
    lambda: (("mlp", Mlp(), [(6,)]), ("cnn", Cnn(), [(2, 7, 6)]), ("calls", Calls(), [(3, 4), (5,)])),
    lambda: (("joins", Joins(), [(2, 3)]),),
    lambda: (("norms", Norms(), [(2, 6)]),),
)


NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.LayerNorm, nn.RMSNorm)


def main(folder):
    torch.manual_seed(1)
    for name, module, shapes in (network for group in GROUPS for network in group()):
        for part in module.modules():
            if isinstance(part, (nn.BatchNorm1d, nn.BatchNorm2d)):
                nn.init.normal_(part.running_mean)
                nn.init.uniform_(part.running_var, 0.5, 2)
            if isinstance(part, NORMS) and part.weight is not None:
                nn.init.normal_(part.weight, 1, 0.3)
                if getattr(part, "bias", None) is not None:
                    nn.init.normal_(part.bias)
        to = pathlib.Path(folder) / name
        from_torch(module, tuple(torch.zeros(1, *shape) for shape in shapes)).save(to)
        module.double().eval()
        cases = []
        for _ in range(3):
            inputs = [torch.randn(1, *shape, dtype=torch.float64) for shape in shapes]
            answers = module(*inputs)
            answers = answers if isinstance(answers, tuple) else (answers,)
            cases.append({
                "inputs": [x[0].tolist() for x in inputs],
                "outputs": [y[0].tolist() for y in answers],
            })
        (to / "expected.json").write_text(json.dumps(cases) + "\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
