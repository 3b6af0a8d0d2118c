#!/usr/bin/env python3
"""Writes tiny model folders of GPT-2, and what `transformers` computes with them.

    (the environment of scripts/make_models.py)
    DIR/bin/python scripts/tiny_decoders.py OUT        (OUT is crates/hushed-model/tests/golden/tiny)
    DIR/bin/python scripts/tiny_decoders.py --trained FOLDER OUT        (OUT is crates/hushed-model/tests/golden)

`gpt2` is F16 in one file with a tied head; `gpt2-sharded` is BF16 in several files with a head of its own. The weights are random from a
seed. `expected.json` has, for every text, its token ids and the logits of its last row in float64; texts of random ids; and for every file
of data/ a hash of the token ids of its lines, also with the patterns that LLaMA 3 and Qwen 2 split by.

With --trained: what a model of scripts/make_models.py continues a few texts by, and the logits that it begins with.
"""

import json
import pathlib
import random
import shutil
import sys
import tempfile

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
END = "<|endoftext|>"
TEXTS = [
    "Hello world",
    "The weather is lovely today.",
    "Zażółć gęślą jaźń: ubezpieczyciel płaci w ciągu trzech dni.",
    "fn main() {\n    let x: u64 = 1 << 20; // don't\n\tprintln!(\"{x:>8}\");\n}",
    "🙂 emoji 👩‍👩‍👧 and a flag 🇵🇱, then   three spaces  ",
    "漢字 and кириллица and 한국어",
    " leading space, it's we'll THEY'D 12345 3.14",
    "x",
]
LAYERS, WIDTH, HEADS, POSITIONS, VOCABULARY = 2, 32, 4, 160, 400
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PATTERNS = {"llama3": LLAMA3, "qwen2": LLAMA3.replace("{1,3}", "")}


def data():
    """Lines of the files in data/, by name."""
    return {file.name: file.read_text().split("\n") for file in sorted((ROOT / "data").glob("*.txt"))}


def fnv1a(text):
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return f"{state:016x}"


def hashes(tokenizer):
    """By file: a hash of its text, and one of its token ids, line by line."""
    found = {}
    for name, lines in data().items():
        ids = [" ".join(map(str, tokenizer.encode(line, add_special_tokens=False).ids)) for line in lines]
        found[name] = {"text": fnv1a("\n".join(lines)), "ids": fnv1a("\n".join(ids))}
    return found


def tokenizer_of():
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
    tokenizer.train_from_iterator([line for lines in data().values() for line in lines] + TEXTS * 3, trainer)
    return tokenizer


def randomise(model, seed, kind):
    """Weights of the ranges of trained decoders, the same for the stored numbers and float64."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in sorted(model.named_parameters()):
            numbers = torch.randn(weights.shape, generator=generator)
            norm = name.endswith(("ln_1.weight", "ln_2.weight", "ln_f.weight"))
            table = "wte" in name or "wpe" in name or "lm_head" in name
            spread = 0.1 if norm or weights.dim() == 1 or table else 0.8 / weights.shape[0] ** 0.5
            weights.copy_((numbers * spread + (0.9 if norm else 0.0)).to(kind).float())
    return model.eval()


def write(folder, tokenizer, tied, kind, shard, seed):
    wrapped = transformers.GPT2TokenizerFast(tokenizer_object=tokenizer, bos_token=END, eos_token=END, unk_token=END)
    config = transformers.GPT2Config(
        vocab_size=len(wrapped),
        n_positions=POSITIONS,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        n_inner=None if tied else 96,
        bos_token_id=wrapped.bos_token_id,
        eos_token_id=wrapped.eos_token_id,
        tie_word_embeddings=tied,
        attn_implementation="eager",
    )
    model = randomise(transformers.GPT2LMHeadModel(config), seed, kind)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as saved:
        model.to(kind).save_pretrained(saved, max_shard_size=shard)
        wrapped.save_pretrained(saved)
        for path in sorted(pathlib.Path(saved).iterdir()):
            if path.name in ["config.json", "tokenizer.json"] or "safetensors" in path.name:
                shutil.copy(path, folder / path.name)

    model.double()
    expected = {"texts": [], "decoded": [], "lines": {"gpt2": hashes(tokenizer)}}
    for text in TEXTS:
        ids = wrapped(text)["input_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1]
        expected["texts"].append({"text": text, "ids": ids, "answer": [float(f"{x:.10g}") for x in logits.tolist()]})
    generator = random.Random(seed)
    for _ in range(40):
        ids = [generator.randrange(len(wrapped)) for _ in range(12)]
        text = wrapped.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        expected["decoded"].append({"ids": ids, "text": text})
    for name, pattern in PATTERNS.items():
        split = pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False)
        other = Tokenizer.from_str(tokenizer.to_str())
        other.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        expected["lines"][name] = hashes(other)
    (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")


def model_logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0, -1]


def trained(folder, out):
    tokenizer = transformers.GPT2TokenizerFast.from_pretrained(folder)
    model = transformers.GPT2LMHeadModel.from_pretrained(folder, torch_dtype=torch.float64, attn_implementation="eager").eval()
    expected = {"lines": hashes(tokenizer.backend_tokenizer), "texts": []}
    for text in ["The server learns", "def main(", "    if not isinstance(", "A private run of a model"]:
        ids = tokenizer(text)["input_ids"]
        logits, made = model_logits(model, ids), []
        # By hand: `generate` of this transformers does not load with Debian's torch.
        while len(made) < 24:
            made.append(model_logits(model, ids + made).argmax().item())
        answer = [float(f"{x:.10g}") for x in logits.tolist()]
        expected["texts"].append({"text": text, "ids": ids, "continued": made, "answer": answer})
    (out / f"{folder.name}.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")


def main():
    torch.set_num_threads(1)
    if sys.argv[1] == "--trained":
        return trained(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
    out = pathlib.Path(sys.argv[1])
    tokenizer = tokenizer_of()
    write(out / "gpt2", tokenizer, True, torch.float16, "5GB", 1)
    write(out / "gpt2-sharded", tokenizer, False, torch.bfloat16, "40KB", 2)


if __name__ == "__main__":
    main()
