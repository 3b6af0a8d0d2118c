#!/usr/bin/env python3
"""Writes tiny folders of sentence encoders with rotary or relative positions, and what `sentence-transformers` computes with them.

    python3 -m venv DIR && DIR/bin/pip install torch==2.15.0 transformers==5.24.0 sentence-transformers==6.2.0
    DIR/bin/python scripts/tiny_embedders.py OUT [NAME...]    (OUT is crates/hushed-model/tests/golden/tiny)

`qwen3-embedding` pools the last token, which the tokenizer's template appends; `modernbert` has windows shorter than its texts;
`mpnet` has texts with every distance up to 39. `clip-text`, which is made only if it is named, is without
`sentence-transformers`. Weights are random from a seed and stored as F16.
`expected.json` has, for every text, the token ids and the embedding in float64; only the angles of rotary positions are in float32 there.
"""

import json
import pathlib
import sys

import torch
import transformers as t
from sentence_transformers import SentenceTransformer
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from tiny_variants import make, randomise, save

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXTS = [
    "Hello world",
    "The weather is lovely today.",
    "Zażółć gęślą jaźń: ubezpieczyciel płaci w ciągu trzech dni.",
    "fn main() {\n    let x: u64 = 1 << 20; // don't\n\tprintln!(\"{x:>8}\");\n}",
    "🙂 emoji and a flag 🇵🇱, then   three spaces!  ",
    "x",
    "a < b > c [x] {y} 3.14159 it's we'll they'd, and so on: 1 2 3 4 5 6 7 8 9 10",
]
VOCABULARY, WIDTH = 500, 32
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
MODERN_IDS = {"bos_token_id": 429, "cls_token_id": 429, "eos_token_id": 430, "sep_token_id": 430, "pad_token_id": 431}
SIZES = {"hidden_size": WIDTH, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def corpus():
    return [line for file in sorted((ROOT / "data").glob("*.txt")) for line in file.read_text().splitlines()] + TEXTS * 3


def qwen():
    """Byte-level BPE whose special tokens are outside its vocabulary; the template ends a text."""
    tokenizer = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix=""))
    split = pre_tokenizers.Split(Regex(QWEN), behavior="isolated", invert=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY - 2, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>"])
    end = tokenizer.token_to_id("<|endoftext|>")
    template = processors.TemplateProcessing("$A <|endoftext|>", "$A $B <|endoftext|>", special_tokens=[("<|endoftext|>", end)])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer, {"pad_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}


def modern():
    """Byte-level BPE with BERT's names for its special tokens, which are outside its vocabulary."""
    tokenizer = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix=""))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY - len(specials), initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.add_special_tokens(specials)
    around = [(token, tokenizer.token_to_id(token)) for token in ["[CLS]", "[SEP]"]]
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", special_tokens=around)
    return tokenizer, {f"{name}_token": token for name, token in zip(["unk", "cls", "sep", "pad", "mask"], specials)}


def word_piece():
    """MPNet's: WordPiece with RoBERTa's special tokens."""
    specials = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=VOCABULARY, special_tokens=specials, continuing_subword_prefix="##", show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    return tokenizer, {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "[UNK]", "mask_token": "<mask>"}


def clip():
    """CLIP's: byte-level BPE in which the last token of a word has an end of its own, also each of the bytes."""
    around = ["<|startoftext|>", "<|endoftext|>"]
    split = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"

    def parts(tokenizer):
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
        words = pre_tokenizers.Split(Regex(split), behavior="removed", invert=True)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(add_prefix_space=False)])
        tokenizer.decoder = decoders.ByteLevel()
        return tokenizer

    trained = parts(Tokenizer(models.BPE(end_of_word_suffix="</w>")))
    bytes_ = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=bytes_, end_of_word_suffix="</w>", show_progress=False)
    trained.train_from_iterator(corpus(), trainer)
    merges = [tuple(merge) if isinstance(merge, list) else tuple(merge.split(" ")) for merge in json.loads(trained.to_str())["model"]["merges"]]
    tokens = [*bytes_, *(byte + "</w>" for byte in bytes_)]
    tokens += sorted({"".join(merge) for merge in merges} - set(tokens)) + around
    ids = {token: id for id, token in enumerate(tokens)}
    model = models.BPE(vocab=ids, merges=merges, end_of_word_suffix="</w>", continuing_subword_prefix="", unk_token="<|endoftext|>")
    tokenizer = parts(Tokenizer(model))
    tokenizer.add_special_tokens(around)
    tokenizer.post_processor = processors.RobertaProcessing((around[1], ids[around[1]]), (around[0], ids[around[0]]), False, False)
    return tokenizer


def write_clip(folder, seed):
    """The tower of CLIP that reads texts, with its linear map."""
    tokenizer = clip()
    size = tokenizer.get_vocab_size()
    fields = {"projection_dim": 24, "max_position_embeddings": 77, "bos_token_id": size - 2, "eos_token_id": size - 1, "pad_token_id": 1}
    kind = t.CLIPTextModelWithProjection
    model = randomise(kind(t.CLIPTextConfig(vocab_size=size, attn_implementation="eager", **SIZES | fields)), seed)
    save(folder, model)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").double().eval()
    expected = []
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        with torch.no_grad():
            answer = model(torch.tensor([ids])).text_embeds[0]
        expected.append({"text": text, "ids": ids, "answer": [float(f"{x:.10g}") for x in answer.tolist()]})
    put(folder / "expected.json", expected)


def put(path, value):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False) + "\n")


def write(folder, seed, kind, config, tokenizer, pooling, fields):
    tokenizer, specials = tokenizer()
    model = randomise(kind(config(vocab_size=VOCABULARY, attn_implementation="eager", **SIZES | fields)), seed)
    save(folder, model)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    put(folder / "tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64, "padding_side": "left", **specials})
    chain = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    put(folder / "modules.json", [{"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{k}"} for i, (p, k) in enumerate(chain)])
    put(folder / "1_Pooling/config.json", {"word_embedding_dimension": WIDTH, f"pooling_mode_{pooling}": True, "include_prompt": True})
    put(folder / "config_sentence_transformers.json", {"prompts": {"query": "Query: ", "document": ""}, "similarity_fn_name": "cosine"})

    encoder = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32, "attn_implementation": "eager"}).double()
    expected = []
    for text in TEXTS:
        ids = encoder.tokenizer(text)["input_ids"]
        answer = encoder.encode(text, convert_to_tensor=True)
        expected.append({"text": text, "ids": ids, "answer": [float(f"{x:.10g}") for x in answer.tolist()]})
    put(folder / "expected.json", expected)


FOLDERS = {
    "qwen3-embedding": (
        t.Qwen3ForCausalLM,
        t.Qwen3Config,
        qwen,
        "lasttoken",
        {"head_dim": 12, "num_key_value_heads": 2, "max_position_embeddings": 128, "tie_word_embeddings": True, "rope_theta": 1e6},
    ),
    "modernbert": (
        t.ModernBertModel,
        t.ModernBertConfig,
        modern,
        "mean_tokens",
        {"max_position_embeddings": 128, "local_attention": 10, "global_attn_every_n_layers": 3, "num_hidden_layers": 4} | MODERN_IDS,
    ),
    "mpnet": (
        t.MPNetModel,
        t.MPNetConfig,
        word_piece,
        "mean_tokens",
        {"max_position_embeddings": 66},
    ),
}


if __name__ == "__main__":
    if sys.argv[2:] == ["clip-text"]:
        write_clip(pathlib.Path(sys.argv[1]) / "clip-text", 5)
    else:
        make(FOLDERS, write)
