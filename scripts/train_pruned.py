#!/usr/bin/env python3
"""What it costs to leave out GELU: one small GPT-2 trained three ways on the same text, steps and seed, as Table II of the Orion kernels
paper (arXiv 2512.11135) has it: with GELU, with both maps of every feed-forward and nothing between them, and with one map instead.

    DIR/bin/python scripts/train_pruned.py [--steps N] [--seed S]...     (DIR as in scripts/make_models.py; half an hour on two cores)

Prints a line of JSON for each: the loss on held-out files in nats a token, its exponential (the perplexity), and parameters. Nothing is
written. `hushed prune` does the same to a trained model without training it again.
"""

import argparse
import json
import math
import os
import time

import torch
import transformers
from transformers.pytorch_utils import Conv1D

import make_models as small


class Merged(torch.nn.Module):
    """One map for both."""

    def __init__(self, config):
        super().__init__()
        self.map = Conv1D(config.n_embd, config.n_embd)
        # As GPT-2 begins the maps that add to its residual stream.
        torch.nn.init.normal_(self.map.weight, std=config.initializer_range / math.sqrt(2 * config.n_layer))

    def forward(self, x):
        return self.map(x)


FORMS = {
    "gelu": lambda block, config: None,
    "no activation": lambda block, config: setattr(block.mlp, "act", torch.nn.Identity()),
    "merged": lambda block, config: setattr(block, "mlp", Merged(config)),
}


def main():
    ask = argparse.ArgumentParser()
    ask.add_argument("--steps", type=int, default=600)
    ask.add_argument("--seed", type=int, action="append", help="several are several runs each (1)")
    ask.add_argument("--threads", type=int, default=2)
    asked = ask.parse_args()
    asked.minutes = math.inf
    os.nice(10)
    torch.set_num_threads(asked.threads)
    (prose, held_prose), (code, held_code) = small.split(small.texts(small.documents())), small.split(small.texts(small.library()))
    tokenizer = small.tokenizer_of(prose * 8 + code)
    held = {"documents": small.tokens_of(tokenizer, held_prose), "library": small.tokens_of(tokenizer, held_code)}
    prose, code = small.tokens_of(tokenizer, prose), small.tokens_of(tokenizer, code)
    for seed in asked.seed or [1]:
        for form, change in FORMS.items():
            torch.manual_seed(seed)
            config = small.config_of(tokenizer)
            model = transformers.GPT2LMHeadModel(config)
            for block in model.transformer.h:
                change(block, config)
            start, asked.seed = time.time(), seed
            steps = small.train(model, prose, code, asked)
            losses = {name: small.loss_of(model.eval(), tokens) for name, tokens in held.items()}
            row = {
                "form": form,
                "seed": seed,
                "steps": steps,
                "parameters": sum(w.numel() for w in model.parameters()),
                "loss": losses,
                "perplexity": {name: math.exp(loss) for name, loss in losses.items()},
                "seconds": round(time.time() - start),
            }
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
