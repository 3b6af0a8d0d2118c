//! The steps of a layer in packed rows ([`crate::packing::Layout`]), for one text or a few: docs/one-text.md has the
//! ledger of levels.
//!
//! ```text
//! attention                             level after     feed-forward                     level after
//! x̂, pairs                                  14          c, refreshed                         10
//! Q, K, V: one grid of maps                 13          × 1/√v                                9
//! Q·Kᵀ: copies, products, sums              10          up                                    8
//! p ≈ e^{s/2}                                6          activation, a polynomial a slot       3
//! y = p·(1/Σp), Σp refreshed                 5          down, with the residual               2
//! e = y²                                     4          × 1/√v                                1
//! P·V and × 1/Σe, Σe refreshed               1          x̂, refreshed                         14
//! output, with the residual: c               0
//! ```
//!
//! Statistics (Σp, Σe, v, 1/√v) are spread over the places that need them before they are refreshed, with all slots and
//! to no more primes than what follows uses: docs/one-text.md says why not with few slots. Masks of rows and of keys
//! are factors of masks that are there anyway.

pub mod attention;
pub mod feed_forward;
mod linear;
pub mod norm;
pub mod pool;
pub mod rows;
pub mod softmax;

use hushed_model::StepId;

use crate::error::FheError;
use crate::ops::levels::above_by;
use crate::packing::PackingError;
use crate::slots::Slots;

/// Pairs refreshed to `limbs` primes: their parts are, two a bootstrap. They are at half of [`Slots::default_scale`],
/// so that their parts are at that scale.
///
/// # Errors
/// As [`Slots::refresh`].
pub fn refreshed_pairs<S: Slots>(
    on: &S,
    at: StepId,
    pairs: &[S::Value],
    limbs: usize,
) -> Result<Vec<S::Value>, FheError> {
    let mut parts = Vec::with_capacity(2 * pairs.len());
    for pair in pairs {
        parts.extend(on.parts(pair)?);
    }
    joined(on, on.refresh(at, parts, limbs)?)
}

/// Primes of a refreshed statistic that is used at `limbs`, so many rescales later: no more than `most`.
fn reaching<S: Slots>(on: &S, limbs: usize, levels: usize, most: usize) -> usize {
    above_by(on, limbs, levels).map_or(most, |found| found.min(most))
}

/// Real vectors, two a pair.
fn joined<S: Slots>(on: &S, parts: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
    let mut pairs = Vec::with_capacity(parts.len() / 2);
    let mut rest = parts.into_iter();
    while let Some(a) = rest.next() {
        let b = rest.next().ok_or(PackingError::Mismatch)?;
        pairs.push(on.pair(a, b)?);
    }
    Ok(pairs)
}
