//! Texts of a whole vocabulary: every token once, in random order. A sample contains some thousands of the tokens, and
//! columns of an activation can respond to a single token: a text with a token that no sample had can leave intervals
//! that hundreds of texts stayed in.

use hushed_math::rng::splitmix::SplitMix;
use hushed_model::{TokenIds, Tokenizer};

/// Lengths of the texts, in turn: a token is among few others or many.
const LENGTHS: [usize; 4] = [6, 12, 24, 48];

/// Every ordinary token once, in texts of up to `rows` tokens. The same texts each time.
#[must_use]
pub fn vocabulary(tokenizer: &Tokenizer, rows: usize) -> Vec<TokenIds> {
    let ids = shuffled(tokenizer);
    let most = rows.saturating_sub(2).max(1);
    let (mut texts, mut rest) = (Vec::new(), &ids[..]);
    for length in LENGTHS.into_iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (text, after) = rest.split_at(length.min(most).min(rest.len()));
        texts.push(tokenizer.surrounded(text.iter().copied()));
        rest = after;
    }
    texts
}

/// Every ordinary token once, by Fisher-Yates: in the same order each time.
pub(crate) fn shuffled(tokenizer: &Tokenizer) -> Vec<u32> {
    let mut ids = tokenizer.ordinary_ids();
    let mut dice = SplitMix(0);
    for i in (1..ids.len()).rev() {
        ids.swap(i, (dice.next_u64() % (i as u64 + 1)) as usize);
    }
    ids
}
