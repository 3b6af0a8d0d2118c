//! RMSNorm of the residual stream, and the sum that a block's result joins.
//!
//! The residual stream is refreshed as u = x/B, |u| ≤ 1. With c = κ·x, which is u read at another scale, and v = Σ c² +
//! κ²·d·ε in [low, 1]:
//!
//! | step | level of the columns | of the statistic |
//! |---|---|---|
//! | v = Σ c², relinearised and rescaled once | l | l − 1 |
//! | v at the scale a refresh takes | l | l − 2, then refreshed to the statistics' level s |
//! | √d/bound·v^{−1/2}: a polynomial and Newton steps | l | s − levels of the root |
//! | if that is below l: v^{−1/2}·√low/4, refreshed | l | l + 1, then l |
//! | × c | l − 1 | |
//!
//! The root is taken at the beginning of a half, where the columns are high, not at its end as in an encoder: hence the
//! second refresh, of one vector. ENSI, Algorithm 3, takes 9 levels for the root, a bootstrap, 10 for its inverse and
//! two products on the columns' own levels. There is no mask: padding rows are 0, their v is κ²·d·ε, below `low`, where
//! the root is bounded (see [`crate::ops::norm`]), and 0 times it is 0.
//!
//! Pairs of columns ([`crate::ops::paired`]) are split to be squared, and multiplied by the root as they are.

use hushed_ckks::Scale;
use hushed_ckks::poly::Weight;
use hushed_model::{Norm, StepId, same};
use rayon::prelude::*;

use crate::choices::{NormChoice, shapes};
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::functions::Function;
use crate::ops::levels::{above, below, divisor, scale_of};
use crate::ops::norm::{inverse_root, keeps_zeros, product, refreshed};
use crate::ops::paired::{BLOCK, split};
use crate::packing::PackingError;
use crate::slots::Slots;

/// The levels that the columns need for their statistic before its refresh.
pub const STATISTIC: usize = 2;

/// The norm of columns x/B, whose gains are all B: columns x̂/bound at [`Slots::default_scale`], one level below. They
/// take the place of x in memory. The statistic is refreshed to `statistics` primes. If `paired`, vectors of x and of
/// the result hold two columns each.
///
/// # Errors
/// [`FheError::Unsupported`] for a LayerNorm or an offset; too few levels; where values are visible,
/// [`FheError::Range`] for a statistic outside its range.
pub fn rms_norm<S: Slots>(
    on: &S,
    at: StepId,
    x: Acts<S::Value>,
    norm: &Norm,
    choice: &NormChoice,
    (statistics, paired): (usize, bool),
) -> Result<Acts<S::Value>, FheError> {
    keeps_zeros(at, norm)?;
    same(at, "columns", x.width(), norm.width)?;
    let (Some(first), Some(&bound)) = (x.columns.first(), x.gain.first()) else {
        return Acts::normed(at, Vec::new(), norm, choice);
    };
    let (limbs, again) = limbs(on, on.limbs(first), choice, statistics)?;
    let c = |v: S::Value| on.read_as(on.drop_to(&v, limbs)?, choice.scale * bound);
    let columns = x.columns.into_par_iter().map(c);
    let columns: Vec<S::Value> = columns.collect::<Result<_, _>>()?;
    let squares = match paired {
        false => squares(on, None, &columns)?,
        true => squares_of_pairs(on, &columns)?,
    };
    let v = statistic(on, at, squares, norm, choice, statistics)?;
    let scale = columns.first().map_or(on.default_scale(), |c| on.scale(c));
    // This puts the columns at the default scale.
    let target = scale_of(on.default_scale().value() * divisor(on, limbs)? / scale.value())?;
    let factor = (norm.width as f64).sqrt() / choice.bound;
    let inverse = match again {
        true => root_again(on, at, &v, choice, factor, (limbs, target))?,
        false => {
            let inverse = root(on, &v, choice, scale_of(target.value() * factor)?)?;
            on.read_as(on.drop_to(&inverse, limbs)?, factor)?
        }
    };
    if paired {
        let columns = times_pairs(on, columns, inverse)?;
        return Acts::normed(at, columns, norm, choice);
    }
    let times = |c: S::Value| Ok(on.within(product(on, &c, &inverse)?, 1.0));
    let columns = columns.into_par_iter().map(times);
    Acts::normed(at, columns.collect::<Result<_, FheError>>()?, norm, choice)
}

/// Σ c² over the columns of pairs.
fn squares_of_pairs<S: Slots>(on: &S, pairs: &[S::Value]) -> Result<S::Sum, FheError> {
    let mut sum = None;
    for block in pairs.chunks(BLOCK) {
        sum = Some(squares(on, sum, &split(on, block)?)?);
    }
    match sum {
        Some(sum) => Ok(sum),
        None => squares(on, None, &[]),
    }
}

/// Multiplies pairs by a real vector, and drops each block once it is multiplied.
fn times_pairs<S: Slots>(on: &S, pairs: Vec<S::Value>, by: S::Value) -> Result<Vec<S::Value>, FheError> {
    let (by, mut done) = (vec![by], Vec::with_capacity(pairs.len()));
    let mut rest = pairs.into_iter();
    while rest.len() > 0 {
        let block: Vec<S::Value> = rest.by_ref().take(BLOCK).collect();
        let products = on.dot_grid(&[block], std::slice::from_ref(&by))?;
        done.extend(products.into_iter().flatten());
    }
    Ok(done)
}

/// The primes of the columns that the root multiplies, and whether the root is refreshed first.
fn limbs<S: Slots>(on: &S, columns: usize, choice: &NormChoice, statistics: usize) -> Result<(usize, bool), FheError> {
    let arrives = arrives(on, choice, statistics)?;
    // A refreshed root needs a level for its scale.
    let again = arrives < columns;
    let most = if again { on.top() - 1 } else { arrives };
    Ok((columns.min(most), again))
}

/// The primes of the normalised columns, for columns with `columns` primes.
///
/// # Errors
/// Too few levels.
pub fn normed_limbs<S: Slots>(
    on: &S,
    columns: usize,
    choice: &NormChoice,
    statistics: usize,
) -> Result<usize, FheError> {
    below(on, limbs(on, columns, choice, statistics)?.0, 1)
}

/// v^{−1/2} at scale `target`.
pub(super) fn root<S: Slots>(on: &S, v: &S::Value, choice: &NormChoice, target: Scale) -> Result<S::Value, FheError> {
    let root = inverse_root(on, choice)?;
    let compute = || root.evaluate(on, v, target);
    on.apply(&Function::Root, v, (root.levels(), target), compute)
}

/// `factor`·v^{−1/2} with the primes and scale of `end`, refreshed, as the root has lost more levels than the columns
/// may.
fn root_again<S: Slots>(
    on: &S,
    at: StepId,
    v: &S::Value,
    choice: &NormChoice,
    factor: f64,
    end: (usize, Scale),
) -> Result<S::Value, FheError> {
    // Padding rows have the largest root, at 0: 3.5/√low.
    let most = 4.0 / choice.low.sqrt();
    let unit = on.default_scale();
    let inverse = root(on, v, choice, scale_of(unit.value() / most)?)?;
    let inverse = on.within(on.read_as(inverse, 1.0 / most)?, 1.0);
    let (limbs, target) = end;
    let high = above(on, limbs)?;
    let mut fresh = on.refresh(at, vec![inverse], high)?;
    let fresh = fresh.pop().ok_or(PackingError::Mismatch)?;
    let mut sum = on.sum(high, scale_of(target.value() * divisor(on, high)?)?)?;
    on.add_multiple(&mut sum, &fresh, most * factor)?;
    on.finish(sum)
}

/// Adds Σ c² of columns to `sum`.
pub(super) fn squares<S: Slots>(on: &S, sum: Option<S::Sum>, columns: &[S::Value]) -> Result<S::Sum, FheError> {
    let mut sum = match sum {
        Some(sum) => sum,
        None => {
            let wide = columns.first().map(|c| (on.limbs(c), on.scale(c)));
            let (high, scale) = wide.unwrap_or((on.floor(), on.default_scale()));
            on.sum(high, scale.times(scale))?
        }
    };
    for c in columns {
        on.add_product(&mut sum, c, c, Weight::ONE)?;
    }
    Ok(sum)
}

/// v of Σ c², refreshed.
pub(super) fn statistic<S: Slots>(
    on: &S,
    at: StepId,
    squares: S::Sum,
    norm: &Norm,
    choice: &NormChoice,
    limbs: usize,
) -> Result<S::Value, FheError> {
    let v = on.within(on.finish(squares)?, 1.0);
    // The scale of v is that of u over (κB)², above the one that a refresh takes.
    let low = on.limbs(&v);
    let wide = scale_of(on.default_scale().value() * divisor(on, low)?)?;
    let mut sum = on.sum(low, wide)?;
    on.add_multiple(&mut sum, &v, 1.0)?;
    let epsilon = choice.scale.powi(2) * norm.width as f64 * norm.epsilon;
    let v = on.add_constant(on.finish(sum)?, epsilon)?;
    refreshed(on, at, on.within(v, 1.0), limbs)
}

/// Levels of the statistic between its refresh and the columns.
///
/// # Errors
/// [`FheError::Poly`] for a seed or steps that no root has.
pub fn root_levels(choice: &NormChoice) -> Result<usize, FheError> {
    Ok(shapes::root(choice)?.levels())
}

/// (x + y)/`bound` by columns, x dropped to one level above the block's result y/`bound`, and losing it.
///
/// # Errors
/// If x has no level above the block's, or another number of columns.
pub fn sum<S: Slots>(
    on: &S,
    at: StepId,
    x: &Acts<S::Value>,
    block: Vec<S::Value>,
    bound: f64,
) -> Result<Acts<S::Value>, FheError> {
    same(at, "columns", block.len(), x.width())?;
    let width = block.len();
    let add = |(j, y): (usize, S::Value)| -> Result<S::Value, FheError> {
        let limbs = above(on, on.limbs(&y))?;
        let wide = scale_of(on.scale(&y).value() * divisor(on, limbs)?)?;
        let mut sum = on.sum(limbs, wide)?;
        on.add_multiple(&mut sum, &x.columns[j], x.gain[j] / bound)?;
        let mut x = on.finish(sum)?;
        on.add_assign(&mut x, &y)?;
        Ok(on.within(x, 1.0))
    };
    let columns = block.into_par_iter().enumerate().map(add);
    let columns = columns.collect::<Result<_, FheError>>()?;
    Ok(Acts::over(columns, width, bound))
}

/// The primes of a statistic's inverse root, for a statistic refreshed to `statistics` primes.
///
/// # Errors
/// Too few levels.
pub fn arrives<S: Slots>(on: &S, choice: &NormChoice, statistics: usize) -> Result<usize, FheError> {
    below(on, statistics, root_levels(choice)?)
}

/// The mean square of a row plus ε, and the largest |x̂|, as measured by a calibration.
#[must_use]
pub fn row_of(row: &[f64], epsilon: f64) -> (f64, f64) {
    let square = row.iter().map(|v| v * v).sum::<f64>() / row.len().max(1) as f64 + epsilon;
    let largest = row.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    (square, largest / square.sqrt())
}
