#!/usr/bin/env python3
"""Trains a small GPT-2 (or LLaMA) on text that everybody may use: this repository's documents and Python's standard library.

    apt-get install python3-torch libopenblas0-pthread python3-venv         (Debian 12: torch 1.13, for processors)
    python3 -m venv --system-site-packages DIR
    DIR/bin/pip install 'numpy<2' transformers==4.46.3 safetensors
    DIR/bin/python scripts/make_models.py OUT            (OUT is data/gpt2-small; a quarter of an hour on two idle cores)

A byte-level BPE of 2,048 tokens, then 4 layers of 192 columns with 6 heads over 256 positions, with a tied head, saved by `save_pretrained`
as F16. `--model llama` has RMSNorm, RoPE, gated SiLU, 3 heads of keys and values and a head of its own, and is saved as BF16 in several
files. The text, the order of the windows and the first weights follow from the seed; sums of floating-point numbers depend on the
processor, so that another machine makes another model of the same quality. OUT/README.md says what was read and what came out.
"""

import argparse
import hashlib
import math
import os
import pathlib
import sys
import sysconfig
import textwrap
import time

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
END = "<|endoftext|>"
VOCABULARY, LAYERS, WIDTH, HEADS, POSITIONS = 2048, 4, 192, 6, 256
BATCH, RATE, WARM = 8, 2e-3, 40
# Every so many-th file is not trained on; the loss is measured on it.
HELD = 20


def documents():
    """This repository's documents, by name."""
    return sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md"))


def library():
    """Python's standard library without its tests, by name."""
    root = pathlib.Path(sysconfig.get_paths()["stdlib"])
    skip = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
    files = (path for path in root.rglob("*.py") if not skip & set(path.relative_to(root).parts))
    return sorted(path for path in files if not path.is_symlink() and path.stat().st_size < 1 << 18)


def texts(files):
    read = ((path, path.read_bytes()) for path in files)
    found = []
    for path, raw in read:
        try:
            found.append(raw.decode())
        except UnicodeDecodeError:
            print(f"left out, not UTF-8: {path}")
    return found


def split(all_texts):
    held = all_texts[HELD // 2 :: HELD]
    return [text for i, text in enumerate(all_texts) if i % HELD != HELD // 2], held


def digest(all_texts):
    return hashlib.sha256("\0".join(all_texts).encode()).hexdigest()


def tokenizer_of(train):
    """GPT-2's kind, with the parts that its published folder has."""
    tokenizer = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix=""))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(train, trainer)
    return transformers.GPT2TokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END, unk_token=END)


def tokens_of(tokenizer, all_texts):
    end = tokenizer.eos_token_id
    encoded = tokenizer.backend_tokenizer.encode_batch(all_texts)
    return torch.tensor([id for text in encoded for id in text.ids + [end]])


def config_of(tokenizer):
    return transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=POSITIONS,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        attn_implementation="eager",
    )


def llama_config(tokenizer):
    return transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=POSITIONS,
        hidden_size=WIDTH,
        intermediate_size=WIDTH * 8 // 3,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        tie_word_embeddings=False,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        attn_implementation="eager",
    )


MODELS = {
    "gpt2": lambda tokenizer: transformers.GPT2LMHeadModel(config_of(tokenizer)),
    "llama": lambda tokenizer: transformers.LlamaForCausalLM(llama_config(tokenizer)),
}


def windows(tokens, count, generator):
    starts = torch.randint(len(tokens) - POSITIONS, (count,), generator=generator)
    return torch.stack([tokens[start : start + POSITIONS] for start in starts])


def train(model, prose, code, asked):
    """AdamW at a constant rate, which falls linearly to nothing over the last fifth; an eighth of every batch are windows of the documents.
    Where the minutes are nearly over, the last fifth begins at once. Gives the number of steps."""
    generator = torch.Generator().manual_seed(asked.seed)
    decayed = [w for w in model.parameters() if w.dim() > 1]
    others = [w for w in model.parameters() if w.dim() <= 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95))
    start, steps, step = time.time(), asked.steps, 0
    while step < steps:
        if step < 0.8 * steps and time.time() - start > 0.8 * 60 * asked.minutes:
            steps = max(step * 5 // 4, step + 1)
        for group in optimiser.param_groups:
            group["lr"] = RATE * min((step + 1) / WARM, 1.0, 5 * (steps - step) / steps)
        batch = torch.cat([windows(prose, BATCH // 8, generator), windows(code, BATCH - BATCH // 8, generator)])
        loss = model(batch, labels=batch).loss
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        step += 1
        if step % 20 == 0 or step == steps:
            print(f"step {step} of {steps}: loss {loss.item():.3f}, {time.time() - start:.0f} s", flush=True)
    return steps


def loss_of(model, tokens):
    """Mean over the tokens of consecutive windows, nats a token."""
    rows = tokens[: len(tokens) // POSITIONS * POSITIONS].view(-1, POSITIONS)[:200]
    total = 0.0
    with torch.no_grad():
        for row in rows:
            total += model(row[None], labels=row[None]).loss.item()
    return total / len(rows)


def record(out, lines):
    files = sorted(path for path in out.iterdir() if path.name != "README.md")
    hashes = [f"| `{path.name}` | {path.stat().st_size} | `{hashlib.sha256(path.read_bytes()).hexdigest()}` |" for path in files]
    lines = [part for line in lines for part in textwrap.wrap(line, 120, subsequent_indent="  ", break_on_hyphens=False) or [""]]
    text = "\n".join(lines + ["", "| file | bytes | SHA-256 |", "|---|---|---|"] + hashes) + "\n"
    (out / "README.md").write_text(text)


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("out", type=pathlib.Path)
    ask.add_argument("--model", choices=sorted(MODELS), default="gpt2")
    ask.add_argument("--steps", type=int, default=1200)
    ask.add_argument("--minutes", type=float, default=15, help="fewer steps, where these would take longer")
    ask.add_argument("--seed", type=int, default=1)
    ask.add_argument("--threads", type=int, default=2)
    asked = ask.parse_args()
    os.nice(10)
    torch.set_num_threads(asked.threads)
    torch.manual_seed(asked.seed)

    (prose, held_prose), (code, held_code) = split(texts(documents())), split(texts(library()))
    tokenizer = tokenizer_of(prose * 8 + code)
    ids = {"prose": tokens_of(tokenizer, prose), "code": tokens_of(tokenizer, code)}
    held = {"prose": tokens_of(tokenizer, held_prose), "code": tokens_of(tokenizer, held_code)}
    print({name: len(tokens) for name, tokens in ids.items()}, {name: len(tokens) for name, tokens in held.items()})
    model = MODELS[asked.model](tokenizer)
    start = time.time()
    steps = train(model, ids["prose"], ids["code"], asked)
    minutes = (time.time() - start) / 60

    asked.out.mkdir(parents=True, exist_ok=True)
    if asked.model == "llama":
        model.bfloat16().save_pretrained(asked.out, max_shard_size="1MB")
    else:
        model.half().save_pretrained(asked.out)
    tokenizer.save_pretrained(asked.out)
    for name in ["vocab.json", "merges.txt", "special_tokens_map.json", "tokenizer_config.json", "generation_config.json"]:
        (asked.out / name).unlink(missing_ok=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(asked.out, torch_dtype=torch.float32).eval()
    losses = {name: loss_of(model, tokens) for name, tokens in held.items()}
    version = ".".join(map(str, sys.version_info[:3]))
    record(
        asked.out,
        [
            f"# A small {'LLaMA' if asked.model == 'llama' else 'GPT-2'}",
            "",
            "Made by `scripts/make_models.py` for demonstrations and tests: it shows how private generation works, and knows nothing.",
            "",
            f"* {LAYERS} layers × {WIDTH}, {HEADS} heads, {POSITIONS} positions, {VOCABULARY} tokens (byte-level BPE),"
            f" {'own' if asked.model == 'llama' else 'tied'} head; {sum(w.numel() for w in model.parameters())} parameters,"
            f" {'BF16' if asked.model == 'llama' else 'F16'}.",
            f"* Text: {len(prose)} documents of this repository (its licence), SHA-256 `{digest(prose)}`,"
            f" and {len(code)} files of the standard library of Python {version} (PSF-2.0), SHA-256 `{digest(code)}`"
            " (of the texts in the order of their paths, with a zero byte between two).",
            f"* Seed {asked.seed}, {steps} steps of {BATCH} windows of {POSITIONS} tokens, {minutes:.0f} minutes on"
            f" {asked.threads} thread(s); torch {torch.__version__}, transformers {transformers.__version__}.",
            f"* Loss on held-out files, nats a token: {losses['prose']:.3f} (documents), {losses['code']:.3f} (library);"
            f" ln {VOCABULARY} = {math.log(VOCABULARY):.3f}.",
        ],
    )
    print(f"held-out loss {losses}, {minutes:.1f} minutes")


if __name__ == "__main__":
    main()
