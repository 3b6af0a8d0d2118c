//! Text to token ids. A text above the limit is refused, not silently truncated.
//!
//! The `tokenizers` crate reads `tokenizer.json`, but only the model, added tokens, normaliser and splitter, and only
//! those that `pipeline` allows. Truncation and padding are switched off (the file asks for both, to 128), and the
//! special tokens around a text are added here, after a check of their description. Special tokens written *inside* a
//! text are text: BERT's `[SEP]` becomes `[`, `sep`, `]`.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod agree;
mod charsmap;
pub mod chat;
mod decoder;
pub(crate) mod head;
mod pairs;
mod parts;
mod pipeline;

use std::collections::BTreeSet;

use serde_json::Value;
use tokenizers::Tokenizer as Library;

use crate::arch::Task;
use crate::error::{Problem, TextError};
use crate::folder::json;
use crate::rows::TextRows;

pub(crate) use agree::agree;
pub(crate) use pipeline::TOKENIZER;

use decoder::Bytes;
use pairs::PairTemplate;
use pipeline::{Kind, Vocabulary};

pub use decoder::Decoder;

#[cfg(feature = "testing")]
pub(crate) use pipeline::character_of;

/// Texts with more bytes are refused before tokenisation, which bounds its work.
pub const MAX_TEXT_BYTES: usize = 1 << 20;

/// The token ids of one text or pair of texts, including its special tokens. No `Debug`: they are the private input.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenIds {
    ids: Vec<u32>,
    real: usize,
    /// The first row of token type 1, which all later rows have, if there is one.
    second: Option<usize>,
}

impl TokenIds {
    /// Takes ids as they are, none of them padding.
    pub fn new(ids: Vec<u32>) -> TokenIds {
        let real = ids.len();
        TokenIds { ids, real, second: None }
    }

    /// A text followed by ids that are not part of it.
    pub fn with_padding(mut text: Vec<u32>, padding: &[u32]) -> TokenIds {
        let real = text.len();
        text.extend_from_slice(padding);
        TokenIds { ids: text, real, second: None }
    }

    /// The same with token type 1 from row `second` on, as the second text of a pair has it.
    #[must_use]
    pub fn with_second(self, second: usize) -> TokenIds {
        TokenIds { second: Some(second), ..self }
    }

    /// For each row, padding included, whether its token type is 1.
    pub fn second(&self) -> impl Iterator<Item = bool> + '_ {
        let second = self.second.unwrap_or(usize::MAX);
        (0..self.ids.len()).map(move |row| (second..self.real).contains(&row))
    }

    /// The ids, padding included.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// The number of tokens, and the number of all ids.
    pub fn rows(&self) -> TextRows {
        TextRows { real: self.real, total: self.ids.len() }
    }

    /// Appends padding up to `total` ids; has no effect on a text that is as long or longer. The choice of padding id
    /// does not change the answer: padding rows are masked.
    pub fn pad_to(mut self, total: usize, padding_id: u32) -> TokenIds {
        if total > self.ids.len() {
            self.ids.resize(total, padding_id);
        }
        self
    }
}

/// What to do with a text that has more tokens than the model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TooLong {
    /// Return an error.
    #[default]
    Refuse,
    /// Use its beginning.
    Cut,
    /// Use its end.
    CutLeft,
}

/// A token as it stands in a text. No `Debug`: it is private.
#[derive(Clone, PartialEq, Eq)]
pub struct Piece {
    /// The token.
    pub id: u32,
    /// What it stands for in the text, or a special token's name.
    pub text: String,
    /// Where that is: the characters from the first up to the second. `None` for a special token around the text.
    pub span: Option<(usize, usize)>,
}

/// A checked `tokenizer.json`.
#[derive(Clone)]
pub struct Tokenizer {
    library: Library,
    kind: Kind,
    /// The special tokens before and after a text; none after a text to be continued.
    around: [Option<u32>; 2],
    /// How two texts become one input, for a classifier whose file says it in a known way.
    pairs: Option<PairTemplate>,
    padding: u32,
    /// Ids besides the special ones that no text of the model's own is made of.
    reserved: BTreeSet<u32>,
    special: BTreeSet<u32>,
    lower_case: bool,
    /// The bytes of each token, if the model generates text.
    bytes: Option<Bytes>,
}

impl Tokenizer {
    /// Parses `tokenizer.json` for a token table of `vocabulary` rows and a model for this task; `None` if and only if
    /// a problem was added.
    pub fn parse(
        bytes: &[u8],
        vocabulary: usize,
        padding_id: Option<u32>,
        task: Task,
        problems: &mut Vec<Problem>,
    ) -> Option<Tokenizer> {
        let before = problems.len();
        let mut object = json::object(TOKENIZER, bytes, problems)?;
        pipeline::name_model(&mut object);
        let kind = pipeline::kind(&object, problems);
        let around = match task {
            Task::Embed | Task::Classify => pipeline::special_around(&object, problems),
            Task::Generate => pipeline::special_before(&object, problems).map(|first| [first, None]),
        };
        let table = Vocabulary::parse(kind?, &object, vocabulary, problems);
        if problems.len() > before {
            return None;
        }
        let (kind, table, around) = (kind?, table?, around?);
        // A decoder's may be added outside the vocabulary.
        let listed = around.each_ref().map(|name| name.as_ref().and_then(|name| table.find(name)));
        let mask = table.find(kind.mask());
        let names = pipeline::specials(&object);
        let mut special: BTreeSet<u32> = names.iter().filter_map(|s| table.find(s)).collect();
        let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
        let lower_case = parts::lower_case(object.get("normalizer"));
        let padding = table.find(kind.padding());
        // Multilingual BERT-like sentence encoders have SentencePiece's tokens and a configuration with BERT's padding
        // id. That works, because padding is masked. Where positions depend on the id, the check of the folder's whole
        // public part covers it.
        if let (Kind::WordPiece, Some(tokenizer), Some(config)) = (kind, padding, padding_id)
            && tokenizer != config
        {
            problems.push(Problem::SpecialTokenDiffers { token: kind.padding().to_owned(), tokenizer, config });
        }
        let named_padding = padding.or(padding_id);
        let padding = named_padding.unwrap_or(0);

        let pairs = match task {
            Task::Classify => PairTemplate::parse(&object, |name| table.find(name)),
            Task::Embed | Task::Generate => None,
        };
        if task == Task::Generate {
            pipeline::decodes_bytes(kind, &object, problems);
        }
        for off in ["truncation", "padding", "post_processor", "decoder"] {
            object.insert(off.to_owned(), Value::Null);
        }
        if kind == Kind::Unigram {
            pipeline::hide_specials(&mut object);
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
        // Special tokens added outside the vocabulary.
        special.extend(names.iter().filter_map(|name| library.token_to_id(name)));
        let mut found = [None; 2];
        for ((found, name), listed) in found.iter_mut().zip(&around).zip(listed) {
            let Some(name) = name else { continue };
            *found = listed.or_else(|| match kind {
                Kind::Bytes | Kind::Pieces => library.token_to_id(name),
                Kind::WordPiece | Kind::Unigram => None,
            });
            if found.is_none() {
                problems.push(Problem::NoSuchToken { token: name.clone() });
            }
        }
        // Includes ids that the library gave to added tokens outside the vocabulary.
        let largest = library.get_vocab(true).values().copied().max().unwrap_or(0);
        if largest as usize >= vocabulary {
            problems.push(Problem::ForeignTokenizer { id: largest.into(), vocabulary });
        }
        if problems.len() > before {
            return None;
        }
        let around = found;
        let mask = mask.or_else(|| library.token_to_id(kind.mask()));
        let reserved = match task {
            Task::Embed | Task::Classify => around.into_iter().chain([named_padding, mask]).flatten().collect(),
            Task::Generate => special.clone(),
        };
        let bytes = (task == Task::Generate)
            .then(|| decoder::bytes_of(kind, library.get_vocab(true), |id| special.contains(&id)));
        Some(Tokenizer { library, kind, around, pairs, padding, reserved, special, lower_case, bytes })
    }

    /// The ids of a text of at most `limit` tokens, including the special ones.
    pub fn encode(&self, text: &str, limit: usize, too_long: TooLong) -> Result<TokenIds, TextError> {
        let around = self.around.iter().flatten().count();
        let inside = self.inside(text, limit, (around, too_long))?;
        Ok(self.surrounded(inside))
    }

    /// The ids of a text of at most `limit` tokens that follows another text: without the special token that begins a
    /// text.
    pub fn encode_behind(&self, text: &str, limit: usize, too_long: TooLong) -> Result<TokenIds, TextError> {
        let last = self.around[1];
        let after = usize::from(last.is_some());
        let inside = self.inside(text, limit, (after, too_long))?;
        Ok(TokenIds::new(inside.into_iter().chain(last).collect()))
    }

    /// Whether it encodes pairs.
    pub fn reads_pairs(&self) -> bool {
        self.pairs.is_some()
    }

    /// The ids of two texts as one input of at most `limit` tokens, including the special ones. Of texts that are too
    /// long together, the longer one is truncated first.
    ///
    /// # Errors
    /// [`TextError::NoPairs`] for a model that is no classifier, or whose tokenizer does not say how pairs are read;
    /// those of [`Tokenizer::encode`] for either text.
    pub fn encode_pair(&self, texts: [&str; 2], limit: usize, too_long: TooLong) -> Result<TokenIds, TextError> {
        let template = self.pairs.as_ref().ok_or(TextError::NoPairs)?;
        let [first, second] = texts.map(|text| self.ordinary(text));
        let (first, second) = (first?, second?);
        let tokens = first.len() + second.len() + template.specials();
        if tokens > limit && too_long == TooLong::Refuse {
            return Err(TextError::TooLong { tokens, limit });
        }
        let room = limit.saturating_sub(template.specials());
        let kept = pairs::kept([&first, &second], room, too_long == TooLong::CutLeft);
        let (ids, second) = template.filled(kept);
        Ok(TokenIds { second, ..TokenIds::new(ids) })
    }

    /// The ids of a text without special tokens, leaving room for `around` of them.
    fn inside(&self, text: &str, limit: usize, (around, too_long): (usize, TooLong)) -> Result<Vec<u32>, TextError> {
        let inside = self.ordinary(text)?;
        let tokens = inside.len() + around;
        if tokens > limit && too_long == TooLong::Refuse {
            return Err(TextError::TooLong { tokens, limit });
        }
        let room = limit.saturating_sub(around);
        let left_out = match too_long {
            TooLong::CutLeft => inside.len().saturating_sub(room),
            TooLong::Refuse | TooLong::Cut => 0,
        };
        Ok(inside.into_iter().skip(left_out).take(room).collect())
    }

    /// The ids of a text of any length without special tokens.
    fn ordinary(&self, text: &str) -> Result<Vec<u32>, TextError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(TextError::TooManyBytes { bytes: text.len(), limit: MAX_TEXT_BYTES });
        }
        let encoding = self.library.encode(text, false).map_err(|_| TextError::Tokenizer)?;
        let inside = encoding.get_ids();
        if inside.is_empty() {
            return Err(TextError::Empty);
        }
        if inside.iter().any(|id| self.reserved.contains(id)) {
            return Err(TextError::SpecialInside);
        }
        Ok(inside.to_vec())
    }

    /// The tokens of a text of any length, between the special ones if they are wanted.
    ///
    /// # Errors
    /// [`TextError`] for a text of too many bytes.
    pub fn pieces(&self, text: &str, around: bool) -> Result<Vec<Piece>, TextError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(TextError::TooManyBytes { bytes: text.len(), limit: MAX_TEXT_BYTES });
        }
        let encoding = self.library.encode_char_offsets(text, false).map_err(|_| TextError::Tokenizer)?;
        let characters: Vec<char> = text.chars().collect();
        let inside = encoding.get_ids().iter().zip(encoding.get_offsets()).map(|(&id, &(from, to))| {
            let text = characters.get(from..to).unwrap_or_default().iter().collect();
            Piece { id, text, span: Some((from, to)) }
        });
        let special = |id: Option<u32>| id.filter(|_| around).map(|id| Piece { id, text: self.name(id), span: None });
        let [first, last] = self.around;
        Ok(special(first).into_iter().chain(inside).chain(special(last)).collect())
    }

    fn name(&self, id: u32) -> String {
        self.library.id_to_token(id).unwrap_or_default()
    }

    /// The text of these tokens, as the `tokenizers` library puts it together; ids without a token are left out.
    #[must_use]
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let shown = ids.iter().copied().filter(|id| !(skip_special && self.special.contains(id)));
        decoder::joined(self.kind, shown.filter_map(|id| self.library.id_to_token(id)).collect())
    }

    /// The ids of the output of a chat template: special tokens in it count as such, and none is added.
    pub(crate) fn encode_rendered(&self, text: &str, limit: usize) -> Result<TokenIds, TextError> {
        let ids = self.with_specials(text)?;
        match ids.len() {
            0 => Err(TextError::Empty),
            tokens if tokens > limit => Err(TextError::TooLong { tokens, limit }),
            _ => Ok(TokenIds::new(ids)),
        }
    }

    fn with_specials(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let (bytes, limit) = (text.len(), MAX_TEXT_BYTES);
        if bytes > limit {
            return Err(TextError::TooManyBytes { bytes, limit });
        }
        // A copy takes milliseconds; keeping it would double the memory of a large vocabulary.
        let mut library = self.library.clone();
        library.set_encode_special_tokens(false);
        let encoding = library.encode(text, false);
        let encoding = encoding.map_err(|_| TextError::Tokenizer)?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The special tokens in the output of a chat template, in order.
    pub(crate) fn specials_in(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let mut ids = self.with_specials(text)?;
        ids.retain(|id| self.special.contains(id));
        Ok(ids)
    }

    /// The special tokens as text.
    pub(crate) fn special_words(&self) -> Vec<String> {
        let added = self.library.get_added_tokens_decoder().into_values();
        let special = added.filter(|token| token.special && !token.content.is_empty());
        special.map(|token| token.content).collect()
    }

    /// The ids that can occur inside texts: the whole vocabulary except special tokens and, for BERT, unused places,
    /// which are marked by brackets.
    pub fn ordinary_ids(&self) -> Vec<u32> {
        let all = self.library.get_vocab(true).into_iter();
        let bracketed = |token: &str| token.starts_with('[') && token.ends_with(']') && token.len() > 2;
        let unused = |token: &str| self.kind == Kind::WordPiece && bracketed(token);
        let reserved = |id: &u32| self.reserved.contains(id) || self.special.contains(id);
        let mut ids: Vec<u32> = all.filter(|(token, id)| !unused(token) && !reserved(id)).map(|(_, id)| id).collect();
        ids.sort_unstable();
        ids
    }

    /// A token as it is read; its name in the vocabulary, if its bytes alone are no text.
    pub fn token(&self, id: u32) -> String {
        let read = self.library.decode(&[id], false).ok().filter(|text| !text.contains('\u{fffd}'));
        read.or_else(|| self.library.id_to_token(id)).unwrap_or_default()
    }

    /// A text of these tokens, between special tokens if the model uses them.
    pub fn surrounded(&self, inside: impl IntoIterator<Item = u32>) -> TokenIds {
        let [first, last] = self.around;
        let inside = first.into_iter().chain(inside);
        TokenIds::new(inside.chain(last).collect())
    }

    /// A decoder from token ids to text; `None` if the model does not generate.
    pub fn decoder(&self) -> Option<Decoder> {
        self.bytes.clone().map(Decoder::new)
    }

    /// The token that the tokenizer puts before every text, if it puts one there.
    pub(crate) fn first(&self) -> Option<u32> {
        self.around[0]
    }

    /// The id that padding uses.
    pub fn padding_id(&self) -> u32 {
        self.padding
    }

    /// The name of the padding token.
    pub(crate) fn padding(&self) -> &'static str {
        self.kind.padding()
    }

    /// Whether texts are converted to lower case.
    pub fn lower_case(&self) -> bool {
        self.lower_case
    }
}
