//! Primes, divisors and scales along a chain of rescales.

use hushed_ckks::poly::{Ladder, PolyError};
use hushed_ckks::{CkksError, Scale};

use crate::error::FheError;
use crate::slots::Slots;

/// The divisor of one rescale from `limbs` primes.
pub(crate) fn divisor<S: Slots>(on: &S, limbs: usize) -> Result<f64, FheError> {
    Ok(Ladder::new(on, limbs, 1)?.divisor(0))
}

/// The primes left after `levels` rescales.
pub(crate) fn below<S: Slots>(on: &S, limbs: usize, levels: usize) -> Result<usize, FheError> {
    Ok(Ladder::new(on, limbs, levels)?.limbs(levels))
}

/// The fewest primes from which one rescale leads to `limbs`.
pub(crate) fn above<S: Slots>(on: &S, limbs: usize) -> Result<usize, FheError> {
    let found = (limbs + 1..=on.top()).find(|&l| l - on.level_primes(l) == limbs);
    let none = || PolyError::LevelsTooFew { needed: 1, available: 0, limbs: on.top() };
    Ok(found.ok_or_else(none)?)
}

/// The fewest primes from which `levels` rescales lead to `limbs`.
pub(crate) fn above_by<S: Slots>(on: &S, limbs: usize, levels: usize) -> Result<usize, FheError> {
    (0..levels).try_fold(limbs, |limbs, _| above(on, limbs))
}

/// The scale with this value.
pub(crate) fn scale_of(value: f64) -> Result<Scale, FheError> {
    Scale::new(value).map_err(|e: CkksError| e.into())
}
