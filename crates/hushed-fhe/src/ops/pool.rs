//! Pooling: one row per text of a batch, the mean of its rows or the first row, packed for the reply.
//!
//! ```text
//! mean     s_j = Σ over rows, by log2(m) rotations     column j, times gain_j/m', is kept in row j mod m of vector j/m
//! first    x_j × e_0·gain_j, moved to row j mod m one row at a time: m − 1 rotations a vector, all by one row
//! ```
//!
//! d columns become ⌈d/m⌉ vectors, one level below, and nothing else of the columns leaves the server. Rows of padding
//! are 0. If the server knows m', the number of rows of a text, the result is the answer, with the offsets of the norm
//! before added. If not, it divides by m instead and adds the offsets times m'/m (from the sum of the encrypted mask),
//! and the client divides by m'/m: for a short text that multiplies the reply's rounding error by m/m'. MOAI takes the
//! first row only.

use hushed_model::{Pool, StepId};
use rayon::prelude::*;

use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::levels::above;
use crate::packing::{Interleave, PackingError, Spread};
use crate::slots::{OwnedMask, Slots};

/// The pooled rows that leave the server.
#[derive(Clone)]
pub struct Pooled<V> {
    /// Of a batch, ⌈width/m⌉ vectors: column j of text t in row j mod m of vector j/m. In packed rows, laid out like
    /// columns.
    pub vectors: Vec<V>,
    /// The number of columns.
    pub width: usize,
    /// How the client gets the answer from the packed numbers.
    pub factor: Factor,
}

impl<V> Pooled<V> {
    /// An answer in packed rows, which the server divided if it is a mean.
    pub(crate) fn packed(vectors: Vec<V>, numbers: &Spread) -> Pooled<V> {
        Pooled { vectors, width: numbers.width(), factor: Factor::One }
    }
}

/// How a packed number depends on the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factor {
    /// The answer itself.
    One,
    /// The answer times m'/m, with m' the rows of the text: a mean where the server does not know m'.
    Rows,
}

/// The factor of a pooling; `known` says whether the server knows how many rows a text has.
///
/// # Errors
/// [`FheError::Unsupported`] for last-row and max pooling.
pub fn factor(pool: Pool, known: bool) -> Result<Factor, FheError> {
    match pool {
        Pool::Mean if !known => Ok(Factor::Rows),
        Pool::Mean | Pool::First => Ok(Factor::One),
        Pool::Last | Pool::Max => Err(FheError::Unsupported {
            what: format!("pooling {pool:?}"),
            remedy: "mean pooling and the first row can be run; use protocol 2pc for others",
        }),
    }
}

/// The rotations that [`pool`] needs keys for.
#[must_use]
pub fn rotations(layout: Interleave, pool: Pool) -> Vec<usize> {
    let m = layout.rows();
    match pool {
        Pool::Mean => (0..m.ilog2()).map(|k| layout.rotation(1 << k)).collect(),
        Pool::First if m > 1 => vec![layout.rotation(m - 1)],
        _ => Vec::new(),
    }
}

/// Pools columns with at least one level; higher ones are dropped to one. `rows` is the mask of token rows, including
/// rows that a norm replaced by constants.
///
/// # Errors
/// Too few levels, a missing rotation key, and the errors of [`factor`].
pub fn pool<S: Slots>(
    on: &S,
    at: StepId,
    x: &Acts<S::Value>,
    how: Pool,
    layout: Interleave,
    rows: &OwnedMask<S::Value>,
) -> Result<Pooled<S::Value>, FheError> {
    let factor = factor(how, matches!(rows, OwnedMask::Public(_)))?;
    let limbs = above(on, on.floor())?;
    on.at(at);
    let m = layout.rows();
    let blocks = x.columns.chunks(m).enumerate();
    let vectors = match how {
        Pool::Mean => {
            let count = counts(on, layout, rows, limbs)?;
            blocks.map(|(b, block)| mean_block(on, x, b * m, block, layout, &count, limbs)).collect::<Result<_, _>>()
        }
        _ => blocks.map(|(b, block)| first_block(on, x, b * m, block, layout, rows, limbs)).collect::<Result<_, _>>(),
    };
    Ok(Pooled { vectors: vectors?, width: x.width(), factor })
}

/// The number of token rows of a text, in each of its slots.
enum Counts<V> {
    Public(Vec<f64>),
    Private(V),
}

fn counts<S: Slots>(
    on: &S,
    layout: Interleave,
    rows: &OwnedMask<S::Value>,
    limbs: usize,
) -> Result<Counts<S::Value>, FheError> {
    match rows {
        OwnedMask::Public(mask) => {
            let texts = layout.texts();
            let of = |slot: usize| mask.iter().skip(slot % texts).step_by(texts).sum();
            Ok(Counts::Public((0..mask.len()).map(of).collect()))
        }
        OwnedMask::Private(mask) => {
            let short = on.drop_to(mask, limbs)?;
            Ok(Counts::Private(row_sums(on, layout, short)?))
        }
    }
}

/// Sums the rows of each text into every row of it.
pub(crate) fn row_sums<S: Slots>(on: &S, layout: Interleave, mut x: S::Value) -> Result<S::Value, FheError> {
    for k in 0..layout.rows().ilog2() {
        let rotated = on.rotate(&x, layout.rotation(1 << k))?;
        on.add_assign(&mut x, &rotated)?;
    }
    Ok(x)
}

fn mean_block<S: Slots>(
    on: &S,
    x: &Acts<S::Value>,
    from: usize,
    block: &[S::Value],
    layout: Interleave,
    count: &Counts<S::Value>,
    limbs: usize,
) -> Result<S::Value, FheError> {
    let m = layout.rows() as f64;
    let one = |(r, v): (usize, &S::Value)| -> Result<S::Value, FheError> {
        let sum = row_sums(on, layout, on.drop_to(v, limbs)?)?;
        let mut kept = on.plain(|| row(layout, r, x.gain[from + r]));
        match count {
            Counts::Public(counts) => {
                // A place without a text has count 0 and holds only zeros.
                let divided = kept.iter_mut().zip(counts);
                divided.for_each(|(v, c)| *v /= c.max(1.0));
            }
            Counts::Private(_) => kept.iter_mut().for_each(|v| *v /= m),
        }
        on.mul_vector(&sum, &kept, on.default_scale())
    };
    let columns: Result<Vec<S::Value>, FheError> = block.par_iter().enumerate().map(one).collect();
    let mut sum = total(on, columns?)?;
    let mut offsets = on.plain(|| rows_of(layout, &x.offset[from..from + block.len()]));
    match count {
        Counts::Public(counts) => {
            let added: Vec<f64> = offsets.iter().zip(counts).map(|(o, c)| o * c.min(1.0)).collect();
            on.add_vector(sum, &added)
        }
        Counts::Private(counts) => {
            offsets.iter_mut().for_each(|o| *o /= m);
            let added = on.mul_vector(counts, &offsets, on.default_scale())?;
            on.add_assign(&mut sum, &added)?;
            Ok(sum)
        }
    }
}

fn first_block<S: Slots>(
    on: &S,
    x: &Acts<S::Value>,
    from: usize,
    block: &[S::Value],
    layout: Interleave,
    rows: &OwnedMask<S::Value>,
    limbs: usize,
) -> Result<S::Value, FheError> {
    let scale = on.default_scale();
    // Offsets are weights: a place without a text must not show them.
    let there = match rows {
        OwnedMask::Public(_) => None,
        OwnedMask::Private(mask) => Some(on.drop_to(mask, limbs)?),
    };
    let one = |(r, v): (usize, &S::Value)| {
        let gain = on.plain(|| row(layout, 0, x.gain[from + r]));
        let mut kept = on.mul_vector(&on.drop_to(v, limbs)?, &gain, scale)?;
        if let Some(there) = &there {
            let offset = on.plain(|| row(layout, 0, x.offset[from + r]));
            on.add_assign(&mut kept, &on.mul_vector(there, &offset, scale)?)?;
        }
        Ok(kept)
    };
    let columns: Result<Vec<S::Value>, FheError> = block.par_iter().enumerate().map(one).collect();
    let packed = packed(on, layout, columns?)?;
    let OwnedMask::Public(mask) = rows else {
        return Ok(packed);
    };
    let mut offsets = on.plain(|| rows_of(layout, &x.offset[from..from + block.len()]));
    let texts = layout.texts();
    let places = offsets.iter_mut().enumerate();
    places.for_each(|(slot, o)| *o *= mask[slot % texts]);
    on.add_vector(packed, &offsets)
}

/// Packs row 0 of column r into row r, for at most m columns that are 0 in all other rows.
pub(crate) fn packed<S: Slots>(on: &S, layout: Interleave, columns: Vec<S::Value>) -> Result<S::Value, FheError> {
    let by = layout.rotation(layout.rows() - 1);
    // From the last column: each step rotates the sum by one row and adds a column in row 0.
    let mut packed: Option<S::Value> = None;
    for v in columns.into_iter().rev() {
        packed = Some(match packed {
            Some(p) => {
                let mut moved = on.rotate(&p, by)?;
                on.add_assign(&mut moved, &v)?;
                moved
            }
            None => v,
        });
    }
    Ok(packed.ok_or(PackingError::Mismatch)?)
}

fn total<S: Slots>(on: &S, values: Vec<S::Value>) -> Result<S::Value, FheError> {
    let mut values = values.into_iter();
    let mut sum = values.next().ok_or(PackingError::Mismatch)?;
    for v in values {
        on.add_assign(&mut sum, &v)?;
    }
    Ok(sum)
}

/// `value` in row r of every text, 0 elsewhere.
fn row(layout: Interleave, r: usize, value: f64) -> Vec<f64> {
    let mut v = vec![0.0; layout.slots()];
    fill(&mut v, layout, r, value);
    v
}

/// `values[r]` in row r of every text.
pub(crate) fn rows_of(layout: Interleave, values: &[f64]) -> Vec<f64> {
    let mut v = vec![0.0; layout.slots()];
    for (r, value) in values.iter().enumerate() {
        fill(&mut v, layout, r, *value);
    }
    v
}

fn fill(v: &mut [f64], layout: Interleave, r: usize, value: f64) {
    let texts = layout.texts();
    v[r * texts..(r + 1) * texts].fill(value);
}

/// Unpacks the pooled rows of texts of `lengths` rows from decrypted vectors, as the client computes them in the clear.
/// They are not scaled to unit length.
///
/// # Errors
/// [`PackingError`] for a wrong number of vectors or slots, or too many texts.
pub fn unpack(
    layout: Interleave,
    lengths: &[usize],
    width: usize,
    factor: Factor,
    vectors: &[Vec<f64>],
) -> Result<Vec<Vec<f64>>, PackingError> {
    let m = layout.rows();
    let whole = vectors.iter().all(|v| v.len() == layout.slots());
    if !whole || vectors.len() != width.div_ceil(m) {
        return Err(PackingError::Mismatch);
    }
    if lengths.len() > layout.texts() {
        return Err(PackingError::TooMany {
            texts: lengths.len(),
            room: layout.texts(),
            slots: layout.slots(),
            rows: m,
        });
    }
    let text = |(t, &length): (usize, &usize)| {
        let share = match factor {
            Factor::One => 1.0,
            Factor::Rows => m as f64 / length.max(1) as f64,
        };
        let number = |j: usize| share * vectors[j / m][layout.slot(t, j % m)];
        (0..width).map(number).collect()
    };
    Ok(lengths.iter().enumerate().map(text).collect())
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
