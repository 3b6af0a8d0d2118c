//! Pooling in packed rows: the answer of each text is in its first row, a pair of columns a place, and everything else
//! is 0 before noise is added.

use hushed_ckks::Complex64;
use hushed_model::{Pool, StepId};

use super::rows::{Kept, PackedRows};
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::levels::above;
use crate::ops::pool::factor;
use crate::packing::sums::over_rows;
use crate::packing::{Layout, PackingError, Spread};
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
    let limbs = above(on, on.floor())?;
    let share = |text: usize| match how {
        Pool::Mean => 1.0 / rows.length(text).max(1) as f64,
        _ => 1.0,
    };
    let mut pooled = Vec::with_capacity(x.columns.len());
    for (vector, v) in x.columns.iter().enumerate() {
        let mut v = on.drop_to(v, limbs)?;
        if how == Pool::Mean {
            v = over_rows(on, rows.layout(), &v)?;
        }
        let number = |list: &[f64], text: usize, row: usize, place: usize, part: usize| {
            let column = columns.columns_at(vector, place).map(|both| both[part]);
            let number = column.and_then(|c| list.get(c)).copied().unwrap_or(0.0);
            f64::from(u8::from(rows.holds(Kept::First, text, row))) * number
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
        pooled.push(on.add_pairs(on.pair(a, b)?, &offsets)?);
    }
    Ok(pooled)
}

/// The pooled rows of the first `texts` texts from decrypted vectors, as the client reads them.
///
/// # Errors
/// [`PackingError`] for another number of vectors or slots, or too many texts.
pub fn unpack(
    layout: Layout,
    columns: &Spread,
    texts: usize,
    vectors: &[Vec<Complex64>],
) -> Result<Vec<Vec<f64>>, PackingError> {
    let whole = vectors.iter().all(|v| v.len() == layout.slots());
    if !whole || vectors.len() != columns.vectors() || texts > layout.texts() {
        return Err(PackingError::Mismatch);
    }
    let number = |text: usize, column: usize| {
        let (vector, place, part) = columns.place(column);
        let z = vectors[vector][layout.slot(text, 0, place)];
        if part == 0 { z.re } else { z.im }
    };
    let row = |text: usize| (0..columns.width()).map(|c| number(text, c)).collect();
    Ok((0..texts).map(row).collect())
}
