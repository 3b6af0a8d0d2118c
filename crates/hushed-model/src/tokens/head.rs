//! The public head of a generator's texts: the tokens with which they begin, and which are no secret. It is what a chat
//! template writes before the first words of a conversation, or the token that begins every text.
//!
//! Published decoders have massive activations at the first token of every text (Sun et al., arXiv 2402.17762). In a
//! causal model a row depends on no later one, so the rows of a public head can be run in the clear once, and no
//! private run needs formats that hold them.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::time::{Duration, SystemTime};

use super::chat::{ChatTemplate, Message, Role};
use super::{TokenIds, Tokenizer};

/// First words that tokenizers join to a line break before them, or do not, in several ways.
const WORDS: [&str; 7] = ["x", "Hello there", "\n\n\tA", " b", "7", "語", "(…"];
/// Two times that differ in every part of a date: what a template writes of a clock is not constant.
const TIMES: [u64; 2] = [1_000_000_000, 1_905_356_589];
/// The longest conversation that is rendered for it, in tokens.
const MAX_TOKENS: usize = 4096;

/// The tokens that every conversation without instructions begins with; none if the template cannot be used.
pub(crate) fn of_chat(template: &ChatTemplate, tokenizer: &Tokenizer) -> Vec<u32> {
    let mut head: Option<Vec<u32>> = None;
    for (i, words) in WORDS.iter().enumerate() {
        let question = Message { role: Role::User, content: (*words).to_owned(), name: None };
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(if i % 2 == 0 { TIMES[0] } else { TIMES[1] });
        let Ok(prompt) = template.render_at(&[question], tokenizer, time) else { return Vec::new() };
        let Ok(ids) = prompt.encode(tokenizer, MAX_TOKENS) else { return Vec::new() };
        head = Some(match head {
            Some(head) => head.into_iter().zip(ids.ids()).take_while(|(a, b)| a == *b).map(|(a, _)| a).collect(),
            None => ids.ids().to_vec(),
        });
    }
    head.unwrap_or_default()
}

impl TokenIds {
    /// How many of its first tokens are those of a public head. At least one token is left that is not.
    #[must_use]
    pub fn public_rows(&self, head: &[u32]) -> usize {
        let text = self.ids.iter().take(self.real.saturating_sub(1));
        text.zip(head).take_while(|(a, b)| a == b).count()
    }

    /// The same text with another token before it.
    pub(crate) fn behind_token(mut self, first: u32) -> TokenIds {
        self.ids.insert(0, first);
        self.real += 1;
        self.second = self.second.map(|row| row + 1);
        self
    }

    /// The same text without its first `rows` tokens.
    #[must_use]
    pub fn without_first(&self, rows: usize) -> TokenIds {
        let rows = rows.min(self.real);
        TokenIds {
            ids: self.ids.iter().skip(rows).copied().collect(),
            real: self.real - rows,
            second: self.second.map(|row| row.saturating_sub(rows)),
        }
    }
}
