//! The values of nodes while a tape is run.

use std::sync::Arc;

use rayon::prelude::*;

use crate::error::FheError;
use crate::slots::Slots;

/// Rows of vectors.
pub(super) type Rows<V> = Vec<Vec<V>>;

/// The value of a node: a block, or the unfinished sums of a map.
pub(crate) enum Held<S: Slots> {
    Block(Arc<Rows<S::Value>>),
    Sums(S::Partial),
}

impl<S: Slots> Held<S> {
    /// One row.
    pub fn row(vectors: Vec<S::Value>) -> Held<S> {
        Held::Block(Arc::new(vec![vectors]))
    }

    /// The vectors; none of unfinished sums.
    pub fn vectors(&self) -> Vec<&S::Value> {
        match self {
            Held::Block(rows) => rows.iter().flatten().collect(),
            Held::Sums(_) => Vec::new(),
        }
    }
}

/// The rows, copied only if somebody else reads them.
pub(super) fn owned_rows<V: Clone>(x: Arc<Rows<V>>) -> Rows<V> {
    Arc::try_unwrap(x).unwrap_or_else(|shared| (*shared).clone())
}

/// `f` of the number of each vector and the vector.
pub(super) fn each<V: Send + Sync>(
    x: &Rows<V>,
    f: &(dyn Fn(usize, &V) -> Result<V, FheError> + Sync),
) -> Result<Rows<V>, FheError> {
    let width = x.first().map_or(1, Vec::len).max(1);
    let flat: Vec<&V> = x.iter().flatten().collect();
    let made = flat.into_par_iter().enumerate().map(|(k, v)| f(k, v)).collect::<Result<Vec<V>, _>>()?;
    Ok(split(made, width))
}

/// As [`each`], of vectors that nobody else reads.
pub(super) fn owned<V: Send>(
    x: Rows<V>,
    f: &(dyn Fn(usize, V) -> Result<V, FheError> + Sync),
) -> Result<Rows<V>, FheError> {
    let width = x.first().map_or(1, Vec::len).max(1);
    let flat: Vec<V> = x.into_iter().flatten().collect();
    let made = flat.into_par_iter().enumerate().map(|(k, v)| f(k, v)).collect::<Result<Vec<V>, _>>()?;
    Ok(split(made, width))
}

fn split<V>(vectors: Vec<V>, width: usize) -> Rows<V> {
    let (mut rows, mut rest) = (Vec::with_capacity(vectors.len().div_ceil(width)), vectors.into_iter());
    while rest.len() > 0 {
        rows.push(rest.by_ref().take(width).collect());
    }
    rows
}
