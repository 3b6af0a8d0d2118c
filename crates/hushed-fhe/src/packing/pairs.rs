//! Columns in pairs: slots are complex and columns are real, so one vector holds two columns.
//!
//! ```text
//! (a + i·b)·(c − i·d) = (a·c + b·d) + i·(b·c − a·d)
//! x·(a + i·b)         = x·a + i·x·b
//! ```
//!
//! The first halves the rotations and products of Q·Kᵀ: sums of products are the real parts of sums over pairs, and one
//! conjugation per diagonal removes the imaginary parts. The second halves all of P·V: results are pairs as well, and
//! one conjugation separates the columns of a pair. (MOAI and similar schemes hold one real column per ciphertext.)

use rayon::prelude::*;

use super::{Columns, Interleave};
use crate::{FheError, Slots};

/// Columns a and b of a batch of matrices as a + i·b, or as a − i·b for the right operand of a product of pairs. With
/// an odd number of columns the last stands alone, as a + 0·i.
#[derive(Clone, Debug)]
pub struct Pairs<V> {
    pub(super) layout: Interleave,
    pub(super) vectors: Vec<V>,
    width: usize,
}

impl<V: Send> Pairs<V> {
    /// Packs columns as a + i·b. Takes no level and no key.
    ///
    /// # Errors
    /// If scales or primes differ.
    pub fn new<S: Slots<Value = V>>(on: &S, columns: Columns<V>) -> Result<Pairs<V>, FheError> {
        Self::joined(columns, |a, b| on.pair(a, b))
    }

    /// Packs columns as a − i·b: the right operand of [`super::products::scores`].
    ///
    /// # Errors
    /// As [`Pairs::new`].
    pub fn conjugate<S: Slots<Value = V>>(on: &S, columns: Columns<V>) -> Result<Pairs<V>, FheError> {
        Self::joined(columns, |a, b| on.pair_conjugate(a, b))
    }

    /// Vectors that are already packed this way, with this many columns.
    pub fn from_vectors(layout: Interleave, vectors: Vec<V>, width: usize) -> Pairs<V> {
        Pairs { layout, vectors, width }
    }

    /// Appends a column, in a vector of its own.
    pub fn push(&mut self, column: V) {
        self.vectors.push(column);
        self.width += 1;
    }

    /// The packing.
    pub fn layout(&self) -> Interleave {
        self.layout
    }

    /// The width of the matrices.
    pub fn width(&self) -> usize {
        self.width
    }

    /// One vector per pair.
    pub fn vectors(&self) -> &[V] {
        &self.vectors
    }

    /// One vector per pair.
    pub fn into_vectors(self) -> Vec<V> {
        self.vectors
    }

    /// Separates pairs into columns, at twice the scale, with one conjugation per pair.
    ///
    /// # Errors
    /// If there is no key for conjugations.
    pub fn into_columns<S: Slots<Value = V>>(self, on: &S) -> Result<Columns<V>, FheError>
    where
        V: Sync,
    {
        let parts = self.vectors.par_iter().map(|pair| on.parts(pair));
        let parts = parts.collect::<Result<Vec<_>, FheError>>()?;
        let mut vectors: Vec<V> = parts.into_iter().flatten().collect();
        vectors.truncate(self.width);
        Ok(Columns::from_vectors(self.layout, vectors))
    }

    fn joined(columns: Columns<V>, join: impl Fn(V, V) -> Result<V, FheError> + Sync) -> Result<Pairs<V>, FheError> {
        let (layout, width) = (columns.layout, columns.width());
        Ok(Pairs { layout, vectors: in_twos(columns.vectors, join)?, width })
    }
}

/// Joins vectors two by two; of an odd number, the last stays as it is.
pub(crate) fn in_twos<V: Send>(
    vectors: Vec<V>,
    join: impl Fn(V, V) -> Result<V, FheError> + Sync,
) -> Result<Vec<V>, FheError> {
    let both = |(a, b)| match b {
        Some(b) => join(a, b),
        None => Ok(a),
    };
    twos(vectors).into_par_iter().map(both).collect()
}

/// Two by two; of an odd number, the last is alone.
fn twos<V>(vectors: Vec<V>) -> Vec<(V, Option<V>)> {
    let mut rest = vectors.into_iter();
    std::iter::from_fn(|| rest.next().map(|a| (a, rest.next()))).collect()
}
