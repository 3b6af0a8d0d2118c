//! Text to token ids (BERT's WordPiece), with a limit that is refused rather than silently cut.
//!
//! `tokenizer.json` is read by the `tokenizers` crate, but only its vocabulary, added tokens, normaliser and splitter: truncation and
//! padding are switched off (the file asks for both, to 128), and the special tokens around a text are put on here, after their
//! description was checked. Special tokens written *inside* a text are text: `[SEP]` becomes `[`, `sep`, `]`.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use tokenizers::Tokenizer as Library;

use crate::error::{Problem, TextError};
use crate::folder::json::{self, Fields};
use crate::rows::TextRows;

/// Texts above this many bytes are refused before they are tokenised: the work of tokenising is bounded by it.
pub const MAX_TEXT_BYTES: usize = 1 << 20;

pub(crate) const TOKENIZER: &str = "tokenizer.json";

/// The token ids of one text, its first and last special ones included. No `Debug`: they are the private input.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenIds {
    ids: Vec<u32>,
    real: usize,
}

impl TokenIds {
    /// Ids as they are, none of them padding.
    pub fn new(ids: Vec<u32>) -> TokenIds {
        let real = ids.len();
        TokenIds { ids, real }
    }

    /// A text and ids after it that are not part of it.
    pub fn with_padding(mut text: Vec<u32>, padding: &[u32]) -> TokenIds {
        let real = text.len();
        text.extend_from_slice(padding);
        TokenIds { ids: text, real }
    }

    /// The ids, padding included.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// How many are tokens, and how many there are in all.
    pub fn rows(&self) -> TextRows {
        TextRows {
            real: self.real,
            total: self.ids.len(),
        }
    }

    /// Appends padding up to `total` ids; has no effect on a text that is as long or longer. Which id pads does not matter to the
    /// answer: padding rows are masked.
    pub fn pad_to(mut self, total: usize, padding_id: u32) -> TokenIds {
        if total > self.ids.len() {
            self.ids.resize(total, padding_id);
        }
        self
    }
}

/// What to do with a text of more tokens than the model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TooLong {
    /// An error.
    #[default]
    Refuse,
    /// Embed its beginning.
    Cut,
}

/// A checked `tokenizer.json`.
#[derive(Clone)]
pub struct Tokenizer {
    library: Library,
    first: u32,
    last: u32,
    padding: u32,
    never_inside: BTreeSet<u32>,
    lower_case: bool,
}

impl Tokenizer {
    /// Parses `tokenizer.json` for a token table of `vocabulary` rows; `None` exactly if a problem was added.
    pub fn parse(
        bytes: &[u8],
        vocabulary: usize,
        padding_id: Option<u32>,
        problems: &mut Vec<Problem>,
    ) -> Option<Tokenizer> {
        let before = problems.len();
        let mut object = json::object(TOKENIZER, bytes, problems)?;
        let lower_case = check_parts(&object, problems);
        let table = Vocabulary::parse(&object, vocabulary, problems);
        let around = special_around(&object, problems);
        if problems.len() > before {
            return None;
        }
        let (table, (first, last)) = (table?, around?);
        let first = table.id(&first, problems);
        let last = table.id(&last, problems);
        let padding = table
            .ids
            .get("[PAD]")
            .and_then(Value::as_u64)
            .and_then(|id| u32::try_from(id).ok());
        if let (Some(tokenizer), Some(config)) = (padding, padding_id)
            && tokenizer != config
        {
            problems.push(Problem::SpecialTokenDiffers {
                token: "[PAD]".to_owned(),
                tokenizer,
                config,
            });
        }
        let padding = padding_id.or(padding).unwrap_or(0);

        for off in ["truncation", "padding", "post_processor", "decoder"] {
            object.insert(off.to_owned(), Value::Null);
        }
        let plain = serde_json::to_vec(&object).ok()?;
        let mut library = match Library::from_bytes(&plain) {
            Ok(library) => library,
            Err(source) => {
                problems.push(Problem::Tokenizer { source });
                return None;
            }
        };
        library.set_encode_special_tokens(true);
        // Ids that the library gave to added tokens outside the vocabulary.
        let largest = library.get_vocab(true).values().copied().max().unwrap_or(0);
        if largest as usize >= vocabulary {
            problems.push(Problem::ForeignTokenizer {
                id: largest.into(),
                vocabulary,
            });
        }
        if problems.len() > before {
            return None;
        }
        let (first, last) = (first?, last?);
        let mask = library.token_to_id("[MASK]");
        let never_inside = [Some(first), Some(last), Some(padding), mask]
            .into_iter()
            .flatten()
            .collect();
        Some(Tokenizer {
            library,
            first,
            last,
            padding,
            never_inside,
            lower_case: lower_case?,
        })
    }

    /// The ids of a text of at most `limit` tokens, the two special ones counted.
    pub fn encode(
        &self,
        text: &str,
        limit: usize,
        too_long: TooLong,
    ) -> Result<TokenIds, TextError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(TextError::TooManyBytes {
                bytes: text.len(),
                limit: MAX_TEXT_BYTES,
            });
        }
        let encoding = self
            .library
            .encode(text, false)
            .map_err(|_| TextError::Tokenizer)?;
        let inside = encoding.get_ids();
        if inside.is_empty() {
            return Err(TextError::Empty);
        }
        if inside.iter().any(|id| self.never_inside.contains(id)) {
            return Err(TextError::SpecialInside);
        }
        let tokens = inside.len() + 2;
        if tokens > limit && too_long == TooLong::Refuse {
            return Err(TextError::TooLong { tokens, limit });
        }
        let kept = inside.iter().copied().take(limit.saturating_sub(2));
        Ok(self.surrounded(kept))
    }

    /// The ids that texts can have inside: all of the vocabulary but special tokens and places that were left unused, which brackets mark.
    pub fn ordinary_ids(&self) -> Vec<u32> {
        let all = self.library.get_vocab(true).into_iter();
        let bracketed =
            |token: &str| token.starts_with('[') && token.ends_with(']') && token.len() > 2;
        let mut ids: Vec<u32> = all
            .filter(|(token, id)| !bracketed(token) && !self.never_inside.contains(id))
            .map(|(_, id)| id)
            .collect();
        ids.sort_unstable();
        ids
    }

    /// A text of these tokens, between the two special ones.
    pub fn surrounded(&self, inside: impl IntoIterator<Item = u32>) -> TokenIds {
        TokenIds::new(
            [self.first]
                .into_iter()
                .chain(inside)
                .chain([self.last])
                .collect(),
        )
    }

    /// The id that padding uses.
    pub fn padding_id(&self) -> u32 {
        self.padding
    }

    /// Whether texts are put into lower case.
    pub fn lower_case(&self) -> bool {
        self.lower_case
    }
}

/// The vocabulary of a WordPiece model: text → id.
struct Vocabulary<'a> {
    ids: &'a Map<String, Value>,
}

impl<'a> Vocabulary<'a> {
    fn parse(
        object: &'a Map<String, Value>,
        vocabulary: usize,
        problems: &mut Vec<Problem>,
    ) -> Option<Vocabulary<'a>> {
        let model = object.get("model")?.as_object()?;
        let Some(ids) = model.get("vocab").and_then(Value::as_object) else {
            problems.push(Problem::WrongType {
                file: TOKENIZER.to_owned(),
                field: "model.vocab",
                expected: "an object of ids",
            });
            return None;
        };
        let table = Vocabulary { ids };
        let mut largest = 0;
        for id in ids.values() {
            let Some(id) = id.as_u64() else {
                problems.push(Problem::WrongType {
                    file: TOKENIZER.to_owned(),
                    field: "model.vocab",
                    expected: "an object of ids",
                });
                return None;
            };
            largest = largest.max(id);
        }
        if largest >= vocabulary as u64 {
            problems.push(Problem::ForeignTokenizer {
                id: largest,
                vocabulary,
            });
        }
        // Without it, every unknown word would be an error at run time.
        table.id(
            model
                .get("unk_token")
                .and_then(Value::as_str)
                .unwrap_or("[UNK]"),
            problems,
        )?;
        Some(table)
    }

    fn id(&self, token: &str, problems: &mut Vec<Problem>) -> Option<u32> {
        let id = self
            .ids
            .get(token)
            .and_then(Value::as_u64)
            .and_then(|id| u32::try_from(id).ok());
        if id.is_none() {
            problems.push(Problem::NoSuchToken {
                token: token.to_owned(),
            });
        }
        id
    }
}

/// Only BERT's own pipeline is let through: nothing in it is a regular expression or a program that the file could supply.
/// Gives whether it lowers the case.
fn check_parts(object: &Map<String, Value>, problems: &mut Vec<Problem>) -> Option<bool> {
    let mut f = Fields::new(TOKENIZER, object, problems);
    let kind = |part: &str| {
        object
            .get(part)
            .and_then(|p| p.get("type"))
            .and_then(Value::as_str)
    };
    if kind("model") != Some("WordPiece") {
        f.unsupported_part("model", "WordPiece");
    }
    if kind("normalizer") != Some("BertNormalizer") {
        f.unsupported_part("normalizer", "BertNormalizer");
    }
    if kind("pre_tokenizer") != Some("BertPreTokenizer") {
        f.unsupported_part("pre_tokenizer", "BertPreTokenizer");
    }
    if let Some(model) = object.get("model").and_then(Value::as_object) {
        // The search for the longest piece is quadratic in this.
        Fields::new(TOKENIZER, model, problems).optional_size("max_input_chars_per_word", 1, 1000);
    }
    object
        .get("normalizer")
        .map(|n| n.get("lowercase").and_then(Value::as_bool).unwrap_or(true))
}

/// The special tokens before and after a text, from `BertProcessing` or a `TemplateProcessing` of the shape `[CLS] A [SEP]`.
fn special_around(
    object: &Map<String, Value>,
    problems: &mut Vec<Problem>,
) -> Option<(String, String)> {
    let post = object.get("post_processor");
    let found = post.and_then(|p| match p.get("type")?.as_str()? {
        "BertProcessing" => Some((
            p.get("cls")?.get(0)?.as_str()?.to_owned(),
            p.get("sep")?.get(0)?.as_str()?.to_owned(),
        )),
        "TemplateProcessing" => {
            let [first, text, last] = p.get("single")?.as_array()?.as_slice() else {
                return None;
            };
            (text.get("Sequence")?.get("id")?.as_str()? == "A").then_some(())?;
            let token =
                |piece: &Value| Some(piece.get("SpecialToken")?.get("id")?.as_str()?.to_owned());
            Some((token(first)?, token(last)?))
        }
        _ => None,
    });
    if found.is_none() {
        Fields::new(TOKENIZER, object, problems).unsupported_part(
            "post_processor",
            "BertProcessing, or a template [CLS] A [SEP]",
        );
    }
    found
}
