//! Greedy generation in the clear: the token of the largest logit, again and again.

use crate::arch::Task;
use crate::error::{ModelError, TextError};
use crate::model::Model;
use crate::plain::{self, PlainCache};
use crate::tokens::TokenIds;

/// Why a generated text ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The model gave the token that ends a text, which is not part of it.
    EndToken,
    /// As many tokens as were asked for.
    Most,
    /// The position table has no more rows.
    Positions,
}

/// Continues a text by at most `most` tokens, each shown as it comes; the text and what follows have at most
/// [`Public::max_tokens`](crate::Public::max_tokens) tokens. Of equal logits the least id is taken.
///
/// # Errors
/// [`ModelError::NotAGenerator`]; [`TextError::NoRoom`] if not one token has room; those of [`plain::run`].
pub fn greedy(
    model: &Model,
    text: &TokenIds,
    most: usize,
    mut see: impl FnMut(u32),
) -> Result<Ending, ModelError> {
    if model.public.task() != Task::Generate {
        return Err(ModelError::NotAGenerator);
    }
    let program = model.program();
    let mut new = text.ids()[..text.rows().real].to_vec();
    let limit = model.public.max_tokens;
    let tokens = new.len();
    if tokens >= limit {
        return Err(TextError::NoRoom { tokens, limit }.into());
    }
    let mut cache = PlainCache::default();
    for made in 0..most {
        if tokens + made == limit {
            return Ok(Ending::Positions);
        }
        let logits = plain::run_next(&program, &mut cache, TokenIds::new(new))?;
        let token = largest(logits.values.row(0));
        if Some(token) == model.public.end_token {
            return Ok(Ending::EndToken);
        }
        see(token);
        new = vec![token];
    }
    Ok(Ending::Most)
}

/// The place of the largest number, the first of equal ones.
pub fn largest(logits: &[f64]) -> u32 {
    let mut best = (0, f64::NEG_INFINITY);
    for (place, &logit) in (0u32..).zip(logits) {
        if logit > best.1 {
            best = (place, logit);
        }
    }
    best.0
}

#[cfg(test)]
mod tests {
    use super::largest;

    #[test]
    fn the_first_of_equal_ones() {
        assert_eq!(largest(&[1.0, 3.0, -1.0, 3.0]), 1);
        assert_eq!(largest(&[-2.0, -1.5]), 1);
        assert_eq!(largest(&[f64::NEG_INFINITY]), 0);
    }
}
