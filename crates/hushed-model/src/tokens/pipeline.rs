//! What a `tokenizer.json` may consist of: one of four models, behind the normalisers and splitters of [`parts`].
//!
//! * WordPiece (BERT, DistilBERT).
//! * BPE over pieces, with bytes for unknown characters (LLaMA, Gemma): a normaliser or splitter marks spaces by "▁".
//! * BPE over bytes (RoBERTa, GPT-2, LLaMA 3, Qwen, SmolLM2): a `ByteLevel` makes characters of bytes.
//! * Unigram (SentencePiece, XLM-RoBERTa): behind a `Metaspace`.
//!
//! The work per text is bounded. A client gets this file from the server, so anything that would make the library panic
//! or run for long is refused here first.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value, json};

use super::parts::{self, SPACE, chain, part_type, replaces};
use crate::error::Problem;
use crate::folder::json::Fields;

pub(crate) const TOKENIZER: &str = "tokenizer.json";

/// Longest piece in bytes: at every position, a text is compared with all pieces that begin there. Published pieces
/// have 16 characters.
const MAX_PIECE: usize = 256;

/// What the last token of a word ends with.
const SUFFIX: &str = "end_of_word_suffix";

/// Which model turns words into ids.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    WordPiece,
    Bytes,
    Pieces,
    Unigram,
}

impl Kind {
    /// The padding token of models of this kind.
    pub fn padding(self) -> &'static str {
        match self {
            Kind::WordPiece => "[PAD]",
            Kind::Bytes | Kind::Pieces | Kind::Unigram => "<pad>",
        }
    }

    /// The mask token, which language models are asked to replace.
    pub fn mask(self) -> &'static str {
        match self {
            Kind::WordPiece => "[MASK]",
            Kind::Bytes | Kind::Pieces | Kind::Unigram => "<mask>",
        }
    }
}

/// Names the model's type where an old file leaves it to its other fields, as the library finds it from them.
pub(super) fn name_model(object: &mut Map<String, Value>) {
    const WORD_PIECE: [&str; 3] = ["unk_token", "continuing_subword_prefix", "max_input_chars_per_word"];
    let Some(model) = object.get_mut("model").and_then(Value::as_object_mut) else {
        return;
    };
    let vocabulary = model.get("vocab");
    let kind = match vocabulary {
        _ if model.contains_key("type") => return,
        Some(Value::Object(_)) if model.contains_key("merges") => "BPE",
        Some(Value::Object(_)) if WORD_PIECE.iter().all(|field| model.contains_key(*field)) => "WordPiece",
        Some(Value::Array(_)) => "Unigram",
        _ => return,
    };
    model.insert("type".to_owned(), kind.into());
}

/// The model's kind, if it is one of the four. Any part that is not allowed is a problem.
pub(super) fn kind(object: &Map<String, Value>, problems: &mut Vec<Problem>) -> Option<Kind> {
    let mut f = Fields::new(TOKENIZER, object, problems);
    let kind = match part_type(object.get("model")) {
        Some("WordPiece") => Kind::WordPiece,
        Some("BPE") if falls_back(object) => Kind::Pieces,
        Some("BPE") => Kind::Bytes,
        Some("Unigram") => Kind::Unigram,
        _ => {
            f.unsupported_part("model", "WordPiece, BPE, Unigram");
            return None;
        }
    };
    let normaliser = parts::normaliser(object.get("normalizer"));
    if normaliser.is_none() {
        f.unsupported_part("normalizer", parts::NORMALISERS);
    }
    let splitter = parts::splitter(object.get("pre_tokenizer"));
    if splitter.is_none() {
        f.unsupported_part("pre_tokenizer", parts::SPLITTERS);
    }
    if let (Some(first), Some(then)) = (normaliser, splitter) {
        let needs = match kind {
            Kind::WordPiece => None,
            Kind::Bytes if first.bytes != then.bytes => None,
            Kind::Bytes => Some("one ByteLevel, which a BPE without byte_fallback needs"),
            Kind::Pieces if first.marks_spaces || then.marks_spaces => None,
            Kind::Pieces => Some("Metaspace, or a normalizer that replaces spaces by \"▁\""),
            // Its special tokens are hidden under names with a space: no text has one behind this splitter.
            Kind::Unigram if then.marks_spaces => None,
            Kind::Unigram => Some("Metaspace with \"▁\", perhaps in a Sequence"),
        };
        if let Some(needs) = needs {
            f.unsupported_part("pre_tokenizer", needs);
        }
    }
    if let Some(model) = object.get("model").and_then(Value::as_object) {
        let mut f = Fields::new(TOKENIZER, model, problems);
        match kind {
            // The search for the longest piece is quadratic in this number.
            Kind::WordPiece => {
                f.optional_size("max_input_chars_per_word", 1, 1000);
            }
            Kind::Bytes | Kind::Pieces => {
                f.must_be_off("dropout", "ids that do not depend on chance (null)");
                for field in ["continuing_subword_prefix", SUFFIX] {
                    let whole = f.get(field).is_none_or(|v| v.as_str() == Some(""));
                    // CLIP's: each byte has a token of its own at the end of a word.
                    if !whole && (field, kind) != (SUFFIX, Kind::Bytes) {
                        f.unsupported(field, "null or an empty text");
                    }
                }
            }
            Kind::Unigram => f.must_be_off("byte_fallback", "an id for what is unknown (false)"),
        }
    }
    Some(kind)
}

/// Whether a BPE model represents unknown characters as bytes.
fn falls_back(object: &Map<String, Value>) -> bool {
    let model = object.get("model");
    model.and_then(|m| m.get("byte_fallback")) == Some(&Value::Bool(true))
}

/// The vocabulary of a model: text → id.
pub(super) struct Vocabulary<'a> {
    ids: HashMap<&'a str, u64>,
}

impl<'a> Vocabulary<'a> {
    /// Checks that ids are below `vocabulary` and that every text can be encoded.
    pub fn parse(
        kind: Kind,
        object: &'a Map<String, Value>,
        vocabulary: usize,
        problems: &mut Vec<Problem>,
    ) -> Option<Vocabulary<'a>> {
        let model = object.get("model")?.as_object()?;
        let listed = model.get("vocab");
        let (ids, expected) = match kind {
            Kind::WordPiece | Kind::Bytes | Kind::Pieces => (ids(listed), "an object of ids"),
            Kind::Unigram => (pieces(listed), "a list of pieces of at most 256 bytes and their scores"),
        };
        let Some(ids) = ids else {
            problems.push(wrong_type("model.vocab", expected));
            return None;
        };
        let table = Vocabulary { ids };
        let largest = table.ids.values().copied().max().unwrap_or(0);
        if largest >= vocabulary as u64 {
            problems.push(Problem::ForeignTokenizer { id: largest, vocabulary });
        }
        match kind {
            // Without it, every unknown word would be an error at run time.
            Kind::WordPiece => {
                let unknown = model.get("unk_token").and_then(Value::as_str);
                table.id(unknown.unwrap_or("[UNK]"), problems)?;
            }
            // Without any of these, texts would silently lose characters.
            Kind::Bytes => {
                let ends = model.get(SUFFIX).and_then(Value::as_str).unwrap_or_default();
                for byte in (0..=255).filter(|byte| is_in_texts(*byte)) {
                    let token = character_of(byte).to_string();
                    table.id(&(token.clone() + ends), problems)?;
                    table.id(&token, problems)?;
                }
            }
            Kind::Pieces => {
                let unknown = model.get("unk_token").and_then(Value::as_str);
                table.id(unknown.unwrap_or("<unk>"), problems)?;
                for byte in 0..=255 {
                    table.id(&name_of(byte), problems)?;
                }
            }
            Kind::Unigram => {
                let unknown = model.get("unk_id").and_then(Value::as_u64);
                if unknown.is_none_or(|id| id >= table.ids.len() as u64) {
                    problems.push(wrong_type("model.unk_id", "the id of a piece"));
                    return None;
                }
            }
        }
        Some(table)
    }

    /// The id of a required token.
    pub fn id(&self, token: &str, problems: &mut Vec<Problem>) -> Option<u32> {
        let id = self.find(token);
        if id.is_none() {
            problems.push(Problem::NoSuchToken { token: token.to_owned() });
        }
        id
    }

    pub fn find(&self, token: &str) -> Option<u32> {
        self.ids.get(token).and_then(|&id| u32::try_from(id).ok())
    }
}

fn ids(listed: Option<&Value>) -> Option<HashMap<&str, u64>> {
    let ids = listed?.as_object()?.iter();
    ids.map(|(token, id)| Some((token.as_str(), id.as_u64()?))).collect()
}

/// There must be as many ids as pieces: no piece may occur twice.
fn pieces(listed: Option<&Value>) -> Option<HashMap<&str, u64>> {
    let list = listed?.as_array()?;
    let mut ids = HashMap::with_capacity(list.len());
    for (id, entry) in list.iter().enumerate() {
        let [Value::String(piece), Value::Number(_)] = entry.as_array()?.as_slice() else {
            return None;
        };
        ((1..=MAX_PIECE).contains(&piece.len())).then_some(())?;
        ids.insert(piece.as_str(), id as u64);
    }
    (ids.len() == list.len()).then_some(ids)
}

/// Whether a byte is in the UTF-8 of an assigned character other than a control character. Some vocabularies lack
/// others (SmolLM2, Falcon): the library leaves them out of a text.
fn is_in_texts(byte: u8) -> bool {
    matches!(byte, b'\t' | b'\n' | b'\r' | b' '..=b'~' | 0x80..=0xbf | 0xc2..=0xf0)
}

/// The character that stands for a byte in GPT-2's vocabulary: the byte itself if printable, otherwise the next one
/// from U+0100 on.
pub(crate) fn character_of(byte: u8) -> char {
    let printable = |b: u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| !printable(b)).count() as u32;
    char::from_u32(0x100 + before).unwrap_or_default()
}

/// The piece that stands for a byte in LLaMA's vocabulary.
pub(crate) fn name_of(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

/// Tokens that the file marks as special.
pub(super) fn specials(object: &Map<String, Value>) -> BTreeSet<&str> {
    let added = object.get("added_tokens").and_then(Value::as_array);
    let special = added.into_iter().flatten().filter(|t| is_special(t));
    special.filter_map(|t| t.get("content")?.as_str()).collect()
}

fn is_special(added: &Value) -> bool {
    added.get("special") == Some(&Value::Bool(true))
}

/// Hides the special tokens from a Unigram model, which would treat `</s>` in a text as a piece like any other;
/// SentencePiece never makes them from text either. Their ids stay, under names with a space, which no text contains
/// once `Metaspace` has replaced its spaces.
pub(super) fn hide_specials(object: &mut Map<String, Value>) {
    let names: BTreeSet<String> = specials(object).into_iter().map(str::to_owned).collect();
    if let Some(added) = object.get_mut("added_tokens").and_then(Value::as_array_mut) {
        added.retain(|t| !is_special(t));
    }
    let pieces = object.get_mut("model").and_then(|m| m.get_mut("vocab")?.as_array_mut());
    for piece in pieces.into_iter().flatten().filter_map(|p| p.get_mut(0)) {
        if let Some(text) = piece.as_str().filter(|text| names.contains(*text)) {
            *piece = Value::String(format!(" {text}"));
        }
    }
}

/// The special tokens before and after a text, from `BertProcessing`, `RobertaProcessing` or a `TemplateProcessing` of
/// the shape `[CLS] A [SEP]` or, of a decoder that embeds, `A [EOS]`.
pub(super) fn special_around(object: &Map<String, Value>, problems: &mut Vec<Problem>) -> Option<[Option<String>; 2]> {
    let mut posts = chain(object.get("post_processor"), "processors").filter(|part| !is_byte_level(part));
    let post = posts.next().filter(|_| posts.next().is_none());
    let found = post.and_then(|p| match p.get("type")?.as_str()? {
        "BertProcessing" | "RobertaProcessing" => {
            let token = |name: &str| Some(p.get(name)?.get(0)?.as_str()?.to_owned());
            Some([Some(token("cls")?), Some(token("sep")?)])
        }
        "TemplateProcessing" => {
            let (first, text, last) = match p.get("single")?.as_array()?.as_slice() {
                [first, text, last] => (Some(first), text, last),
                [text, last] => (None, text, last),
                _ => return None,
            };
            (text.get("Sequence")?.get("id")?.as_str()? == "A").then_some(())?;
            let token = |piece: &Value| Some(piece.get("SpecialToken")?.get("id")?.as_str()?.to_owned());
            let first = match first {
                Some(first) => Some(token(first)?),
                None => None,
            };
            Some([first, Some(token(last)?)])
        }
        _ => None,
    });
    if found.is_none() {
        Fields::new(TOKENIZER, object, problems).unsupported_part(
            "post_processor",
            "BertProcessing, RobertaProcessing, or a template [CLS] A [SEP] or A [SEP]",
        );
    }
    found
}

/// Whether a part is `ByteLevel`, which as a processor only changes offsets.
pub(super) fn is_byte_level(part: &Value) -> bool {
    part_type(Some(part)) == Some("ByteLevel")
}

/// Checks that ids are turned back into text by joining the bytes of tokens, as in [`super::Decoder`].
pub(super) fn decodes_bytes(kind: Kind, object: &Map<String, Value>, problems: &mut Vec<Problem>) {
    let mut f = Fields::new(TOKENIZER, object, problems);
    let decoder = object.get("decoder");
    let ends = object.get("model").and_then(|model| model.get(SUFFIX)).and_then(Value::as_str);
    if ends.is_some_and(|ends| !ends.is_empty()) {
        f.unsupported_part("model", "BPE without end_of_word_suffix, for a generator");
        return;
    }
    let (sound, supported) = match kind {
        Kind::Bytes => (part_type(decoder) == Some("ByteLevel"), "ByteLevel, for a generator"),
        Kind::Pieces => (
            joins_pieces(decoder),
            "Replace of \"▁\" by \" \", ByteFallback, Fuse and perhaps Strip of one space, for a generator",
        ),
        Kind::WordPiece | Kind::Unigram => {
            f.unsupported_part("model", "BPE over bytes, or with bytes, for a generator");
            return;
        }
    };
    if !sound {
        f.unsupported_part("decoder", supported);
    }
}

/// Whether a decoder is the one in LLaMA's folders. The space that it strips is the one that the normaliser put before
/// a text; a continuation has none.
fn joins_pieces(decoder: Option<&Value>) -> bool {
    let parts: Vec<&Value> = chain(decoder, "decoders").collect();
    let is = |part: &Value, name| part_type(Some(part)) == Some(name);
    let strips_one = |part: &Value| {
        is(part, "Strip")
            && part.get("content").and_then(Value::as_str) == Some(" ")
            && part.get("start") == Some(&json!(1))
            && part.get("stop") == Some(&json!(0))
    };
    match parts.as_slice() {
        [spaces, bytes, fuse, strip @ ..] => {
            replaces(spaces, SPACE, " ")
                && is(bytes, "ByteFallback")
                && is(fuse, "Fuse")
                && strip.len() <= 1
                && strip.iter().all(|part| strips_one(part))
        }
        _ => false,
    }
}

/// The special token before a text to be continued, if there is one; `None` if a problem was added, because something
/// else is put around the text.
pub(super) fn special_before(object: &Map<String, Value>, problems: &mut Vec<Problem>) -> Option<Option<String>> {
    let parts: Vec<&Value> =
        chain(object.get("post_processor"), "processors").filter(|part| !is_byte_level(part)).collect();
    let before = match parts.as_slice() {
        [] => Some(None),
        [only] if part_type(Some(only)) == Some("TemplateProcessing") => before_text(only),
        _ => None,
    };
    if before.is_none() {
        Fields::new(TOKENIZER, object, problems).unsupported_part(
            "post_processor",
            "null, ByteLevel, or a template of the text, perhaps after one token, for a generator",
        );
    }
    before
}

/// What a template puts before a text, if it puts nothing after it.
fn before_text(template: &Value) -> Option<Option<String>> {
    let is_text = |piece: &Value| piece.get("Sequence").is_some();
    match template.get("single")?.as_array()?.as_slice() {
        [text] if is_text(text) => Some(None),
        [first, text] if is_text(text) => {
            let id = first.get("SpecialToken")?.get("id")?;
            Some(Some(id.as_str()?.to_owned()))
        }
        _ => None,
    }
}

fn wrong_type(field: &'static str, expected: &'static str) -> Problem {
    Problem::WrongType { file: TOKENIZER.to_owned(), field, expected: expected.into() }
}
