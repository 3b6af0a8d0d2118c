#!/usr/bin/env python3
"""Writes tiny folders of many architectures, and what `transformers` computes with them.

    (the environment of scripts/tiny_folders.py, with transformers 4.57.6; that of scripts/tiny_embedders.py makes those of version 5)
    DIR/bin/python scripts/tiny_variants.py OUT [NAME...]    (OUT is crates/hushed-model/tests/golden/variants)

A folder has the `config.json` and weights that `save_pretrained` writes, random from a seed and stored as F16, and `expected.json`: for two lists
of ids the logits of the last row, the mean row of an encoder, or the logits of a classifier, in float64. It has no tokenizer: a test adds that of
a folder of tests/golden/tiny.
"""

import json
import math
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers as t

DECODER = {"vocab_size": 320, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
DECODER |= {"max_position_embeddings": 128, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": None, "tie_word_embeddings": False}
TIED = DECODER | {"tie_word_embeddings": True}
ENCODER = {"vocab_size": 640, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
SCALING = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}
LABELS = {0: "no", 1: "perhaps", 2: "yes"}

FOLDERS = {
    "llama-scaled": (t.LlamaForCausalLM, t.LlamaConfig, TIED | {"rope_scaling": SCALING, "rope_theta": 5e5, "eos_token_id": [1, 2], "max_position_embeddings": 131072}),
    "llama-linear": (t.LlamaForCausalLM, t.LlamaConfig, DECODER | {"head_dim": 10, "rope_scaling": {"rope_type": "linear", "factor": 4.0}}),
    "mistral": (t.MistralForCausalLM, t.MistralConfig, DECODER | {"head_dim": 8, "sliding_window": 40}),
    "qwen2": (t.Qwen2ForCausalLM, t.Qwen2Config, TIED | {"rope_theta": 1e6}),
    "qwen3": (t.Qwen3ForCausalLM, t.Qwen3Config, TIED | {"head_dim": 8, "rope_theta": 1e6}),
    "phi3": (t.Phi3ForCausalLM, t.Phi3Config, DECODER | {"head_dim": 8, "partial_rotary_factor": 0.5, "sliding_window": None, "pad_token_id": 2}),
    "gemma": (t.GemmaForCausalLM, t.GemmaConfig, TIED | {"head_dim": 8}),
    "gemma3": (t.Gemma3ForCausalLM, t.Gemma3TextConfig, TIED | {"head_dim": 8, "query_pre_attn_scalar": 12, "sliding_window": 48, "layer_types": ["sliding_attention", "full_attention"]}),
    "granite": (t.GraniteForCausalLM, t.GraniteConfig, TIED | {"embedding_multiplier": 12.0, "residual_multiplier": 0.22, "attention_multiplier": 0.3, "logits_scaling": 8.0}),
    "olmo2": (t.Olmo2ForCausalLM, t.Olmo2Config, DECODER),
    "smollm3": (t.SmolLM3ForCausalLM, t.SmolLM3Config, TIED | {"no_rope_layer_interval": 2}),
    "camembert": (t.CamembertModel, t.CamembertConfig, ENCODER | {"type_vocab_size": 1, "pad_token_id": 1, "max_position_embeddings": 66}),
    "electra": (t.ElectraModel, t.ElectraConfig, ENCODER | {"embedding_size": 8}),
    "electra-classifier": (t.ElectraForSequenceClassification, t.ElectraConfig, ENCODER | {"embedding_size": 16, "id2label": LABELS}),
    "albert": (t.AlbertModel, t.AlbertConfig, ENCODER | {"embedding_size": 8, "hidden_act": "gelu_new"}),
    "distilbert-classifier": (
        t.DistilBertForSequenceClassification,
        t.DistilBertConfig,
        {"vocab_size": 640, "dim": 16, "hidden_dim": 24, "n_layers": 2, "n_heads": 4, "max_position_embeddings": 64, "id2label": LABELS},
    ),
}

# What version 5 writes in another form, or has alone.
if t.__version__.startswith("5"):
    FOLDERS = {
        "gemma3-apart": (t.Gemma3ForCausalLM, t.Gemma3TextConfig, FOLDERS["gemma3"][2]),
        "nomic": (t.NomicBertModel, t.NomicBertConfig, ENCODER | {"type_vocab_size": 2}),
    }


def randomise(model, seed):
    """Weights of the ranges of trained models, the same for F16 and float64."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in sorted(model.named_parameters()):
            numbers = torch.randn(weights.shape, generator=generator)
            gain = "norm" in name.lower() and name.endswith("weight")
            # Gemma stores gains less one.
            middle = 0.9 if gain and "Gemma" not in type(model).__name__ else 0.0
            spread = 0.1 if weights.dim() == 1 else 0.3 if "embed" in name else 1.2 / math.sqrt(weights.shape[-1])
            weights.copy_((numbers * spread + middle).half().float())
    return model.eval()


def save(folder, model):
    """A folder anew, with the model in F16."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as saved:
        model.half().save_pretrained(saved)
        for name in ["config.json", "model.safetensors"]:
            shutil.copy(f"{saved}/{name}", folder / name)


def answer(model, ids):
    with torch.no_grad():
        out = model(torch.tensor([ids]))
    if not hasattr(out, "logits"):
        return out.last_hidden_state[0].mean(0)
    return out.logits[0] if out.logits.dim() == 2 else out.logits[0, -1]


def write(folder, seed, kind, config, fields):
    model = randomise(kind(config(attn_implementation="eager", **fields)), seed)
    save(folder, model)
    # Read again: `half` has rounded the angles, which are no weights.
    model = kind.from_pretrained(folder, torch_dtype=torch.float32, attn_implementation="eager").double().eval()
    expected = []
    for length in (5, 37):
        ids = [(i * i * 7 + 11 * i + seed) % fields["vocab_size"] for i in range(length)]
        expected.append({"ids": ids, "answer": [float(f"{x:.8g}") for x in answer(model, ids).tolist()]})
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


def make(folders, write):
    """Writes those of the folders that the command line names after the place where they go, or all."""
    torch.set_num_threads(1)
    out, wanted = pathlib.Path(sys.argv[1]), sys.argv[2:]
    for seed, (name, parts) in enumerate(folders.items()):
        if not wanted or name in wanted:
            write(out / name, seed, *parts)


if __name__ == "__main__":
    make(FOLDERS, write)
