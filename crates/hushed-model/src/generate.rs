//! Greedy generation in the clear: takes the token with the largest logit, again and again.

pub mod drafts;

use self::drafts::{right, runnable};
use crate::arch::Task;
use crate::error::{ModelError, TextError};
use crate::matrix::Matrix;
use crate::model::Model;
use crate::plain::{self, PlainCache};
use crate::program::{StepId, same};
use crate::tokens::TokenIds;

/// Why a generated text ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The model gave the end token, which is not part of the text.
    EndToken,
    /// It has as many tokens as requested.
    Most,
    /// The position table has no more rows.
    Positions,
}

/// How a text was continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Continued {
    /// Why it ends.
    pub ending: Ending,
    /// Passes through the model.
    pub passes: usize,
    /// Drafts in these passes.
    pub drafts: usize,
    /// Drafts that were right.
    pub right: usize,
}

/// Continues a text by at most `most` tokens, each shown as it comes. The text and its continuation have at most
/// [`Public::max_tokens`](crate::Public::max_tokens) tokens. Among equal logits the lowest id wins.
///
/// # Errors
/// [`ModelError::NotAGenerator`]; [`TextError::NoRoom`] if there is no room for a token; those of [`plain::run`].
pub fn greedy(model: &Model, text: &TokenIds, most: usize, mut see: impl FnMut(u32)) -> Result<Ending, ModelError> {
    let none = |_: &[u32], _| Vec::new();
    let shown = |token, _: &[f64]| see(token);
    Ok(drafted(model, text, most, (0, none), shown)?.ending)
}

/// As [`greedy`], but every pass after the first verifies at most `n` [`drafts`], the tokens that `guess` gives after
/// the text so far. Each token is shown with the logits of which it is the largest.
///
/// # Errors
/// Those of [`greedy`].
pub fn drafted(
    model: &Model,
    text: &TokenIds,
    most: usize,
    (n, mut guess): (usize, impl FnMut(&[u32], usize) -> Vec<u32>),
    mut see: impl FnMut(u32, &[f64]),
) -> Result<Continued, ModelError> {
    if model.public.task() != Task::Generate {
        return Err(ModelError::NotAGenerator);
    }
    let (last_row, all_rows) = (model.program(), model.program_of_all_logits());
    let mut ids = text.ids()[..text.rows().real].to_vec();
    let (tokens, limit) = (ids.len(), model.public.max_tokens);
    if tokens >= limit {
        return Err(TextError::NoRoom { tokens, limit }.into());
    }
    let mut cache = PlainCache::default();
    let mut done = Continued { ending: Ending::Most, passes: 0, drafts: 0, right: 0 };
    let end = tokens.saturating_add(most);
    while ids.len() < end {
        if ids.len() == limit {
            done.ending = Ending::Positions;
            break;
        }
        // The most tokens that a pass can give beyond the one that it gives anyway.
        let room = n.min(end.min(limit) - ids.len() - 1);
        let drafts = match (cache.rows(), room) {
            (0, _) | (_, 0) => Vec::new(),
            _ => runnable(guess(&ids, room), room, model.public.config.vocabulary),
        };
        let program = if drafts.is_empty() { &last_row } else { &all_rows };
        let rows = [&ids[cache.rows()..], &drafts].concat();
        let logits = plain::run_next(program, &mut cache, TokenIds::new(rows))?.values;
        let said: Vec<u32> = (0..logits.rows()).map(|i| largest(logits.row(i))).collect();
        let right = right(&drafts, &said);
        cache.keep(cache.rows() - (drafts.len() - right));
        done.passes += 1;
        done.drafts += drafts.len();
        done.right += right;
        for (row, &token) in said[..=right].iter().enumerate() {
            if model.public.end_tokens.contains(&token) {
                done.ending = Ending::EndToken;
                return Ok(done);
            }
            see(token, logits.row(row));
            ids.push(token);
        }
    }
    Ok(done)
}

/// The most likely next tokens, at most `most` and in decreasing order, with their log probabilities. Takes the hidden
/// state of the last row, d numbers, and a head of shape `tokens × d`.
///
/// # Errors
/// [`ModelError::Mismatch`] if the hidden state has another width.
pub fn likeliest(head: &Matrix<f32>, hidden: &[f64], most: usize) -> Result<Vec<(u32, f64)>, ModelError> {
    Ok(likeliest_of(&logits(head, hidden)?, most))
}

/// As [`likeliest`], from logits.
#[must_use]
pub fn likeliest_of(logits: &[f64], most: usize) -> Vec<(u32, f64)> {
    let all = log_sum(logits);
    let mut tokens: Vec<(u32, f64)> = (0..).zip(logits.iter().map(|l| l - all)).collect();
    // The sort is stable: among equal ones the first comes first.
    tokens.sort_by(|a, b| b.1.total_cmp(&a.1));
    tokens.truncate(most);
    tokens
}

/// The log probabilities of all tokens as the next one; arguments as for [`likeliest`].
///
/// # Errors
/// Those of [`likeliest`].
pub fn log_probabilities(head: &Matrix<f32>, hidden: &[f64]) -> Result<Vec<f64>, ModelError> {
    let logits = logits(head, hidden)?;
    let all = log_sum(&logits);
    Ok(logits.into_iter().map(|l| l - all).collect())
}

fn logits(head: &Matrix<f32>, hidden: &[f64]) -> Result<Vec<f64>, ModelError> {
    same(StepId::outside("head"), "columns", hidden.len(), head.cols())?;
    let logit = |row: &[f32]| -> f64 {
        let products = row.iter().zip(hidden).map(|(&w, x)| f64::from(w) * x);
        products.sum()
    };
    Ok((0..head.rows()).map(|i| logit(head.row(i))).collect())
}

/// The logarithm of the sum of the exponentials of the logits. A logit minus this is the log probability of its token.
pub fn log_sum(logits: &[f64]) -> f64 {
    let greatest = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|l| (l - greatest).exp()).sum();
    greatest + sum.ln()
}

/// The index of the largest number, the first among equal ones.
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
    use super::{largest, likeliest};
    use crate::matrix::Matrix;

    /// Compared with probabilities computed by hand.
    #[test]
    fn probabilities_are_of_all_tokens() {
        let head = Matrix::new(3, 2, vec![1.0, 0.0, 0.0, 1.0, -1.0, 2.0]).unwrap();
        let found = likeliest(&head, &[0.5, 1.0], 2).unwrap();
        let sum = 0.5_f64.exp() + 1.0_f64.exp() + 1.5_f64.exp();
        assert_eq!((found[0].0, found[1].0, found.len()), (2, 1, 2));
        assert!((found[0].1 - (1.5 - sum.ln())).abs() < 1e-12);
        assert!((found[1].1 - (1.0 - sum.ln())).abs() < 1e-12);
        assert!(likeliest(&head, &[0.5], 2).is_err());
    }

    #[test]
    fn the_first_of_equal_ones() {
        assert_eq!(largest(&[1.0, 3.0, -1.0, 3.0]), 1);
        assert_eq!(largest(&[-2.0, -1.5]), 1);
        assert_eq!(largest(&[f64::NEG_INFINITY]), 0);
    }
}
