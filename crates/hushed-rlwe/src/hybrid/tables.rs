//! What key switching prepares once per shape; kept with the parameters.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use hushed_math::{BaseConverter, MathError};

use crate::params::RlweParams;

/// The conversions for all shapes used so far.
#[derive(Default)]
pub(crate) struct Tables {
    up: Cache<(Range<usize>, usize, usize, usize), Lift>,
    down: Cache<(usize, usize, usize, usize), Down>,
}

/// Converts from some primes to others, one tile of targets at a time.
pub(crate) struct Lift {
    /// Each tile's conversion to those of its primes that are not sources; `None` if there are none.
    pub(crate) tiles: Vec<Option<BaseConverter>>,
}

/// Division by some of the primes.
pub(crate) struct Down {
    pub(crate) lift: Lift,
    /// 1 over the product of the dropped primes, for each remaining prime.
    pub(crate) inverses: Vec<u64>,
}

/// Primes per tile, at most `longest`: at least as many tiles as threads, of roughly equal length. Results do not
/// depend on it.
pub(super) fn tile_length(limbs: usize, longest: usize) -> usize {
    let threads = rayon::current_num_threads();
    let tiles = limbs.div_ceil(longest).next_multiple_of(threads);
    limbs.div_ceil(tiles).max(1)
}

/// Splits the primes of an extended polynomial into tiles: ciphertext primes first, then special primes.
pub(super) fn tiles(
    params: &RlweParams,
    limbs: usize,
    special: usize,
    tile: usize,
) -> Vec<Vec<usize>> {
    let ids = params.extended_ids_with(limbs, special);
    let (ciphertext, special) = ids.split_at(limbs);
    let parts = ciphertext.chunks(tile).chain(special.chunks(tile));
    parts.map(<[usize]>::to_vec).collect()
}

impl Tables {
    /// The lift of the digit with the primes `digit` of a ciphertext of `limbs` primes, extended by `special` special
    /// primes, in [`tiles`] of `tile` primes.
    pub(crate) fn up(
        &self,
        params: &RlweParams,
        digit: &Range<usize>,
        [limbs, special, tile]: [usize; 3],
    ) -> Result<Arc<Lift>, MathError> {
        self.up.get((digit.clone(), limbs, special, tile), || {
            let from: Vec<usize> = digit.clone().collect();
            Lift::new(params, &from, tiles(params, limbs, special, tile))
        })
    }

    /// The tables for dividing by the first `special` special primes and the last `rescaled` of `limbs` primes, in
    /// tiles of `tile` primes.
    pub(crate) fn down(
        &self,
        params: &RlweParams,
        [limbs, special, rescaled, tile]: [usize; 4],
    ) -> Result<Arc<Down>, MathError> {
        self.down.get((limbs, special, rescaled, tile), || {
            let stay = limbs - rescaled;
            let mut from = params.extended_ids_with(limbs, special);
            let to: Vec<usize> = from.drain(..stay).collect();
            let inverse = |&id: &usize| params.inverse_modulo(from.iter().copied(), id);
            let tiles = to.chunks(tile).map(<[usize]>::to_vec).collect();
            Ok(Down {
                lift: Lift::new(params, &from, tiles)?,
                inverses: to.iter().map(inverse).collect(),
            })
        })
    }
}

impl Lift {
    fn new(params: &RlweParams, from: &[usize], tiles: Vec<Vec<usize>>) -> Result<Self, MathError> {
        let converter = |mut ids: Vec<usize>| {
            ids.retain(|id| !from.contains(id));
            let made = BaseConverter::new(params.basis(), from, &ids);
            (!ids.is_empty()).then_some(made).transpose()
        };
        let tiles = tiles.into_iter().map(converter).collect::<Result<_, _>>()?;
        Ok(Self { tiles })
    }

    /// Computes the conversion terms in place; see [`BaseConverter::prepare`]. Strips may go to several threads.
    pub(super) fn prepare(&self, terms: &mut [&mut [u64]]) {
        if let Some(converter) = self.tiles.iter().flatten().next() {
            converter.prepare(terms);
        }
    }
}

struct Cache<K, V>(RwLock<HashMap<K, Arc<V>>>);

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: Eq + Hash, V> Cache<K, V> {
    fn get(
        &self,
        key: K,
        make: impl FnOnce() -> Result<V, MathError>,
    ) -> Result<Arc<V>, MathError> {
        // A panic while the lock is held leaves the map unchanged.
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = known.get(&key) {
            return Ok(value.clone());
        }
        drop(known);
        let made = Arc::new(make()?);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Ok(known.entry(key).or_insert(made).clone())
    }
}
