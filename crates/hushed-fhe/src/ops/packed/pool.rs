//! Pooling in packed rows: the answer of each text is in its first row, a pair of columns a place, and everything else
//! is 0 before noise is added. A decoder's answer is in its last row, or in all.

use std::ops::Range;

use hushed_ckks::Complex64;
use hushed_model::{Pool, StepId};

use super::rows::{Kept, PackedRows};
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::levels::above;
use crate::ops::pool::factor;
use crate::packing::sums::over_rows;
use crate::packing::{Layout, PackingError, Spread};
use crate::plan::public_plan::AnswerRows;
use crate::slots::Slots;

/// The pooled rows, vectors of pairs as the columns lie, from columns that have a level.
///
/// # Errors
/// [`FheError::Unsupported`] for the last row and for maxima; too few levels, no key for a rotation.
pub fn pool<S: Slots>(
    on: &S,
    at: StepId,
    x: &Acts<S::Value>,
    how: Pool,
    rows: &PackedRows,
    columns: &Spread,
) -> Result<Vec<S::Value>, FheError> {
    // Lengths are known.
    factor(how, true)?;
    on.at(at);
    let share = |text: usize| match how {
        Pool::Mean => 1.0 / rows.length(text).max(1) as f64,
        _ => 1.0,
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

/// A decoder's hidden states, vectors of pairs as the columns lie, from columns that have a level: of the last row, or
/// of all, where those of padding are 0.
///
/// # Errors
/// Too few levels.
pub fn states<S: Slots>(
    on: &S,
    at: StepId,
    x: &Acts<S::Value>,
    rows: &PackedRows,
    columns: &Spread,
    answer: AnswerRows,
) -> Result<Vec<S::Value>, FheError> {
    on.at(at);
    let kept = match answer {
        AnswerRows::Last | AnswerRows::Logits => Kept::Last,
        AnswerRows::Rows => Kept::All,
    };
    let limbs = above(on, on.floor())?;
    each(
        on,
        |v| on.drop_to(v, limbs),
        (x, columns),
        rows,
        (kept, |_| 1.0),
    )
}

/// `of` each vector times the gains, in rows `kept`, of each text times its share; and the offsets there.
fn each<S: Slots>(
    on: &S,
    of: impl Fn(&S::Value) -> Result<S::Value, FheError>,
    (x, columns): (&Acts<S::Value>, &Spread),
    rows: &PackedRows,
    (kept, share): (Kept, impl Fn(usize) -> f64),
) -> Result<Vec<S::Value>, FheError> {
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
                share(text) * number(&x.gain, text, row, place, part)
            });
            parts.push(on.mul_vector(&v, &gain, on.default_scale())?);
        }
        let [a, b] = <[S::Value; 2]>::try_from(parts).map_err(|_| PackingError::Mismatch)?;
        let offsets = rows.pairs(on, |text, row, place| {
            let at = |part| number(&x.offset, text, row, place, part);
            Complex64::new(at(0), at(1))
        });
        answer.push(on.add_pairs(on.pair(a, b)?, &offsets)?);
    }
    Ok(answer)
}

/// Rows of texts, of each these, one after another, from decrypted vectors, as the client reads them: of pooled texts
/// the first, of a decoder's [`ends`].
///
/// # Errors
/// [`PackingError`] for another number of vectors or slots, too many texts, or rows that there are not.
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

/// The rows that a decoder's texts of these lengths are read at.
#[must_use]
pub fn ends(layout: Layout, lengths: &[usize], answer: AnswerRows) -> Vec<Range<usize>> {
    let rows = layout.rows();
    let of = |&length: &usize| match answer {
        AnswerRows::Last | AnswerRows::Logits => rows - 1..rows,
        AnswerRows::Rows => rows - length.min(rows)..rows,
    };
    lengths.iter().map(of).collect()
}
