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

use hushed_ckks::Scale;
use hushed_ckks::poly::{InverseSqrt, Weight};
use hushed_model::{Norm, NormKind, StepId, same};
use rayon::prelude::*;

use crate::choices::{NormChoice, fits, shapes};
use crate::error::FheError;
use crate::ops::activation;
use crate::ops::acts::Acts;
use crate::ops::functions::Function;
use crate::ops::levels::{above, below, divisor, scale_of};
use crate::slots::{OwnedMask, Slots};

/// The rows of a norm, and the level of its statistic.
pub struct NormSettings<'a, V> {
    /// The mask of rows that get a result; the others get 0.
    pub rows: &'a OwnedMask<V>,
    /// The primes of the refreshed variance; `None` for the paper's own form without that refresh, where the columns
    /// are high enough for the inverse root.
    pub statistics: Option<usize>,
    /// Constants in place of results, in rows that `rows` masks.
    pub constant: Option<ConstantRow<'a, V>>,
}

/// Rows of a norm that constants replace.
pub struct ConstantRow<'a, V> {
    /// The constant of each column, within 1.
    pub numbers: &'a [f64],
    /// The mask of these rows.
    pub rows: &'a OwnedMask<V>,
}

/// The scale of centred columns with `limbs` primes, which puts their squares at [`Slots::default_scale`].
///
/// # Errors
/// [`FheError::Poly`] if they have no level.
pub fn centred_scale<S: Slots>(on: &S, limbs: usize) -> Result<Scale, FheError> {
    scale_of((on.default_scale().value() * divisor(on, limbs)?).sqrt())
}

/// `block` + κ·(x − mean of x) by columns: the residual sum, centred and scaled as the block's output already is. x is
/// dropped to one level above the block, and loses that level.
///
/// # Errors
/// If x has no level above the block's, or a different number of columns.
pub fn residual<S: Slots>(
    on: &S,
    at: StepId,
    x: &Acts<S::Value>,
    block: &[S::Value],
    kappa: f64,
) -> Result<Vec<S::Value>, FheError> {
    same(at, "columns", block.len(), x.width())?;
    let Some(first) = block.first() else {
        return Ok(Vec::new());
    };
    let limbs = above(on, on.limbs(first))?;
    let wide = scale_of(on.scale(first).value() * divisor(on, limbs)?)?;
    let d = x.width() as f64;
    // −κ·mean of the vectors; the offsets have a mean of their own.
    let mut sum = on.sum(limbs, wide)?;
    for (v, gain) in x.columns.iter().zip(&x.gain) {
        on.add_multiple(&mut sum, v, -kappa * gain / d)?;
    }
    let mean = on.finish(sum)?;
    let mean_offset = x.offset.iter().sum::<f64>() / d;
    let column = |j: usize| -> Result<S::Value, FheError> {
        let mut sum = on.sum(limbs, wide)?;
        on.add_multiple(&mut sum, &x.columns[j], kappa * x.gain[j])?;
        let mut c = on.finish(sum)?;
        on.add_assign(&mut c, &mean)?;
        on.add_assign(&mut c, &block[j])?;
        on.add_constant(c, kappa * (x.offset[j] - mean_offset))
    };
    (0..x.width()).into_par_iter().map(column).collect()
}

/// The norm of columns κ·(x − mean of x) as returned by [`residual`]: the [`Acts`] of this norm at
/// [`Slots::default_scale`], one level below, not refreshed.
///
/// # Errors
/// [`FheError::Unsupported`] for a norm without means; too few levels; where values are visible, [`FheError::Range`]
/// for a variance outside its range.
pub fn norm<S: Slots>(
    on: &S,
    at: StepId,
    centred: Vec<S::Value>,
    norm: &Norm,
    choice: &NormChoice,
    settings: &NormSettings<'_, S::Value>,
) -> Result<Acts<S::Value>, FheError> {
    has_means(at, norm)?;
    same(at, "columns", centred.len(), norm.width)?;
    if let Some(row) = &settings.constant {
        let found = row.numbers.len();
        same(at, "columns of the constant row", found, norm.width)?;
    }
    let Some(first) = centred.first() else {
        return Acts::from_norm(at, centred, norm, choice);
    };
    let scale = on.scale(first);
    let needed = statistic_levels(choice);
    let arrives = match settings.statistics {
        Some(limbs) => {
            let mask = match settings.rows {
                OwnedMask::Public(_) => limbs,
                OwnedMask::Private(mask) => on.limbs(mask),
            };
            below(on, limbs.min(mask), needed)?
        }
        None => below(on, on.limbs(first), 1 + needed)?,
    };
    // Columns at a higher level are dropped to it.
    let limbs = arrives.min(on.limbs(first));
    let v = statistic(on, at, &centred, norm, choice, settings)?;
    let factor = (norm.width as f64).sqrt() / choice.bound;
    // This puts the columns at the default scale.
    let target = scale_of(on.default_scale().value() * divisor(on, limbs)? / scale.value())?;
    let inverse = masked_root(on, &v, choice, settings.rows, factor, limbs, target)?;
    let column = |(j, c): (usize, S::Value)| -> Result<S::Value, FheError> {
        let wide = on.scale(&c).times(on.scale(&inverse));
        let mut sum = on.sum(limbs, wide)?;
        on.add_product(&mut sum, &c, &inverse, Weight::ONE)?;
        let row = settings.constant.as_ref();
        let number = row.and_then(|row| Some((*row.numbers.get(j)?, row.rows)));
        if let Some((number, OwnedMask::Private(rows))) = number {
            on.add_multiple(&mut sum, rows, number)?;
        }
        let y = on.within(on.finish(sum)?, 1.0);
        match number {
            Some((number, OwnedMask::Public(rows))) => {
                let added: Vec<f64> = rows.iter().map(|r| r * number).collect();
                on.add_vector(y, &added)
            }
            _ => Ok(y),
        }
    };
    let columns = centred.into_par_iter().enumerate().map(column);
    Acts::from_norm(at, columns.collect::<Result<_, _>>()?, norm, choice)
}

/// Refuses a norm without means.
pub(crate) fn has_means(at: StepId, norm: &Norm) -> Result<(), FheError> {
    match norm.kind {
        NormKind::LayerNorm => Ok(()),
        NormKind::RmsNorm => {
            Err(FheError::Unsupported { what: format!("{at}: RMSNorm"), remedy: "models with LayerNorm can be run" })
        }
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

/// v = Σ c² + κ²·d·ε, refreshed: one relinearisation in all.
fn statistic<S: Slots>(
    on: &S,
    at: StepId,
    centred: &[S::Value],
    norm: &Norm,
    choice: &NormChoice,
    settings: &NormSettings<'_, S::Value>,
) -> Result<S::Value, FheError> {
    let wide = centred.first().map(|c| (on.limbs(c), on.scale(c)));
    let (limbs, scale) = wide.unwrap_or((on.floor(), on.default_scale()));
    let mut sum = on.sum(limbs, scale.times(scale))?;
    for c in centred {
        on.add_product(&mut sum, c, c, Weight::ONE)?;
    }
    let epsilon = choice.scale.powi(2) * norm.width as f64 * norm.epsilon;
    let v = on.within(on.add_constant(on.finish(sum)?, epsilon)?, 1.0);
    match settings.statistics {
        Some(limbs) => refreshed(on, at, on.used(v, settings.rows), limbs),
        None => Ok(v),
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

/// `factor`·mask·v^{−1/2} at scale `target`, with `limbs` primes or a few more.
fn masked_root<S: Slots>(
    on: &S,
    v: &S::Value,
    choice: &NormChoice,
    rows: &OwnedMask<S::Value>,
    factor: f64,
    limbs: usize,
    target: Scale,
) -> Result<S::Value, FheError> {
    let root = inverse_root(on, choice)?;
    // 1 + mask·(v − 1).
    let less = on.add_constant(v.clone(), -1.0)?;
    let masked = match rows {
        OwnedMask::Public(mask) => on.mul_vector(&less, mask, on.default_scale())?,
        OwnedMask::Private(mask) => product(on, &less, mask)?,
    };
    let v = on.within(on.add_constant(masked, 1.0)?, 1.0);
    let inverse = |target: Scale| {
        let compute = || root.evaluate(on, &v, target);
        on.apply(&Function::Root, &v, (root.levels(), target), compute)
    };
    // The result is needed one level above the columns, no higher.
    let end = above(on, limbs)?;
    match rows {
        OwnedMask::Public(mask) => {
            let y = inverse(on.default_scale())?;
            let y = on.drop_to(&y, end.min(on.limbs(&y)))?;
            let scaled: Vec<f64> = mask.iter().map(|m| m * factor).collect();
            on.mul_vector(&y, &scaled, target)
        }
        OwnedMask::Private(mask) => {
            // (y read as factor·y)·mask is rescaled by the divisor and then has the scale `target`.
            let left = below(on, on.limbs(&v), root.levels())?.min(on.limbs(mask)).min(end);
            let scale = target.value() * divisor(on, left)? / on.scale(mask).value();
            let y = inverse(scale_of(scale * factor)?)?;
            product(on, &on.drop_to(&on.read_as(y, factor)?, left)?, mask)
        }
    }
}

/// a·b, over the primes of the shorter operand, one level below it.
pub(crate) fn product<S: Slots>(on: &S, a: &S::Value, b: &S::Value) -> Result<S::Value, FheError> {
    let limbs = on.limbs(a).min(on.limbs(b));
    let mut sum = on.sum(limbs, on.scale(a).times(on.scale(b)))?;
    on.add_product(&mut sum, a, b, Weight::ONE)?;
    on.finish(sum)
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
