//! The values of nodes while a tape is run.

use std::sync::Arc;

use rayon::prelude::*;

use crate::error::FheError;
use crate::slots::Slots;

/// Rows of vectors.
pub(crate) type Rows<V> = Vec<Vec<V>>;

/// Vectors that are spilled together.
const TOGETHER: usize = 32;

/// The value of a node: a block, in memory or on disk, or the unfinished sums of a map.
pub(crate) enum Held<S: Slots> {
    Block(Arc<Rows<S::Value>>),
    /// With the vectors of each row.
    Stored(Vec<S::Stored>, usize),
    Sums(S::Partial),
    /// The unfinished sum of squares.
    Squares(S::Sum),
}

impl<S: Slots> Held<S> {
    /// One row.
    pub fn row(vectors: Vec<S::Value>) -> Held<S> {
        Held::Block(Arc::new(vec![vectors]))
    }

    /// The vectors in memory; none of unfinished sums.
    #[cfg(test)]
    pub fn vectors(&self) -> Vec<&S::Value> {
        match self {
            Held::Block(rows) => rows.iter().flatten().collect(),
            Held::Stored(..) | Held::Sums(_) | Held::Squares(_) => Vec::new(),
        }
    }

    /// The rows in memory.
    #[cfg(test)]
    pub fn rows(&self) -> &[Vec<S::Value>] {
        match self {
            Held::Block(rows) => rows,
            Held::Stored(..) | Held::Sums(_) | Held::Squares(_) => &[],
        }
    }

    /// On disk, cut to these primes.
    ///
    /// # Errors
    /// As [`Slots::store`].
    pub fn stored(self, on: &S, limbs: usize) -> Result<Held<S>, FheError> {
        let Held::Block(rows) = self else {
            return Ok(self);
        };
        let width = rows.first().map_or(1, Vec::len);
        let mut stored = Vec::new();
        let mut store = |block: Vec<Result<S::Value, FheError>>| {
            stored.push(on.store(block.into_iter().collect::<Result<_, _>>()?)?);
            Ok::<_, FheError>(())
        };
        match Arc::try_unwrap(rows) {
            Ok(rows) => {
                let mut vectors = rows.into_iter().flatten().peekable();
                while vectors.peek().is_some() {
                    let block = vectors.by_ref().take(TOGETHER);
                    store(block.map(|v| if on.limbs(&v) > limbs { on.drop_to(&v, limbs) } else { Ok(v) }).collect())?;
                }
            }
            // Others read them: only what is stored next is copied.
            Err(shared) => {
                let vectors: Vec<&S::Value> = shared.iter().flatten().collect();
                let low = |v: &&S::Value| on.drop_to(v, limbs.min(on.limbs(v)));
                vectors.chunks(TOGETHER).try_for_each(|block| store(block.iter().map(low).collect()))?;
            }
        }
        Ok(Held::Stored(stored, width))
    }

    /// Back in memory.
    ///
    /// # Errors
    /// As [`Slots::load`].
    pub fn loaded(self, on: &S) -> Result<Held<S>, FheError> {
        let Held::Stored(stored, width) = self else {
            return Ok(self);
        };
        let vectors = stored.into_iter().map(|block| on.load(block)).collect::<Result<Vec<_>, _>>()?;
        Ok(Held::Block(Arc::new(split(vectors.into_iter().flatten().collect(), width.max(1)))))
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

pub(super) fn split<V>(vectors: Vec<V>, width: usize) -> Rows<V> {
    let (mut rows, mut rest) = (Vec::with_capacity(vectors.len().div_ceil(width)), vectors.into_iter());
    while rest.len() > 0 {
        rows.push(rest.by_ref().take(width).collect());
    }
    rows
}
