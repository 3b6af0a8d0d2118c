//! LayerNorm of columns (MOAI, Algorithm 5, with its idea for softmax: only the statistic goes deep). Mean and variance
//! are sums over columns, so there is no rotation; only v = Σ c² is refreshed and goes through the inverse root, and
//! the d columns lose one level.
//!
//! With c = κ·(x − mean of x), d columns and v = Σ c² in [low, 1]:
//!
//! ```text
//! x̂/bound = c · (√d/bound)·v^{−1/2}        gain·bound and offset are folded into the next map
//! ```
//!
//! | step | level of the columns | of the statistic |
//! |---|---|---|
//! | c, by the linear layer before; the residual joins it | l | |
//! | v = Σ c², relinearised and rescaled once; κ²·d·ε | l | l − 1, then refreshed to the statistics' level s |
//! | v ← 1 + mask·(v − 1): padding rows, and a row whose result is a constant, get v = 1 | l | s − 1 |
//! | v^{−1/2}: a polynomial and Newton steps | l | s − 1 − levels of the root |
//! | × mask·√d/bound | l | s − 2 − levels of the root ≥ l |
//! | × c, + a row of constants | l − 1 | |
//!
//! Outside the range of v: from 0 to `low` the root is at most 3.5/√low, 3.5 times its value at `low`. Above 1 it is as
//! accurate as within the range, up to a limit that its steps allow ([`crate::choices::fits::root`]: 3 for `low` 0.05,
//! degree 15 and one step), and then grows like its highest power: 10^5 at 1.1 times that limit, 10^15 at 1.5. From
//! there on it wraps around the modulus, and *all* texts of the batch are lost, not only the one outside the range. A
//! calibration leaves a margin for that. Masked rows do no harm, whatever they hold at the refresh.

use hushed_ckks::poly::{InverseSqrt, Weight};
use hushed_model::{Norm, NormKind, StepId, here, same};

use crate::choices::{ChoicesError, NormChoice, fits, shapes};
use crate::error::FheError;
use crate::ops::activation;
use crate::slots::Slots;

/// Refuses a norm without means.
pub(crate) fn has_means(at: StepId, norm: &Norm) -> Result<(), FheError> {
    match norm.kind {
        NormKind::LayerNorm => Ok(()),
        NormKind::RmsNorm => {
            Err(FheError::Unsupported { what: format!("{at}: RMSNorm"), remedy: "models with LayerNorm can be run" })
        }
    }
}

/// (row − offset)/(gain·bound): the constant row in the units of a norm's columns.
pub(crate) fn frozen(at: StepId, row: &[f64], n: &Norm, bound: f64) -> Result<Vec<f64>, FheError> {
    same(at, "columns of the constant row", row.len(), n.width)?;
    let (gain, offset) = (here(at, &n.gain)?, here(at, &n.offset)?);
    let numbers = row.iter().zip(gain.iter()).zip(offset.iter());
    let inside = |((x, &g), &o): ((&f64, &f32), &f32)| {
        // A column with gain 0 equals its offset, whatever the vector holds.
        let v = (x - f64::from(o)) / (f64::from(g) * bound);
        if v.is_finite() { v } else { 0.0 }
    };
    let row: Vec<f64> = numbers.map(inside).collect();
    match row.iter().find(|v| v.abs() > 1.0) {
        Some(v) => Err(ChoicesError::Unusable {
            what: format!("at {at}, the frozen row reaches {v:.3} times its norm's bound"),
        }
        .into()),
        None => Ok(row),
    }
}

/// Refuses a norm of a decoder that shifts rows, by a mean or an offset: rows of padding would not stay zeros.
pub(crate) fn keeps_zeros(at: StepId, norm: &Norm) -> Result<(), FheError> {
    let shifted = norm.offset.iter().flat_map(|o| o.iter()).any(|o| *o != 0.0);
    match norm.kind {
        NormKind::RmsNorm if !shifted => Ok(()),
        _ => Err(FheError::Unsupported {
            what: format!("{at}: a norm that shifts rows, in a decoder"),
            remedy: "decoders with RMSNorm can be run",
        }),
    }
}

/// Refreshes one vector of any scale: it is read as another message at the scale a refresh takes, and read back
/// afterwards.
pub(crate) fn refreshed<S: Slots>(on: &S, at: StepId, v: S::Value, limbs: usize) -> Result<S::Value, FheError> {
    let ratio = on.scale(&v).over(on.default_scale()).value();
    let mut out = on.refresh(at, vec![on.read_as(v, ratio)?], limbs)?;
    let v = out.pop().ok_or_else(|| FheError::Unsupported {
        what: format!("{at}: a refresh returned nothing"),
        remedy: "this is a bug in the program",
    })?;
    on.read_as(v, 1.0 / ratio)
}

/// v^{−1/2} on the range of `choice`.
///
/// # Errors
/// [`FheError::Poly`] for a range without a fit.
pub(crate) fn inverse_root<S: Slots>(on: &S, choice: &NormChoice) -> Result<InverseSqrt, FheError> {
    on.fitted(|| fits::root(choice), || shapes::root(choice))
}

/// a·b, over the primes of the shorter operand, one level below it.
pub(crate) fn product<S: Slots>(on: &S, a: &S::Value, b: &S::Value) -> Result<S::Value, FheError> {
    let limbs = on.limbs(a).min(on.limbs(b));
    let mut sum = on.sum(limbs, on.scale(a).times(on.scale(b)))?;
    on.add_product(&mut sum, a, b, Weight::ONE)?;
    on.finish(sum)
}

/// The levels of an inverse root.
///
/// # Errors
/// [`FheError::Poly`] for a seed or steps that no root has.
pub fn root_levels(choice: &NormChoice) -> Result<usize, FheError> {
    Ok(shapes::root(choice)?.levels())
}

/// The mean square of a row plus ε, and the largest |x̂|, as measured by a calibration.
#[must_use]
pub fn row_of(row: &[f64], epsilon: f64) -> (f64, f64) {
    let square = row.iter().map(|v| v * v).sum::<f64>() / row.len().max(1) as f64 + epsilon;
    let largest = row.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    (square, largest / square.sqrt())
}

/// The levels of the statistic between its refresh and the columns: two masks, the root's first polynomial with the map
/// to its interval, and two per Newton step. They depend on degrees and steps alone, so a search need not fit
/// polynomials.
#[must_use]
pub fn statistic_levels(choice: &NormChoice) -> usize {
    let seed = activation::levels(choice.seed) + usize::from(choice.seed > 1);
    2 + seed + 2 * choice.steps
}

#[cfg(test)]
#[path = "norm_tests.rs"]
mod tests;
