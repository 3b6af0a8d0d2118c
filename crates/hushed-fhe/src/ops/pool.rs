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

use hushed_model::Pool;

use crate::error::FheError;
use crate::packing::{Interleave, PackingError};

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

/// The rotations that a pooling needs keys for.
#[must_use]
pub fn rotations(layout: Interleave, pool: Pool) -> Vec<usize> {
    let m = layout.rows();
    match pool {
        Pool::Mean => (0..m.ilog2()).map(|k| layout.rotation(1 << k)).collect(),
        Pool::First if m > 1 => vec![layout.rotation(m - 1)],
        _ => Vec::new(),
    }
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
