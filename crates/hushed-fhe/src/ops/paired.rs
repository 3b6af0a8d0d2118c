//! Two columns in each vector, for runs that lack the memory for one column per vector.
//!
//! Columns 2k and 2k + 1 are the real and the imaginary part of vector k. A map needs them apart, so it reads pairs in
//! blocks: a conjugation splits each pair, and its two columns are dropped once their products are in the sums. This
//! halves the memory of the columns, and costs each map that reads them one key switch per pair.

use hushed_ckks::Scale;
use hushed_lower::LinearMap;
use rayon::prelude::*;

use crate::error::FheError;
use crate::ops::levels::dropped;
use crate::packing::PackingError;
use crate::slots::Slots;

/// Pairs split or multiplied at once.
pub const BLOCK: usize = 32;

/// The columns that a block's maps read, with one scale and number of primes.
pub struct Inputs<'a, V> {
    vectors: &'a [V],
    paired: bool,
}

impl<V> Clone for Inputs<'_, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Inputs<'_, V> {}

impl<'a, V> Inputs<'a, V> {
    /// One column per vector, or two if `paired`.
    pub fn of(vectors: &'a [V], paired: bool) -> Self {
        Inputs { vectors, paired }
    }

    /// Applies each map, with results at scale `target`. If `limbs` is given, the columns are dropped to that many
    /// primes first. Pairs are split once for all maps.
    ///
    /// # Errors
    /// Fails for a map of another number of columns, too few levels, and pairs without a key for conjugations.
    pub fn linear<S: Slots<Value = V>>(
        &self,
        on: &S,
        maps: &[LinearMap],
        limbs: Option<usize>,
        target: Scale,
    ) -> Result<Vec<Vec<V>>, FheError>
    where
        V: Send + Sync,
    {
        if !self.paired {
            let low = limbs
                .map(|limbs| dropped(on, self.vectors, limbs))
                .transpose()?;
            let x = low.as_deref().unwrap_or(self.vectors);
            return maps.iter().map(|map| on.linear(map, x, target)).collect();
        }
        let mut partials: Vec<Option<S::Partial>> = maps.iter().map(|_| None).collect();
        let firsts = (0..).step_by(2 * BLOCK);
        for (first, block) in firsts.zip(self.vectors.chunks(BLOCK)) {
            let low = limbs.map(|limbs| dropped(on, block, limbs)).transpose()?;
            let columns = split(on, low.as_deref().unwrap_or(block))?;
            for (map, partial) in maps.iter().zip(&mut partials) {
                let mut part = map.columns(first..first + columns.len());
                if first == 0 {
                    part.bias.clone_from(&map.bias);
                }
                *partial = Some(on.linear_add(&part, &columns, target, partial.take())?);
            }
        }
        let finish = |partial: Option<S::Partial>| match partial {
            Some(partial) => on.linear_finish(partial),
            None => Ok(Vec::new()),
        };
        partials.into_iter().map(finish).collect()
    }
}

/// Splits pairs into columns, within 1, at twice their scale. Takes one conjugation per pair.
///
/// # Errors
/// Fails without a key for conjugations.
pub fn split<S: Slots>(on: &S, pairs: &[S::Value]) -> Result<Vec<S::Value>, FheError> {
    let parts = pairs.par_iter().map(|pair| on.parts(pair));
    let parts = parts.collect::<Result<Vec<_>, FheError>>()?;
    let columns = parts.into_iter().flatten();
    Ok(columns.map(|column| on.within(column, 1.0)).collect())
}

/// Pairs columns: two per vector.
///
/// # Errors
/// Fails for an odd number of columns, and for scales or primes that differ.
pub fn joined<S: Slots>(on: &S, columns: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
    let mut pairs = Vec::with_capacity(columns.len() / 2);
    let mut rest = columns.into_iter();
    while let Some(a) = rest.next() {
        let b = rest.next().ok_or(PackingError::Mismatch)?;
        pairs.push(on.pair(a, b)?);
    }
    Ok(pairs)
}
