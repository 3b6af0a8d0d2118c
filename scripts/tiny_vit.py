#!/usr/bin/env python3
"""Writes a tiny model folder of a vision transformer with images, and what `transformers` computes with them.

    (the environment of scripts/make_models.py, or for the embedders that of scripts/tiny_embedders.py, and 'pillow<13')
    DIR/bin/python scripts/tiny_vit.py OUT        (OUT is crates/hushed-model/tests/golden/tiny)
    DIR/bin/python scripts/tiny_vit.py OUT embedders

`vit` reads 32 x 32 points in patches of 8 and has five classes; its weights are random from a seed, F16. `images/` has PNG files of other
sizes and kinds (gray, palette, transparent) and JPEG files. `expected.json` has for every image the logits in float64, and of the numbers
that the processor makes of it, with its own resampling and with the other, a hash and every so many-th one. The processor takes RGB only:
images are converted by Pillow before, as most programs do. Pillow 13 resizes rows before columns where that is faster, earlier versions never:
numbers of tall images differ by a level.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import numpy
import torch
import transformers
from PIL import Image

SIDE, PATCH, CLASSES = 32, 8, ["circle", "cross", "line", "square", "star"]
# Every so many-th number is written down.
STRIDE = 97


def fnv1a(data):
    state = 0xCBF29CE484222325
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return f"{state:016x}"


def randomise(model, seed):
    """Weights of the ranges of trained models, the same for the stored numbers and float64."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in sorted(model.named_parameters()):
            numbers = torch.randn(weights.shape, generator=generator)
            norm = "norm" in name and name.endswith("weight") or "lambda" in name
            table = weights.dim() in (1, 3)
            spread = 0.1 if table else 1.2 / weights[0].numel() ** 0.5
            weights.copy_((numbers * spread + (0.9 if norm else 0.0)).half().float())
    return model.eval()


def points(width, height, seed):
    """Edges, a slope and noise."""
    random = numpy.random.RandomState(seed)
    y, x = numpy.mgrid[0:height, 0:width]
    slope = numpy.stack([x * 255 / width, y * 255 / height, (x + y) * 255 / (width + height)], axis=-1)
    circle = ((x - width / 2) ** 2 + (y - height / 3) ** 2 < (min(width, height) / 4) ** 2)[..., None]
    noise = random.randint(-40, 41, size=(height, width, 3))
    return numpy.clip(numpy.where(circle, 255 - slope, slope) + noise, 0, 255).astype(numpy.uint8)


def images(folder):
    folder.mkdir()
    Image.fromarray(points(50, 37, 1)).save(folder / "wide.png")
    Image.fromarray(points(32, 32, 2)).save(folder / "same.png")
    Image.fromarray(points(13, 70, 3)).save(folder / "tall.png")
    Image.fromarray(points(9, 11, 4)).save(folder / "small.png")
    Image.fromarray(points(40, 40, 5)).convert("L").save(folder / "gray.png")
    Image.fromarray(points(45, 33, 6)).quantize(16).save(folder / "palette.png")
    alpha = numpy.concatenate([points(36, 36, 7), points(36, 36, 8)[..., :1]], axis=-1)
    Image.fromarray(alpha, "RGBA").save(folder / "alpha.png")
    Image.fromarray(points(64, 48, 9)).save(folder / "full.jpg", quality=95, subsampling=0)
    Image.fromarray(points(61, 47, 10)).save(folder / "half.jpg", quality=80, subsampling=2, progressive=True)
    return sorted(folder.iterdir())


def write(folder):
    config = transformers.ViTConfig(
        image_size=SIDE,
        patch_size=PATCH,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        hidden_dropout_prob=0.0,
        id2label=dict(enumerate(CLASSES)),
        label2id={name: i for i, name in enumerate(CLASSES)},
        attn_implementation="eager",
    )
    model = randomise(transformers.ViTForImageClassification(config), 5)
    processor = transformers.ViTImageProcessor(size={"height": SIDE, "width": SIDE}, image_mean=[0.48, 0.45, 0.4], image_std=[0.23, 0.22, 0.225])
    other = transformers.ViTImageProcessor.from_dict(processor.to_dict() | {"resample": 3})
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as saved:
        model.half().save_pretrained(saved)
        processor.save_pretrained(saved)
        for name in ["config.json", "preprocessor_config.json", "model.safetensors"]:
            shutil.copy(f"{saved}/{name}", folder / name)
    model = transformers.ViTForImageClassification.from_pretrained(folder, torch_dtype=torch.float32, attn_implementation="eager").double().eval()
    expected = []
    for path in images(folder / "images"):
        image = Image.open(path).convert("RGB")
        made = {"image": path.name}
        for name, how in [("bilinear", processor), ("bicubic", other)]:
            numbers = how(image, return_tensors="np")["pixel_values"][0].astype("<f4")
            sampled = [float(f"{x:.7g}") for x in numbers.ravel()[::STRIDE].tolist()]
            made[name] = {"fnv1a": fnv1a(numbers.tobytes()), "numbers": sampled}
        numbers = processor(image, return_tensors="pt")["pixel_values"].double()
        with torch.no_grad():
            logits = model(numbers).logits[0]
        made["logits"] = [float(f"{x:.8g}") for x in logits.tolist()]
        expected.append(made)
    (folder / "expected.json").write_text(json.dumps({"stride": STRIDE, "images": expected}) + "\n")


def embedder(folder, seed, kind, config, processor, fields, answer):
    """A model whose answer is a vector, of the images of `vit`, which its processor resizes and cuts."""
    sizes = {"image_size": SIDE, "patch_size": PATCH, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = randomise(kind(config(attn_implementation="eager", **sizes, **fields)), seed)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as saved:
        model.half().save_pretrained(saved)
        processor.save_pretrained(saved)
        for name in ["config.json", "preprocessor_config.json", "model.safetensors"]:
            shutil.copy(f"{saved}/{name}", folder / name)
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").double().eval()
    expected = []
    for path in sorted((folder.parent / "vit" / "images").glob("*.png")):
        numbers = processor(Image.open(path).convert("RGB"), return_tensors="np")["pixel_values"].astype("<f4")
        with torch.no_grad():
            vector = answer(model(torch.from_numpy(numbers).double()))[0]
        made = {"image": path.name, "fnv1a": fnv1a(numbers[0].tobytes()), "answer": [float(f"{x:.8g}") for x in vector.tolist()]}
        expected.append(made)
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


def embedders(out):
    t = transformers
    cut = {"size": {"shortest_edge": 40}, "crop_size": {"height": SIDE, "width": SIDE}}
    whole = {"size": {"height": SIDE, "width": SIDE}}
    row = lambda out: out.last_hidden_state[:, 0]
    clip = t.CLIPImageProcessorPil(**cut | {"size": {"shortest_edge": SIDE}})
    embedder(out / "vit-rows", 6, t.ViTModel, t.ViTConfig, t.ViTImageProcessorPil(**whole), {"intermediate_size": 64}, row)
    embedder(out / "dinov2", 7, t.Dinov2Model, t.Dinov2Config, t.BitImageProcessorPil(**cut), {"mlp_ratio": 2}, row)
    fields = {"intermediate_size": 64, "projection_dim": 24}
    pooled = lambda out: out.pooler_output
    embedder(out / "clip-vision", 8, t.CLIPVisionModel, t.CLIPVisionConfig, clip, fields, pooled)
    projected = lambda out: out.image_embeds
    embedder(out / "clip-vision-projection", 9, t.CLIPVisionModelWithProjection, t.CLIPVisionConfig, clip, fields, projected)


def main():
    torch.set_num_threads(1)
    out = pathlib.Path(sys.argv[1])
    if sys.argv[2:] == ["embedders"]:
        return embedders(out)
    write(out / "vit")


if __name__ == "__main__":
    main()
