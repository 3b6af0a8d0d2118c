#!/usr/bin/env python3
"""Writes tiny model folders of RoBERTa, XLM-RoBERTa and DistilBERT, and what the reference libraries compute with them.

    python3 -m venv DIR && DIR/bin/pip install torch==2.8.0 transformers==4.57.6 tokenizers==0.22.2 sentencepiece==0.2.3 \
        protobuf==7.36.2 safetensors==0.8.0 numpy==2.4.6
    DIR/bin/python scripts/tiny_folders.py OUT        (OUT is crates/hushed-model/tests/golden/tiny)

Each folder has random weights from a seed, stored as F16, and a tokenizer trained on data/*.txt and the texts below, in the form in which
the published folders of its architecture have it. `expected.json` has, for every text, the token ids and the answer in float64.
"""

import io
import json
import pathlib
import shutil
import sys
import tempfile

import sentencepiece
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEXTS = [
    "Hello world",
    "The weather is lovely today.",
    "Die Versicherung zahlt nur, wenn der Schaden innerhalb von drei Tagen gemeldet wird – größer, schöner, weißer!",
    "Zażółć gęślą jaźń: ubezpieczyciel płaci w ciągu trzech dni.",
    "fn main() {\n    let x: u64 = 1 << 20; // don't\n\tprintln!(\"{x:>8}\");\n}",
    "🙂 emoji 👩‍👩‍👧 and a flag 🇵🇱, then   three spaces  ",
    "ＦＵＬＬ width, a ligature: ﬁne… and cafe\u0301 next\u00a0to café\u200b.",
    "漢字 and кириллица and 한국어",
    " leading space",
    "a < b > c [x] {y} 3.14159 it's we'll they'd",
]
LAYERS, WIDTH, HEADS, HIDDEN, TOKENS = 2, 32, 4, 64, 64
VOCABULARY = 600


def corpus():
    lines = [line for file in sorted((ROOT / "data").glob("*.txt")) for line in file.read_text().splitlines()]
    return lines + TEXTS * 3


def byte_level():
    """RoBERTa's: BPE over the characters that stand for bytes, with special ids in fairseq's order."""
    tokenizer = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix=""))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    return transformers.RobertaTokenizerFast(tokenizer_object=tokenizer)


def charsmap():
    """A few rules of the NFKC that the published model carries, whose compiled form is 230 kB."""
    rules = {0xFF01 + i: chr(0x21 + i) for i in range(94)}
    rules |= {0xFB01: "fi", 0x2026: "...", 0xA0: " ", 0x3000: " ", 9: " ", 10: " ", 13: " ", 0x200B: " ", 1: "", 2: ""}
    lines = [f"{source:X}\t{' '.join(f'{ord(c):X}' for c in target)}" for source, target in rules.items()]
    accents = {"e\u0301": "é", "o\u0308": "ö", "a\u0328": "ą"}
    lines += [f"{ord(s[0]):X} {ord(s[1]):X}\t{ord(t):X}" for s, t in accents.items()]
    return "\n".join(lines) + "\n"


def unigram():
    """XLM-RoBERTa's: SentencePiece, turned into a fast tokenizer by the converter that published folders come from."""
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder) / "rules.tsv"
        rules.write_text(charsmap())
        model = pathlib.Path(folder) / "spm"
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus()),
            model_prefix=str(model),
            vocab_size=VOCABULARY - 2,
            model_type="unigram",
            normalization_rule_tsv=str(rules),
            character_coverage=0.9995,
            num_threads=1,
            minloglevel=2,
        )
        return transformers.XLMRobertaTokenizerFast(vocab_file=f"{model}.model")


def word_piece():
    """DistilBERT's, cased, as its multilingual models are."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
        continuing_subword_prefix="##",
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return transformers.DistilBertTokenizerFast(tokenizer_object=tokenizer, do_lower_case=False)


def like_bert(kind, tokenizer, **more):
    return kind(
        vocab_size=len(tokenizer),
        num_hidden_layers=LAYERS,
        hidden_size=WIDTH,
        num_attention_heads=HEADS,
        intermediate_size=HIDDEN,
        max_position_embeddings=TOKENS + 2,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        **more,
    )


def randomise(model, seed):
    """Weights of the ranges of trained encoders, the same for F16 and float64."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in sorted(model.named_parameters()):
            random = torch.randn(weights.shape, generator=generator)
            norm = name.endswith(("LayerNorm.weight", "layer_norm.weight"))
            spread = 0.1 if norm or weights.dim() == 1 or "embeddings" in name else 0.8 / weights.shape[-1] ** 0.5
            weights.copy_((random * spread + (0.9 if norm else 0.0)).half().float())
    return model.eval()


def write(folder, model, tokenizer, pooling, normalise):
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as saved:
        model.half().save_pretrained(saved)
        tokenizer.save_pretrained(saved)
        for name in ["config.json", "model.safetensors", "tokenizer.json"]:
            shutil.copy(pathlib.Path(saved) / name, folder / name)
    if pooling:
        chain = ["Transformer", "Pooling"] + ["Normalize"] * normalise
        paths = ["", "1_Pooling", "2_Normalize"]
        modules = [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, path) in enumerate(zip(chain, paths))
        ]
        put(folder / "modules.json", modules)
        put(folder / "sentence_bert_config.json", {"max_seq_length": TOKENS, "do_lower_case": False})
        (folder / "1_Pooling").mkdir()
        put(folder / "1_Pooling/config.json", {"word_embedding_dimension": WIDTH, f"pooling_mode_{pooling}": True})

    model.double()
    expected = []
    for text in TEXTS:
        ids = tokenizer(text, truncation=True, max_length=TOKENS)["input_ids"]
        with torch.no_grad():
            out = model(torch.tensor([ids]))
        if pooling is None:
            answer = out.logits[0]
        else:
            rows = out.last_hidden_state[0]
            answer = rows.mean(0) if pooling == "mean_tokens" else rows[0]
            answer = answer / answer.norm() if normalise else answer
        expected.append({"text": text, "ids": ids, "answer": answer.tolist()})
    put(folder / "expected.json", expected)


def put(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=None) + "\n")


def main():
    out = pathlib.Path(sys.argv[1])
    eager = {"attn_implementation": "eager"}
    t = transformers

    tokenizer = byte_level()
    config = like_bert(t.RobertaConfig, tokenizer, **eager)
    write(out / "roberta", randomise(t.RobertaModel(config, add_pooling_layer=False), 1), tokenizer, "mean_tokens", True)
    config = like_bert(t.RobertaConfig, tokenizer, id2label={0: "no", 1: "perhaps", 2: "yes"}, **eager)
    write(out / "roberta-classifier", randomise(t.RobertaForSequenceClassification(config), 2), tokenizer, None, False)

    tokenizer = unigram()
    config = like_bert(t.XLMRobertaConfig, tokenizer, **eager)
    write(out / "xlm-roberta", randomise(t.XLMRobertaModel(config, add_pooling_layer=False), 3), tokenizer, "cls_token", True)

    tokenizer = word_piece()
    config = t.DistilBertConfig(
        vocab_size=len(tokenizer),
        n_layers=LAYERS,
        dim=WIDTH,
        n_heads=HEADS,
        hidden_dim=HIDDEN,
        max_position_embeddings=TOKENS,
        **eager,
    )
    write(out / "distilbert", randomise(t.DistilBertModel(config), 4), tokenizer, "mean_tokens", False)


if __name__ == "__main__":
    main()
