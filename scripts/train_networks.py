#!/usr/bin/env python3
"""Trains small networks that run under a key, on data that scikit-learn comes with and on glyphs of fonts.

    (an environment with torch, scikit-learn, safetensors, pillow and the package hushed; Debian's fonts-dejavu)
    DIR/bin/python scripts/train_networks.py OUT        (some minutes on one core)

    mlp        64-128-128-10 with squares, the digits of E. Alpaydin and C. Kaynak (UCI, 1998; CC BY 4.0)
    cnn        a convolution with a stride, squares, two linear layers, the same digits
    cancer     logistic regression, the tumours of W. H. Wolberg, O. L. Mangasarian, D. W. Street (UCI, 1995; CC BY 4.0)
    diabetes   an MLP that regresses, the patients of B. Efron et al. (2004)
    resnet     a ResNet-8 with SiLU, digits and capitals of 16 x 16 points, drawn in the DejaVu fonts, turned and moved

Every fifth entry is not trained on. OUT/NAME is a folder with graph.json and model.safetensors (F16), and with
samples.jsonl and held-out.jsonl, whose lines are inputs; the labels of the latter are in labels.json. Inputs are as they
are published (points of digits from 0 to 16, as those of glyphs), columns of tables less their mean and divided by their
deviation.
"""

import argparse
import json
import pathlib

import numpy
import torch
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from PIL import Image, ImageDraw, ImageFont
from torch import nn
from torch.nn import functional as F

import hushed.nn
from hushed.nn import from_torch

SAMPLES, HELD = 50, 5
FONTS = pathlib.Path("/usr/share/fonts/truetype/dejavu")
UNSEEN = ["DejaVuSansCondensed-Bold", "DejaVuSerif-Italic"]
CLASSES, SIDE, DRAWN = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", 16, 12


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


class Block(nn.Module):
    """Two convolutions, and a way around them."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = conv(outputs, outputs, 3, 1), nn.BatchNorm2d(outputs)
        self.act1, self.act2 = silu(), silu()
        self.around = nn.Identity()
        if stride > 1:
            self.around = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(self.act1(self.bn1(self.conv1(x)))))
        return self.act2(y + self.around(x))


class ResNet(nn.Module):
    """Three blocks, as the ResNets for CIFAR: 2 * 3 + 2 layers with weights."""

    def __init__(self, channels):
        super().__init__()
        a, b, c = channels
        self.stem = nn.Sequential(conv(1, a, 3, 1), nn.BatchNorm2d(a), silu())
        self.blocks = nn.Sequential(Block(a, a, 1), Block(a, b, 2), Block(b, c, 2))
        self.fc = nn.Linear(c * (SIDE // 4) ** 2, len(CLASSES))

    def forward(self, x):
        return self.fc(self.blocks(self.stem(x * 0.0625)).flatten(1))


def conv(inputs, outputs, size, stride):
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


def silu():
    act = nn.SiLU()
    act.degree = 15
    return act


def trained(module, inputs, loss, asked, epochs):
    """Trains in F32, and rounds the weights to what the file holds."""
    optimiser = torch.optim.AdamW(module.parameters(), lr=2e-3, weight_decay=0.01)
    generator = torch.Generator().manual_seed(asked.seed)
    module.train()
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


def glyph(letter, font, random):
    """A letter in a square, at a size, a turn and a place by chance: points from 0 to 16."""
    face = ImageFont.truetype(str(font), random.integers(44, 60))
    image = Image.new("L", (4 * SIDE, 4 * SIDE))
    place = 2 * SIDE + random.uniform(-4, 4, 2)
    ImageDraw.Draw(image).text(tuple(place), letter, fill=255, font=face, anchor="mm")
    image = image.rotate(random.uniform(-10, 10), Image.Resampling.BILINEAR).resize((SIDE, SIDE), Image.Resampling.BOX)
    return numpy.round(numpy.asarray(image, dtype=numpy.float32) / 255 * 16)


def glyphs(out, name, module, asked):
    random = numpy.random.default_rng(asked.seed)
    fonts = sorted(font for font in FONTS.glob("DejaVu*.ttf") if "Math" not in font.stem)
    drawn = []
    for font in fonts:
        unseen = font.stem in UNSEEN
        for _ in range(1 if unseen else DRAWN):
            drawn += [(glyph(letter, font, random), label, unseen) for label, letter in enumerate(CLASSES)]
    drawn = [drawn[k] for k in random.permutation(len(drawn))]
    inputs = torch.tensor(numpy.stack([image for image, _, _ in drawn]))[:, None]
    labels, held = torch.tensor([label for _, label, _ in drawn]), torch.tensor([unseen for _, _, unseen in drawn])
    learnt = labels[~held]
    trained(module, inputs[~held], lambda found, chosen: F.cross_entropy(found, learnt[chosen]), asked, 20)
    right = module(inputs[held]).argmax(1) == labels[held]
    print(f"{name}: {int(right.sum())} of {len(right)} glyphs of {len(UNSEEN)} unseen fonts", flush=True)
    from_torch(module, torch.zeros(1, 1, SIDE, SIDE)).save(out / name)
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
    torch.manual_seed(asked.seed)
    glyphs(asked.out, "resnet", ResNet((4, 8, 16)), asked)


if __name__ == "__main__":
    main()
