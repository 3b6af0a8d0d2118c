#!/usr/bin/env python3
"""Trains a small vision transformer on the handwritten digits that scikit-learn comes with.

    (the environment of scripts/make_models.py, and scikit-learn 'pillow<13')
    DIR/bin/python scripts/make_digits.py OUT            (OUT is data/vit-digits; a few minutes on one core)

1,797 digits of 8 x 8 points in 17 shades (E. Alpaydin and C. Kaynak, UCI, 1998; CC BY 4.0), of which every fourth is not trained on.
Those are written to OUT/held-out.txt: the digit, then its points row by row, each as one of 0-9a-g. The folder is saved by
`save_pretrained`, F16; OUT/README.md says what came out. scripts/accuracy.py compares private labels with clear ones on the held-out digits.
"""

import argparse
import pathlib
import time

import numpy
import sklearn
import torch
import transformers
from PIL import Image
from sklearn.datasets import load_digits

from make_models import record

SIDE, HELD, SHADES = 8, 4, "0123456789abcdefg"
BATCH, RATE = 64, 2e-3


def tokens(processor, digits):
    """What the processor makes of the images, as programs give them to it."""
    images = [Image.fromarray((digit * (255 / 16)).round().astype(numpy.uint8)).convert("RGB") for digit in digits]
    return processor(images, return_tensors="pt")["pixel_values"]


def moved(batch, generator):
    """Each image a point further up, down, left or right, or where it is."""
    shifts = torch.randint(-1, 2, (len(batch), 2), generator=generator).tolist()
    return torch.stack([torch.roll(image, shift, (1, 2)) for image, shift in zip(batch, shifts, strict=True)])


def train(model, images, labels, asked):
    generator = torch.Generator().manual_seed(asked.seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.05)
    start, steps = time.time(), asked.epochs * (len(images) // BATCH)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / 50) * (1 - step / steps)
        chosen = torch.randint(len(images), (BATCH,), generator=generator)
        loss = model(moved(images[chosen], generator), labels=labels[chosen]).loss
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        if step % 100 == 0 or step + 1 == steps:
            print(f"step {step} of {steps}: loss {loss.item():.3f}, {time.time() - start:.0f} s", flush=True)


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("out", type=pathlib.Path)
    ask.add_argument("--epochs", type=int, default=60)
    ask.add_argument("--seed", type=int, default=1)
    asked = ask.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(asked.seed)

    found = load_digits()
    held = numpy.arange(len(found.images)) % HELD == HELD - 1
    config = transformers.ViTConfig(
        image_size=SIDE,
        patch_size=2,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        id2label={i: str(i) for i in range(10)},
        label2id={str(i): i for i in range(10)},
        attn_implementation="eager",
    )
    model = transformers.ViTForImageClassification(config)
    processor = transformers.ViTImageProcessor(size={"height": SIDE, "width": SIDE}, image_mean=[0.5] * 3, image_std=[0.5] * 3)
    labels = torch.tensor(found.target)
    train(model, tokens(processor, found.images[~held]), labels[~held], asked)

    model.half().save_pretrained(asked.out)
    processor.save_pretrained(asked.out)
    model = transformers.ViTForImageClassification.from_pretrained(asked.out, torch_dtype=torch.float32).eval()
    with torch.no_grad():
        guessed = model(tokens(processor, found.images[held])).logits.argmax(-1)
    right = int((guessed == labels[held]).sum())
    rows = ["".join(SHADES[int(point)] for point in digit.ravel()) for digit in found.images[held]]
    text = "".join(f"{digit} {row}\n" for digit, row in zip(found.target[held], rows, strict=True))
    (asked.out / "held-out.txt").write_text(text)
    record(
        asked.out,
        [
            "# A small vision transformer for digits",
            "",
            "Made by `scripts/make_digits.py` for demonstrations and tests.",
            "",
            f"* 3 layers × 64, 4 heads, 16 patches of 2 × 2 points; {sum(w.numel() for w in model.parameters())} parameters, F16.",
            f"* {int((~held).sum())} of the {len(held)} handwritten digits in scikit-learn {sklearn.__version__}"
            " (E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI, 1998; CC BY 4.0);"
            f" the other {int(held.sum())} are in `held-out.txt`.",
            f"* Seed {asked.seed}, {asked.epochs} epochs; torch {torch.__version__}, transformers {transformers.__version__}.",
            f"* Held-out digits named rightly: {right} of {int(held.sum())}.",
        ],
    )
    print(f"{right} of {int(held.sum())} held-out digits")


if __name__ == "__main__":
    main()
