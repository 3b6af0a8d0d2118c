#!/usr/bin/env python3
"""Writes tiny model folders of decoders like LLaMA, and what `transformers` computes with them.

    (the environment of scripts/make_models.py)
    DIR/bin/python scripts/tiny_llamas.py OUT        (OUT is crates/hushed-model/tests/golden/tiny)

`llama` has four heads that share two of keys and values, a head of its own, no biases, F16, and a tokenizer as LLaMA 2's: BPE over pieces,
bytes for what is unknown. `llama-tied` has one head of keys and values, a tied head, biases, BF16, and a tokenizer as LLaMA 3's: BPE over
bytes. Both put a token before a text. The weights are random from a seed. `expected.json` has, for every text, its token ids and the logits
of its last row in float64; a text that is continued; texts of ids; and for every file of data/ a hash of the token ids of its lines.
"""

import json
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tiny_decoders import LLAMA3, TEXTS, data, hashes

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def lines():
    return [line for lines in data().values() for line in lines] + TEXTS * 3


def begins(tokenizer, first, before=()):
    """Puts a token before a text, as both families do."""
    template = processors.TemplateProcessing(single=f"{first} $A", pair=f"{first} $A {first} $B", special_tokens=[(first, tokenizer.token_to_id(first))])
    tokenizer.post_processor = processors.Sequence([*before, template]) if before else template
    return tokenizer


def pieces(vocabulary):
    """As LLaMA 2's `tokenizer.json`."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first")
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - len(BYTES), special_tokens=["<unk>", "<s>", "</s>"], limit_alphabet=48, show_progress=False
    )
    trained.train_from_iterator(lines(), trainer)
    model = json.loads(trained.to_str())["model"]
    listed = sorted(model["vocab"], key=model["vocab"].get)
    listed = listed[:3] + BYTES + listed[3:]
    merges = [tuple(pair) if isinstance(pair, list) else tuple(pair.split(" ")) for pair in model["merges"]]
    vocab = {token: id for id, token in enumerate(listed)}
    tokenizer = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return begins(tokenizer, "<s>"), "<s>", "</s>"


def over_bytes(vocabulary):
    """As LLaMA 3's `tokenizer.json`: special tokens come after the vocabulary."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    split = pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated", invert=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - 2, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(lines(), trainer)
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    level = processors.ByteLevel(trim_offsets=False)
    return begins(tokenizer, "<|begin_of_text|>", [level]), "<|begin_of_text|>", "<|end_of_text|>"


def randomise(model, seed, kind):
    """Weights of the ranges of trained decoders, the same for the stored numbers and float64."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in sorted(model.named_parameters()):
            numbers = torch.randn(weights.shape, generator=generator)
            norm = "norm" in name
            table = "embed_tokens" in name or "lm_head" in name
            spread = 0.1 if weights.dim() == 1 or table else 1.2 / weights.shape[1] ** 0.5
            weights.copy_((numbers * spread + (0.9 if norm else 0.0)).to(kind).float())
    return model.eval()


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0, -1]


def rounded(numbers):
    return [float(f"{x:.8g}") for x in numbers.tolist()]


def write(folder, tokenizer, kind, seed, shape, texts):
    tokenizer, first, last = tokenizer
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=first, eos_token=last)
    config = transformers.LlamaConfig(
        vocab_size=len(wrapped),
        bos_token_id=wrapped.bos_token_id,
        eos_token_id=wrapped.eos_token_id,
        attn_implementation="eager",
        **shape,
    )
    model = randomise(transformers.LlamaForCausalLM(config), seed, kind)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as saved:
        model.to(kind).save_pretrained(saved)
        tokenizer.save(f"{saved}/tokenizer.json", pretty=False)
        for name in ["config.json", "tokenizer.json", "model.safetensors"]:
            shutil.copy(f"{saved}/{name}", folder / name)

    # Read again: `to` has rounded the angles, which are no weights.
    model = transformers.LlamaForCausalLM.from_pretrained(folder, torch_dtype=torch.float32, attn_implementation="eager").double().eval()
    expected = {"texts": [], "lines": hashes(tokenizer), "decoded": []}
    for text in texts:
        ids = tokenizer.encode(text).ids
        expected["texts"].append({"text": text, "ids": ids, "answer": rounded(logits_of(model, ids))})
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        expected["decoded"].append({"ids": ids, "text": tokenizer.decode(ids)})
    ids = tokenizer.encode(texts[0]).ids
    made = []
    while len(made) < 12:
        made.append(logits_of(model, ids + made).argmax().item())
    expected["continued"] = made
    (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False) + "\n")


def main():
    torch.set_num_threads(1)
    out = pathlib.Path(sys.argv[1])
    shape = {"hidden_size": 32, "intermediate_size": 72, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    shape |= {"max_position_embeddings": 160, "rms_norm_eps": 1e-5}
    write(out / "llama", pieces(384), torch.float16, 3, shape, [TEXTS[0], TEXTS[2], TEXTS[6]])
    shape = {"hidden_size": 16, "intermediate_size": 40, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 1}
    shape |= {"max_position_embeddings": 96, "rope_theta": 500000.0, "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True}
    write(out / "llama-tied", over_bytes(320), torch.bfloat16, 4, shape, [TEXTS[1], TEXTS[3]])


if __name__ == "__main__":
    main()
