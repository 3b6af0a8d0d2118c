//! The normalisers and splitters that a `tokenizer.json` may name: all that the library writes for published models,
//! each with a bound on its work.
//!
//! A file supplies no programs: a regular expression must be one of a list of published ones. No part may lengthen a
//! text much, alone or together with others. Within these bounds the library runs the file as it is, so that its ids
//! are the library's.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use serde_json::Value;

use super::charsmap;

/// What may normalise a text.
pub(super) const NORMALISERS: &str = "null, BertNormalizer, NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Nmt, \
     Prepend or Replace of short texts, ByteLevel and Precompiled (once each), or a Sequence of at most 8 of these";
/// What may split it.
pub(super) const SPLITTERS: &str = "null, BertPreTokenizer, ByteLevel (once), CharDelimiterSplit, Digits, Metaspace \
     with \"▁\", Punctuation, Split by a text or by a published regular expression, UnicodeScripts, Whitespace, \
     WhitespaceSplit, or a Sequence of at most 8 of these";

/// The most parts in a sequence.
const MAX_PARTS: usize = 8;
/// The longest text that a part looks for or puts in, in bytes.
const MAX_TEXT: usize = 64;
/// How many times longer all replacements together may make a text: "▁" has three bytes, and replaces a space.
const MAX_GROWTH: usize = 16;
/// Stands for a space in SentencePiece's pieces.
pub(super) const SPACE: &str = "▁";

/// The patterns of published normalisers: several spaces, or other white space, become one.
const REPLACED: [&str; 2] = [" {2,}", r"\s+"];
/// The patterns by which published models split texts, with their first users. Others are refused: a pattern is a
/// program that a stranger could supply. Those with `(?!\S)` run by backtracking, which goes back one character there.
const PATTERNS: [&str; 13] = [
    // GPT-2, RoBERTa.
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    // GPT-4, LLaMA 3, OLMo 2.
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    // Qwen 2 and 3.
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    // The same, as some converters write it.
    r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    // GPT-4o, gpt-oss, Phi-4.
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    // Mistral's Tekken: the same with single digits and no contractions.
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    // DeepSeek V3: three splits in a row.
    r"\p{N}{1,3}",
    "[一-龥\u{3040}-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    // CLIP, and the same since version 5 of `transformers`.
    r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+",
    // Falcon, StarCoder and others.
    "[0-9][0-9][0-9]",
    r"\s+",
];

/// What the parts do to a text, as far as a model depends on it.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Effect {
    /// Its bytes become characters of their own.
    pub bytes: bool,
    /// Its spaces become [`SPACE`].
    pub marks_spaces: bool,
}

/// The type that a part names.
pub(super) fn part_type(part: Option<&Value>) -> Option<&str> {
    part?.get("type")?.as_str()
}

/// The members of a `Sequence`, or the part itself.
pub(super) fn chain<'a>(part: Option<&'a Value>, members: &str) -> impl Iterator<Item = &'a Value> {
    let listed = match part_type(part) {
        Some("Sequence") => part.and_then(|p| p.get(members)?.as_array()),
        _ => None,
    };
    let alone = part.filter(|p| !p.is_null() && part_type(part) != Some("Sequence"));
    listed.into_iter().flatten().chain(alone)
}

/// Whether a part is the `Replace` of the text `from` by `to`.
pub(super) fn replaces(part: &Value, from: &str, to: &str) -> bool {
    let pattern = part.get("pattern").and_then(|p| p.get("String")?.as_str());
    part_type(Some(part)) == Some("Replace")
        && pattern == Some(from)
        && part.get("content").and_then(Value::as_str) == Some(to)
}

/// What the normaliser does; `None` if a part of it is not allowed.
pub(super) fn normaliser(part: Option<&Value>) -> Option<Effect> {
    let parts: Vec<&Value> = chain(part, "normalizers").collect();
    let growth = parts.iter().try_fold(1usize, |all, part| all.checked_mul(growth(part)?));
    // Each of these lengthens a text by a bounded factor; a second one would multiply it.
    let sound =
        parts.len() <= MAX_PARTS && growth? <= MAX_GROWTH && once(&parts, "Precompiled") && once(&parts, "ByteLevel");
    sound.then(|| Effect {
        bytes: parts.iter().any(|part| part_type(Some(part)) == Some("ByteLevel")),
        marks_spaces: parts.iter().any(|part| replaces(part, " ", SPACE)),
    })
}

/// What the splitter does, likewise.
pub(super) fn splitter(part: Option<&Value>) -> Option<Effect> {
    let parts: Vec<&Value> = chain(part, "pretokenizers").collect();
    let sound = parts.len() <= MAX_PARTS && once(&parts, "ByteLevel") && parts.iter().all(|part| splits(part));
    let any = |name| parts.iter().any(|part| part_type(Some(part)) == Some(name));
    sound.then(|| Effect { bytes: any("ByteLevel"), marks_spaces: any("Metaspace") })
}

/// Whether a normaliser lowers the case.
pub(super) fn lower_case(part: Option<&Value>) -> bool {
    chain(part, "normalizers").any(|part| match part_type(Some(part)) {
        Some("BertNormalizer") => part.get("lowercase").and_then(Value::as_bool).unwrap_or(true),
        name => name == Some("Lowercase"),
    })
}

fn once(parts: &[&Value], name: &str) -> bool {
    parts.iter().filter(|part| part_type(Some(part)) == Some(name)).count() <= 1
}

/// How many times longer a replacement makes a text, at most; 1 for other normalisers, and `None` if it is not allowed.
fn growth(part: &Value) -> Option<usize> {
    let text = |field| part.get(field).and_then(Value::as_str).filter(|text| text.len() <= MAX_TEXT);
    match part_type(Some(part))? {
        "BertNormalizer" | "NFC" | "NFD" | "NFKC" | "NFKD" | "Lowercase" | "Strip" | "StripAccents" | "Nmt"
        | "ByteLevel" => Some(1),
        "Precompiled" => {
            let map = part.get("precompiled_charsmap").and_then(Value::as_str)?;
            charsmap::sound(map).then_some(1)
        }
        "Prepend" => text("prepend").map(|_| 1),
        "Replace" => {
            let (pattern, to) = (part.get("pattern")?, text("content")?);
            let least = match (pattern.get("String"), pattern.get("Regex")) {
                (Some(from), None) => from.as_str().map(str::len).filter(|length| (1..=MAX_TEXT).contains(length))?,
                (None, Some(regex)) => regex.as_str().filter(|regex| REPLACED.contains(regex)).map(|_| 1)?,
                _ => return None,
            };
            Some(to.len().div_ceil(least).max(1))
        }
        _ => None,
    }
}

/// Whether a splitter is allowed.
fn splits(part: &Value) -> bool {
    match part_type(Some(part)) {
        Some(
            "BertPreTokenizer" | "ByteLevel" | "CharDelimiterSplit" | "Digits" | "Punctuation" | "UnicodeScripts"
            | "Whitespace" | "WhitespaceSplit",
        ) => true,
        Some("Metaspace") => part.get("replacement").and_then(Value::as_str) == Some(SPACE),
        Some("Split") => {
            part.get("pattern").is_some_and(|pattern| match (pattern.get("String"), pattern.get("Regex")) {
                (Some(text), None) => text.as_str().is_some_and(|text| (1..=MAX_TEXT).contains(&text.len())),
                (None, Some(regex)) => regex.as_str().is_some_and(|regex| PATTERNS.contains(&regex)),
                _ => false,
            })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokenizers::{PreTokenizedString, PreTokenizer, PreTokenizerWrapper};

    use super::*;

    /// Replacements that multiply, empty patterns and regular expressions of the file's own.
    #[test]
    fn parts_that_could_run_for_long_are_refused() {
        let replace = |from: &str, to: &str| json!({"type": "Replace", "pattern": {"String": from}, "content": to});
        let all = |parts: Vec<Value>| json!({"type": "Sequence", "normalizers": parts});
        let regex = |r: &str| json!({"type": "Replace", "pattern": {"Regex": r}, "content": " "});
        for (part, sound) in [
            (Value::Null, true),
            (replace(" ", SPACE), true),
            (replace("ab", "abababab"), true),
            (regex(" {2,}"), true),
            (json!({"type": "Prepend", "prepend": SPACE}), true),
            (all(vec![replace("a", "bbbb"), replace("b", "aaaa")]), true),
            (all(vec![replace("a", "bbbb"), replace("b", "aaaa"), replace("a", "bb")]), false),
            (replace("", "x"), false),
            (replace("a", &"b".repeat(65)), false),
            (regex("(a+)+$"), false),
            (json!({"type": "Prepend", "prepend": "x".repeat(65)}), false),
            (all(vec![json!({"type": "NFC"}); 9]), false),
            (all(vec![json!({"type": "ByteLevel"}); 2]), false),
            (all(vec![all(vec![])]), false),
            (json!({"type": "Unknown"}), false),
        ] {
            assert_eq!(normaliser(Some(&part)).is_some(), sound, "{part}");
        }
        let split =
            |pattern: Value| json!({"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": false});
        for (part, sound) in [
            (json!({"type": "Digits", "individual_digits": true}), true),
            (split(json!({"String": " "})), true),
            (split(json!({"Regex": r"\p{N}{1,3}"})), true),
            (split(json!({"String": ""})), false),
            (split(json!({"Regex": "(a+)+$"})), false),
            (json!({"type": "Metaspace", "replacement": "_"}), false),
            (json!({"type": "FixedLength", "length": 0}), false),
            (json!({"type": "Sequence", "pretokenizers": vec![json!({"type": "ByteLevel"}); 2]}), false),
        ] {
            assert_eq!(splitter(Some(&part)).is_some(), sound, "{part}");
        }
    }

    /// Backtracking has a limit in the library, beyond which a text is refused: no published pattern reaches it.
    #[test]
    fn every_pattern_splits_long_runs() {
        for pattern in PATTERNS {
            let part = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
            let splitter: PreTokenizerWrapper = serde_json::from_value(part).unwrap();
            for run in [" ", "\n", "a", "A", "1", "'", " a", "\u{301}", "A\u{301}", "語", "\r\n ", "aA"] {
                let text = run.repeat(20_000) + "é";
                let mut split = PreTokenizedString::from(text.as_str());
                splitter.pre_tokenize(&mut split).unwrap();
                let parts = split.get_splits(tokenizers::OffsetReferential::Original, tokenizers::OffsetType::Byte);
                assert_eq!(parts.iter().map(|part| part.0.len()).sum::<usize>(), text.len(), "{pattern} {run}");
            }
        }
    }
}
