//! The primes that are converted to together, and the tables for them.

use std::ops::Range;
use std::sync::Arc;

use hushed_math::MathError;

use super::tables::{Down, Lift};
use crate::params::RlweParams;

/// Primes per tile, at most `longest`: at least as many tiles as threads, of roughly equal length. Results do not
/// depend on it.
pub(super) fn tile_length(limbs: usize, longest: usize) -> usize {
    let threads = rayon::current_num_threads();
    let tiles = limbs.div_ceil(longest).next_multiple_of(threads);
    limbs.div_ceil(tiles).max(1)
}

/// Splits the primes of an extended polynomial into tiles: ciphertext primes first, then special primes.
pub(super) fn tiles(params: &RlweParams, limbs: usize, special: usize, tile: usize) -> Vec<Vec<usize>> {
    let ids = params.extended_ids_with(limbs, special);
    let (ciphertext, special) = ids.split_at(limbs);
    let parts = ciphertext.chunks(tile).chain(special.chunks(tile));
    parts.map(<[usize]>::to_vec).collect()
}

/// The lift of the digit with the primes `digit` of a ciphertext of `limbs` primes, extended by `special` special
/// primes, in [`tiles`] of `tile` primes.
pub(super) fn lift(
    params: &RlweParams,
    digit: &Range<usize>,
    [limbs, special, tile]: [usize; 3],
) -> Result<Arc<Lift>, MathError> {
    let up = &params.tables().up;
    up.get((digit.clone(), limbs, special, tile), || {
        let from: Vec<usize> = digit.clone().collect();
        Lift::new(params.basis(), &from, tiles(params, limbs, special, tile))
    })
}

/// The tables for dividing by the first `special` special primes and the last `rescaled` of `limbs` primes, in tiles of
/// `tile` primes.
pub(super) fn down(params: &RlweParams, [limbs, special, rescaled, tile]: [usize; 4]) -> Result<Arc<Down>, MathError> {
    let down = &params.tables().down;
    down.get((limbs, special, rescaled, tile), || {
        let stay = limbs - rescaled;
        let mut from = params.extended_ids_with(limbs, special);
        let to: Vec<usize> = from.drain(..stay).collect();
        let inverse = |&id: &usize| params.inverse_modulo(from.iter().copied(), id);
        let tiles = to.chunks(tile).map(<[usize]>::to_vec).collect();
        Ok(Down { lift: Lift::new(params.basis(), &from, tiles)?, inverses: to.iter().map(inverse).collect() })
    })
}
