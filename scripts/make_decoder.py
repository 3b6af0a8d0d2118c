#!/usr/bin/env python3
"""Trains a small BitNet decoder that runs under encryption, on free text: the King James Bible (public domain), the documentation of Python
(PSF licence) and the books of Rust's documentation (MIT or Apache-2.0), which rustup installs with the compiler (component rust-docs).

    scripts/fetch_texts.sh TEXTS                     the first two, from Debian's packages
    python3 -m venv DIR
    DIR/bin/pip install jax==0.10.2 jaxlib==0.10.2 tokenizers==0.23.3 numpy==2.4.6   (Apache-2.0 but numpy: BSD)
    DIR/bin/python scripts/make_decoder.py OUT --texts TEXTS --minutes 60          (OUT is data/decoder-small; CPU only)

A byte-level BPE of 2,048 tokens, then 4 layers of 256 columns with 4 heads and 704 hidden columns over 128 positions, with a tied head. It
is trained in the form in which it is encrypted (docs/ensi.md): weights of layers are ternary, scaled by their mean absolute value, and
gradients go straight through the rounding; attention is a causal sigmoid with the fixed bias -log 128; there are no norms inside blocks;
scores and arguments of the gate beyond LIMIT are penalised, so that polynomials of low degree suffice. Activations are not rounded.

Minutes are processor time of all threads; by the clock it takes at most twice as long. The text, the order of the windows and the first
weights follow from the seed; the number of steps follows from the minutes, so another machine trains another model. OUT/README.md says what
was read and what came out.
"""

import argparse
import functools
import hashlib
import html.parser
import json
import math
import pathlib
import struct
import subprocess
import sys
import textwrap
import time
import typing

import jax
import jax.numpy as jnp
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
BOOKS = ["book", "reference", "rust-by-example", "nomicon", "cargo", "edition-guide", "rustc", "rustdoc", "clippy", "embedded-book"]
PYTHON = ["tutorial", "library", "reference", "howto", "faq"]
END = "<|endoftext|>"
VOCABULARY, LAYERS, WIDTH, HEADS, HIDDEN, PLACES = 2048, 4, 256, 4, 704, 128
EPSILON, THETA, BIAS = 1e-5, 10000.0, -round(math.log(PLACES), 2)
BATCH, RATE, WARM, DECAY = 8, 2e-3, 40, 0.1
# Beyond LIMIT the penalty sets in; what it holds is said to be within 6.
LIMIT, PENALTY = 4.5, 200.0
# Every so many-th text is not trained on.
HELD = 20
# Of the others, every so many-th begins a line of the calibration's sample.
SAMPLED = 9


class Page(html.parser.HTMLParser):
    """The text of a page's <main>, or of its <div role="main">, without scripts."""

    def __init__(self):
        super().__init__()
        self.tag, self.depth, self.skip, self.text = "main", 0, 0, []

    def handle_starttag(self, tag, attrs):
        if not self.depth and tag in ("main", "div") and (tag == "main" or ("role", "main") in attrs):
            self.tag, self.depth = tag, 1
        elif self.depth:
            self.depth += tag == self.tag
        self.skip += tag in ("script", "style", "button")

    def handle_endtag(self, tag):
        if self.depth:
            self.depth -= tag == self.tag
        self.skip -= tag in ("script", "style", "button")

    def handle_data(self, data):
        if self.depth and not self.skip:
            self.text.append(data)


def page(path):
    reader = Page()
    reader.feed(path.read_text(errors="replace"))
    lines = (line.rstrip() for line in "".join(reader.text).replace("\u00b6", "").splitlines())
    return "\n".join(line for line in lines if line.strip())


def pages(root, parts):
    """The pages of parts of a documentation, by name, without those that only list or repeat others."""
    paths = [path for part in parts for path in sorted((root / part).rglob("*.html"))]
    repeated = lambda path: path.name in ("print.html", "404.html") or any(part.endswith("-edition") for part in path.relative_to(root).parts[1:])
    texts = (page(path) for path in paths if not repeated(path))
    return [text for text in texts if len(text) > 200]


def chapters(path):
    """The chapters of a file of verses, \"Ge1:1 In the beginning ...\", without the numbers of verses."""
    found = {}
    for line in path.read_text().splitlines():
        verse, _, text = line.partition(" ")
        found.setdefault(verse.partition(":")[0], []).append(text)
    return ["\n".join(verses) for verses in found.values()]


def texts_in(root):
    """All texts in the order of their hashes, so that any part of them is a mixture; `root` has what `fetch_texts.sh` unpacked."""
    sysroot = subprocess.run(["rustc", "--print", "sysroot"], check=True, capture_output=True, text=True).stdout.strip()
    rust = pages(pathlib.Path(sysroot) / "share/doc/rust/html", BOOKS)
    texts = chapters(root / "kjv.txt") + pages(root / "python", PYTHON) + rust
    return sorted(texts, key=lambda text: digest(text.encode()))


def split(texts):
    held = texts[HELD // 2 :: HELD]
    return [text for i, text in enumerate(texts) if i % HELD != HELD // 2], held


def digest(data):
    return hashlib.sha256(data).hexdigest()


def tokenizer_of(train):
    tokenizer = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix=""))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(train, trainer)
    return tokenizer


def tokens_of(tokenizer, texts):
    end = tokenizer.token_to_id(END)
    return np.array([id for text in tokenizer.encode_batch(texts) for id in text.ids + [end]], np.int32)



class Form(typing.NamedTuple):
    """What `compare_decoders.py` compares; the decoder that is saved has the defaults."""

    ternary: bool = True
    attention: str = "sigmoid"
    sub_norms: bool = False


SHAPES = {
    "self_attn.q_proj": (WIDTH, WIDTH),
    "self_attn.k_proj": (WIDTH, WIDTH),
    "self_attn.v_proj": (WIDTH, WIDTH),
    "self_attn.o_proj": (WIDTH, WIDTH),
    "mlp.gate_proj": (HIDDEN, WIDTH),
    "mlp.up_proj": (HIDDEN, WIDTH),
    "mlp.down_proj": (WIDTH, HIDDEN),
}
NORMS = ["input_layernorm", "post_attention_layernorm"]
SUB_NORMS = {"self_attn.attn_sub_norm": WIDTH, "mlp.ffn_sub_norm": HIDDEN}


def begin(seed, form):
    rng = np.random.default_rng(seed)
    weights = {"embed_tokens": 0.06 * rng.standard_normal((VOCABULARY, WIDTH)), "norm": np.ones(WIDTH)}
    for i in range(LAYERS):
        for name, shape in SHAPES.items():
            last = name.endswith(("o_proj", "down_proj"))
            spread = shape[1] ** -0.5 * (0.3 if last else 1.0)
            weights[f"layers.{i}.{name}"] = spread * rng.standard_normal(shape)
        weights |= {f"layers.{i}.{name}": np.ones(WIDTH) for name in NORMS}
        if form.sub_norms:
            weights |= {f"layers.{i}.{name}": np.ones(width) for name, width in SUB_NORMS.items()}
    return {name: jnp.asarray(w, jnp.float32) for name, w in weights.items()}


def rounded(w):
    """The signs of a layer and its one size: absmean (Ma et al. 2024)."""
    size = jnp.mean(jnp.abs(w)) + 1e-8
    return jnp.clip(jnp.round(w / size), -1, 1), size


def ternary(w):
    signs, size = rounded(w)
    return w + jax.lax.stop_gradient(signs * size - w)


def norm(x, gain):
    return x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True) + EPSILON) * gain


def turned(x):
    """Columns i and i + dh/2 of a head turned by the angles of their places; x is batch, place, head, column."""
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * THETA ** (-jnp.arange(half) / half)
    cos, sin = jnp.cos(angles)[:, None], jnp.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half:]
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def beyond(x):
    return jnp.mean(jax.nn.relu(jnp.abs(x) - LIMIT) ** 2)


def attended(scores, causal, form):
    """The weights that scores give to the rows up to their own."""
    if form.attention == "sigmoid":
        return jax.nn.sigmoid(scores + BIAS) * causal
    return jax.nn.softmax(jnp.where(causal > 0, scores, -jnp.inf))


def forward(weights, ids, form):
    """Logits, the penalty, and the largest score and argument of a gate."""
    x = weights["embed_tokens"][ids]
    batch, places = ids.shape
    causal = jnp.tril(jnp.ones((places, places)))
    penalty, scores_most, gate_most = 0.0, 0.0, 0.0
    for i in range(LAYERS):
        of = lambda name: weights[f"layers.{i}.{name}"]
        map_ = lambda name: (ternary(of(name)) if form.ternary else of(name)).T
        sub_norm = lambda x, name: norm(x, of(name)) if form.sub_norms else x
        y = norm(x, of("input_layernorm"))
        q, k, v = ((y @ map_(f"self_attn.{n}_proj")).reshape(batch, places, HEADS, -1) for n in "qkv")
        scores = jnp.einsum("bqhc,bkhc->bhqk", turned(q), turned(k)) / math.sqrt(WIDTH // HEADS) * causal
        seen = jnp.einsum("bhqk,bkhc->bqhc", attended(scores, causal, form), v).reshape(batch, places, WIDTH)
        x = x + sub_norm(seen, "self_attn.attn_sub_norm") @ map_("self_attn.o_proj")
        y = norm(x, of("post_attention_layernorm"))
        gate = y @ map_("mlp.gate_proj")
        x = x + sub_norm(jax.nn.silu(gate) * (y @ map_("mlp.up_proj")), "mlp.ffn_sub_norm") @ map_("mlp.down_proj")
        penalty += beyond(scores) + beyond(gate)
        scores_most = jnp.maximum(scores_most, jnp.abs(scores).max())
        gate_most = jnp.maximum(gate_most, jnp.abs(gate).max())
    logits = norm(x, weights["norm"]) @ weights["embed_tokens"].T
    return logits, (penalty, scores_most, gate_most)


def losses(weights, batch, form):
    logits, seen = forward(weights, batch[:, :-1], form)
    likelihoods = jnp.take_along_axis(jax.nn.log_softmax(logits), batch[:, 1:, None], -1)
    return -likelihoods.mean(), seen


def objective(weights, batch, form):
    loss, seen = losses(weights, batch, form)
    return loss + PENALTY * seen[0], (loss, seen)


@functools.partial(jax.jit, static_argnames="form")
def step(weights, moments, batch, count, rate, form):
    """AdamW."""
    (_, (loss, seen)), slopes = jax.value_and_grad(objective, has_aux=True)(weights, batch, form)
    size = jnp.sqrt(sum(jnp.sum(g * g) for g in slopes.values()))
    slopes = {name: g * jnp.minimum(1.0, 1.0 / (size + 1e-6)) for name, g in slopes.items()}
    first = {name: 0.9 * moments[0][name] + 0.1 * g for name, g in slopes.items()}
    second = {name: 0.95 * moments[1][name] + 0.05 * g * g for name, g in slopes.items()}

    def moved(name, w):
        m, s = first[name] / (1 - 0.9**count), second[name] / (1 - 0.95**count)
        decay = DECAY if w.ndim > 1 else 0.0
        return w - rate * (m / (jnp.sqrt(s) + 1e-8) + decay * w)

    return {name: moved(name, w) for name, w in weights.items()}, (first, second), loss, seen


def train(tokens, asked, form):
    """At a rate that falls linearly to nothing with the minutes of processor time. Gives the weights and the number of steps."""
    weights, rng = begin(asked.seed, form), np.random.default_rng(asked.seed)
    zeros = {name: jnp.zeros_like(w) for name, w in weights.items()}
    moments, count = (zeros, zeros), 0
    start, began = time.process_time(), time.time()
    done = lambda: max(time.process_time() - start, (time.time() - began) / 2) / (60 * asked.minutes)
    while (part := max(done(), count / asked.steps)) < 1:
        starts = rng.integers(0, len(tokens) - PLACES - 1, BATCH)
        batch = np.stack([tokens[s : s + PLACES + 1] for s in starts])
        rate = RATE * min((count + 1) / WARM, 1.0) * (1 - part)
        weights, moments, loss, seen = step(weights, moments, batch, count + 1.0, rate, form)
        count += 1
        if count % 20 == 0:
            print(f"step {count}, {done():.0%}: loss {loss:.3f}, scores to {seen[1]:.1f}, gates to {seen[2]:.1f}", flush=True)
    return weights, count


def held_out(weights, tokens, most, form):
    """The perplexity, and the largest score and argument, over windows one after another."""
    count = min(len(tokens) - 1, most * PLACES) // PLACES
    evaluate = jax.jit(losses, static_argnames="form")
    total, extremes = 0.0, [0.0, 0.0]
    for i in range(count):
        loss, (_, *seen) = evaluate(weights, tokens[None, i * PLACES : i * PLACES + PLACES + 1], form)
        total += float(loss)
        extremes = [max(a, float(b)) for a, b in zip(extremes, seen)]
    return math.exp(total / count), extremes, count * PLACES


def bf16(x):
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def pack(signs):
    """Row i + b·rows/4 in bits 2b and 2b + 1 of row i, as `BitNetForCausalLM` is saved."""
    quarters = np.split((signs + 1).astype(np.uint8), 4)
    return sum(quarter << np.uint8(2 * b) for b, quarter in enumerate(quarters)).astype(np.uint8)


def stored(weights):
    """Tensors by name, and the weights as who reads them sees them."""
    tensors, exact = {}, {}
    back = lambda x: jnp.asarray((x.astype(np.uint32) << 16).view(np.float32))
    for name, w in weights.items():
        if name.endswith("_proj"):
            signs, size = (np.asarray(x) for x in rounded(w))
            scale = bf16(np.array([size]))
            tensors[f"model.{name}.weight"], tensors[f"model.{name}.weight_scale"] = pack(signs), scale
            exact[name] = jnp.asarray(signs) * back(scale)[0]
        else:
            tensors[f"model.{name}.weight"] = bf16(w)
            exact[name] = back(tensors[f"model.{name}.weight"])
    return tensors, exact


def save(path, tensors):
    header, data = {}, b""
    for name, x in sorted(tensors.items()):
        kind = "U8" if x.dtype == np.uint8 else "BF16"
        raw = x.tobytes()
        header[name] = {"dtype": kind, "shape": list(x.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def config(tokenizer):
    end = tokenizer.token_to_id(END)
    return {
        "architectures": ["BitNetForCausalLM"],
        "model_type": "bitnet",
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "max_position_embeddings": PLACES,
        "rope_theta": THETA,
        "rms_norm_eps": EPSILON,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": end,
        "eos_token_id": end,
        "sub_norms": False,
        "attention_weights": "sigmoid",
        "sigmoid_bias": BIAS,
        "quantization_config": {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline"},
    }


README = """\
# A small ternary decoder for encrypted runs

Trained by `scripts/make_decoder.py`. Its weights are under this repository's licence. It is here to show `fhe` on a
decoder that was trained for it, and for nothing else: it continues texts like those it has read, and knows nothing.
`calibration-fhe.json` is what `hushed calibrate --protocol fhe --input sample.txt --truncate` wrote, and
`functions.json`, for two parties, what `hushed calibrate --input sample.txt --truncate --declare` did. `held-out.txt`,
`sample.txt` and `items.jsonl` quote beginnings of its texts, which are under their own licences.

| | |
|---|---|
| text | {texts} chapters and pages, {bytes} bytes: the King James Bible (public domain), Python's documentation (PSF licence) and Rust's books (MIT or Apache-2.0), from {versions} and rustc {rustc} |
| SHA-256 of it | `{text}` |
| training | {steps} steps of {batch} windows of {places} tokens, {minutes:g} minutes of processor time, seed {seed} |
| held-out perplexity per token | {perplexity:.1f}, over {count} tokens of every {held}th text, with the weights as saved |
| largest \\|score\\| and \\|gate\\| there | {scores:.2f} and {gates:.2f} |

`SHA256SUMS` has the hashes of its files (`sha256sum -c SHA256SUMS`).

`items.jsonl` has 63 items of four endings for `hushed encrypt --choices`, 252 texts: a prompt of `held-out.txt`, how
the text goes on, and how three other texts do, as `scripts/make_choices.py` cut them. It is small, and most wrong
endings are about something else: it shows that choices under encryption are those in the clear, and measures no
ability.
"""


def main():
    parser = argparse.ArgumentParser(description=textwrap.dedent(__doc__), formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--texts", type=pathlib.Path, required=True, help="what fetch_texts.sh unpacked")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--steps", type=int, default=20_000, help="at most")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    texts = texts_in(asked.texts)
    kept, held = split(texts)
    tokenizer = tokenizer_of(kept)
    tokens, others = tokens_of(tokenizer, kept), tokens_of(tokenizer, held)
    print(f"{len(texts)} texts, {len(tokens)} tokens to train on, {len(others)} held out", flush=True)
    weights, steps = train(tokens, asked, Form())
    tensors, exact = stored(weights)
    # What is saved is ternary already: rounding it again by its mean size would be another model.
    perplexity, (scores, gates), count = held_out(exact, others, 400, Form(ternary=False))
    print(f"held-out perplexity {perplexity:.2f} over {count} tokens; scores to {scores:.2f}, gates to {gates:.2f}")

    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "config.json").write_text(json.dumps(config(tokenizer), indent=2) + "\n")
    tokenizer.save(str(asked.out / "tokenizer.json"), pretty=False)
    save(asked.out / "model.safetensors", tensors)
    for name, of in [("held-out.txt", held), ("sample.txt", kept[::SAMPLED])]:
        (asked.out / name).write_text("\n".join(lines_of(tokenizer, of)) + "\n")
    with (asked.out / "items.jsonl").open("w") as items:
        subprocess.run([sys.executable, ROOT / "scripts/make_choices.py", asked.out / "held-out.txt"], check=True, stdout=items)
    rustc = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    all_bytes = "\0".join(texts).encode()
    said = {"texts": len(texts), "rustc": rustc, "bytes": len(all_bytes), "text": digest(all_bytes), "steps": steps, "batch": BATCH}
    said |= {"places": PLACES, "minutes": asked.minutes, "seed": asked.seed, "perplexity": perplexity, "count": count, "held": HELD}
    versions = ", ".join(" ".join(line.split()) for line in sorted((asked.texts / "versions").read_text().splitlines()))
    said |= {"scores": scores, "gates": gates, "versions": versions}
    (asked.out / "README.md").write_text(README.format(**said))


def lines_of(tokenizer, texts):
    """Beginnings of the texts, a line each, of at most 120 tokens."""
    lines = (" ".join(text.split()) for text in texts)
    for line in lines:
        ids = tokenizer.encode(line).ids[:120]
        # A cut character is left out.
        yield tokenizer.decode(ids[: 40 + len(line) % 80]).replace("\ufffd", "").strip()


if __name__ == "__main__":
    main()
