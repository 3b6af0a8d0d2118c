//! Pooling in packed rows: the answer of each text is in its first row, a pair of columns per place, and everything
//! else is 0 before noise is added. A decoder's answer is in its last row, or in all rows.

use std::ops::Range;

use hushed_ckks::Complex64;
use hushed_model::{Pool, StepId};

use super::rows::{Kept, PackedRows, Shares, plus_both, times_both};
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::levels::{above, above_by};
use crate::ops::norm::product;
use crate::ops::pool::factor;
use crate::packing::sums::over_rows;
use crate::packing::{Layout, PackingError, Spread};
use crate::plan::public_plan::AnswerRows;
use crate::slots::Slots;

/// The pooled rows, as vectors of pairs laid out like the columns, from columns that have a level.
///
/// # Errors
/// [`FheError::Unsupported`] for last-row and max pooling; too few levels, a missing rotation key.
pub fn pool<S: Slots>(
    on: &S,
    at: StepId,
    x: &Acts<S::Value>,
    how: Pool,
    rows: &PackedRows<S::Value>,
    columns: &Spread,
) -> Result<Vec<S::Value>, FheError> {
    // The server divides, by a plaintext or an encrypted number.
    factor(how, true)?;
    on.at(at);
    let share = match how {
        Pool::Mean => rows.shares(),
        _ => Shares::One,
    };
    let limbs = above(on, on.floor())?;
    let of = |v: &S::Value| {
        let v = on.drop_to(v, limbs)?;
        match how {
            Pool::Mean => over_rows(on, rows.layout(), &v),
            _ => Ok(v),
        }
    };
    each(on, of, (x, columns), rows, (Kept::First, share))
}

/// A decoder's hidden states, as vectors of pairs laid out like the columns, from columns that have a level: of the
/// last row, or of all rows, with padding rows 0.
///
/// # Errors
/// Too few levels.
pub fn states<S: Slots>(
    on: &S,
    at: StepId,
    x: &Acts<S::Value>,
    rows: &PackedRows<S::Value>,
    columns: &Spread,
    answer: AnswerRows,
) -> Result<Vec<S::Value>, FheError> {
    on.at(at);
    let kept = match answer {
        AnswerRows::Last | AnswerRows::Logits => Kept::Last,
        AnswerRows::Rows => Kept::All,
    };
    let limbs = above(on, on.floor())?;
    each(on, |v| on.drop_to(v, limbs), (x, columns), rows, (kept, Shares::One))
}

/// `of` each vector, times the gains and the share of its text in rows `kept`, plus the offsets there.
fn each<S: Slots>(
    on: &S,
    of: impl Fn(&S::Value) -> Result<S::Value, FheError>,
    (x, columns): (&Acts<S::Value>, &Spread),
    rows: &PackedRows<S::Value>,
    (kept, share): (Kept, Shares<'_, S::Value>),
) -> Result<Vec<S::Value>, FheError> {
    // Gains are divided by known numbers or multiplied by hidden shares. Offsets are the server's weights: they must
    // not show without a token, or with invalid shares.
    let (known, hidden, ones) = match share {
        Shares::One => (None, None, None),
        Shares::Known(lengths) => (Some(lengths), None, None),
        Shares::Hidden { tokens, shares } => {
            let limbs = above_by(on, on.floor(), 2)?;
            let counted = over_rows(on, rows.layout(), &on.drop_to(tokens, limbs)?)?;
            (None, Some(shares), Some(product(on, &counted, shares)?))
        }
    };
    let mut answer = Vec::with_capacity(x.columns.len());
    for (vector, v) in x.columns.iter().enumerate() {
        let v = of(v)?;
        let number = |list: &[f64], text: usize, row: usize, place: usize, part: usize| {
            let column = columns.columns_at(vector, place).map(|both| both[part]);
            let number = column.and_then(|c| list.get(c)).copied().unwrap_or(0.0);
            f64::from(u8::from(rows.holds(kept, text, row))) * number
        };
        let mut parts = Vec::with_capacity(2);
        for (part, v) in on.parts(&v)?.into_iter().enumerate() {
            let gain = rows.numbers(on, |text, row, place| {
                let rows = known.and_then(|lengths| lengths.get(text).copied());
                let gain = number(&x.gain, text, row, place, part);
                gain / rows.unwrap_or(1).max(1) as f64
            });
            parts.push(times_both(on, &v, hidden, &gain, on.default_scale())?);
        }
        let [a, b] = <[S::Value; 2]>::try_from(parts).map_err(|_| PackingError::Mismatch)?;
        let offsets = rows.pairs(on, |text, row, place| {
            let at = |part| number(&x.offset, text, row, place, part);
            Complex64::new(at(0), at(1))
        });
        answer.push(plus_both(on, on.pair(a, b)?, ones.as_ref(), &offsets)?);
    }
    Ok(answer)
}

/// The two vectors that a client encrypts, as the parts of one, if lengths are private: 1 in all places of token rows,
/// and, in all places of a text, 1 over the number of its token rows.
#[must_use]
pub fn hidden_rows(layout: Layout, lengths: &[usize]) -> [Vec<f64>; 2] {
    let mut both = [vec![0.0; layout.slots()], vec![0.0; layout.slots()]];
    for (text, &length) in lengths.iter().enumerate().take(layout.texts()) {
        for row in 0..layout.rows() {
            let token = f64::from(u8::from(row < length));
            let first = layout.slot(text, row, 0);
            for (slots, number) in both.iter_mut().zip([token, 1.0 / length.max(1) as f64]) {
                slots[first..first + layout.columns()].fill(number);
            }
        }
    }
    both
}

/// Reads the given rows of each text, concatenated, from decrypted vectors, as the client does: the first row of pooled
/// texts, [`ends`] of a decoder's texts.
///
/// # Errors
/// [`PackingError`] for a wrong number of vectors or slots, too many texts, or rows that do not exist.
pub fn unpack(
    layout: Layout,
    columns: &Spread,
    texts: &[Range<usize>],
    vectors: &[Vec<Complex64>],
) -> Result<Vec<Vec<f64>>, PackingError> {
    let whole = vectors.iter().all(|v| v.len() == layout.slots());
    let inside = texts.iter().all(|rows| rows.end <= layout.rows());
    if !whole || !inside || vectors.len() != columns.vectors() || texts.len() > layout.texts() {
        return Err(PackingError::Mismatch);
    }
    let number = |text: usize, row: usize, column: usize| {
        let (vector, place, part) = columns.place(column);
        let z = vectors[vector][layout.slot(text, row, place)];
        if part == 0 { z.re } else { z.im }
    };
    let of = |(text, rows): (usize, &Range<usize>)| {
        let row = |row| (0..columns.width()).map(move |c| number(text, row, c));
        rows.clone().flat_map(row).collect()
    };
    Ok(texts.iter().enumerate().map(of).collect())
}

/// The rows at which a decoder's texts of these lengths are read.
#[must_use]
pub fn ends(layout: Layout, lengths: &[usize], answer: AnswerRows) -> Vec<Range<usize>> {
    let rows = layout.rows();
    let of = |&length: &usize| match answer {
        AnswerRows::Last | AnswerRows::Logits => rows - 1..rows,
        AnswerRows::Rows => rows - length.min(rows)..rows,
    };
    lengths.iter().map(of).collect()
}
