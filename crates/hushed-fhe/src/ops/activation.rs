//! Activations of hidden columns: one polynomial per column, all of the same degree.
//!
//! In column packing each hidden column is a vector of its own, so its own interval and coefficients cost nothing. The
//! map of the interval to [−1, 1] is folded into the weights of the layer before ([`unit_map`]), and a column loses
//! ⌈log2(degree + 1)⌉ levels. All columns have the same degree, so the operations do not depend on weights. The fits
//! are in [`crate::choices::fits`].
//!
//! Outside its interval a polynomial is wrong. Up to [`fits::BEYOND`] times the interval it is bounded, within what the
//! next norm accepts; further out a polynomial of degree 28 grows like t^28, and the whole batch is lost.
//!
//! GELU(x) − x/2 is even, and an even polynomial takes fewer products for its degree but needs a symmetric interval.
//! Measured on every fortieth column of the shipped calibration, fitted in the clear, against degree 28 without parity
//! (eight relinearisations): an even polynomial of degree 30 is as accurate in three layers, has two to two and a half
//! times the error in the others, and also takes eight relinearisations; one of degree 28 takes seven and has up to
//! four times the error.
//!
//! The paper's own form is x/2·(1 + P(x)), with P of degree 23 for the tanh of GELU's cubic on [−20, 10] (§4). It has
//! an error of up to 0.25 there. A least-squares fit of GELU itself, of the same degree and interval, has 0.22 with two
//! levels fewer, and 6·10^−5 on [−6, 4], which may be the interval of a single column.

use std::sync::Arc;

use hushed_ckks::poly::{Ladder, PolyError, Polynomial, evaluate};
use hushed_model::Activation;
use rayon::prelude::*;

use crate::choices::{Column, fits, shapes};
use crate::error::FheError;
use crate::ops::folded::Polynomials;
use crate::ops::functions::Function;
use crate::ops::levels::scale_of;
use crate::slots::Slots;
use hushed_lower::LinearMap;

/// Levels of a polynomial of this degree.
#[must_use]
pub fn levels(degree: usize) -> usize {
    (degree + 1).next_power_of_two().trailing_zeros() as usize
}

/// The same map with each row's result mapped from the [`fits::domain`] of its column to [−1, 1]; one column per row.
///
/// # Errors
/// [`PolyError::Range`] for an empty interval, or unless there is one per row.
pub fn unit_map(mut map: LinearMap, intervals: &[Column]) -> Result<LinearMap, FheError> {
    let sound = |i: &Column| i.low < i.high && (i.high - i.low).is_finite();
    if intervals.len() != map.rows || !intervals.iter().all(sound) {
        let worst = intervals.iter().find(|i| !sound(i));
        let (low, high) = worst.map_or((0.0, 0.0), |i| (i.low, i.high));
        return Err(PolyError::Range { low, high }.into());
    }
    let mut bias = map.bias.take().unwrap_or_else(|| vec![0.0; map.rows]);
    let rows = map.weights.chunks_exact_mut(map.columns.max(1));
    for ((row, b), column) in rows.zip(&mut bias).zip(intervals) {
        let domain = fits::domain(*column);
        row.iter_mut().for_each(|w| *w /= domain.half());
        *b = (*b - domain.middle()) / domain.half();
    }
    map.bound = crate::bound_of(&map.weights);
    map.bias = Some(bias);
    Ok(map)
}

/// The best scale for the argument of a Chebyshev polynomial with `limbs` primes: twice the divisor of its first
/// rescale.
///
/// # Errors
/// [`PolyError::LevelsTooFew`] if there is no level.
pub fn argument_scale<S: Slots>(on: &S, limbs: usize) -> Result<hushed_ckks::Scale, FheError> {
    scale_of(2.0 * Ladder::new(on, limbs, 1)?.divisor(0))
}

/// Where only shapes count, a polynomial for any of the columns. Their fits differ in the intervals alone, and a plan
/// has thousands of them: that of the widest is tried.
///
/// # Errors
/// [`FheError::Poly`] if it has no fit.
pub fn any_column<S: Slots>(
    on: &S,
    f: Activation,
    columns: &[Column],
    degree: usize,
    polynomials: &Polynomials,
) -> Result<Option<Arc<Polynomial>>, FheError> {
    if !on.only_shapes() {
        return Ok(None);
    }
    let half = |column: &Column| column.interval().half();
    let Some(&widest) = columns.iter().max_by(|a, b| half(a).total_cmp(&half(b))) else {
        return Ok(None);
    };
    let stand_in = || Ok(Arc::new(shapes::polynomial(degree)?));
    let any = on.fitted(|| polynomials.get(f, widest, degree), stand_in)?;
    Ok(Some(any))
}

/// Applies f to every column, each already mapped from its domain to [−1, 1]; `first` is the index of the first column.
/// The results are at [`Slots::default_scale`], [`levels`] below.
///
/// # Errors
/// Too few levels, a refused fit, or what the arithmetic refuses.
pub fn activation<S: Slots>(
    on: &S,
    f: Activation,
    first: usize,
    columns: Vec<S::Value>,
    intervals: &[Column],
    degree: usize,
    polynomials: &Polynomials,
) -> Result<Vec<S::Value>, FheError> {
    let shape = any_column(on, f, intervals, degree, polynomials)?;
    let column = |(i, (t, &column)): (usize, (S::Value, &Column))| {
        let polynomial = match &shape {
            Some(shape) => Arc::clone(shape),
            None => polynomials.get(f, column, degree)?,
        };
        let (t, target) = (on.within(t, 1.0), on.default_scale());
        let index = first + i;
        let f = Function::Activation { f, index, column };
        let compute = || evaluate(on, &t, &polynomial, target);
        on.apply(&f, &t, (polynomial.depth(), target), compute)
    };
    let columns = columns.into_par_iter().zip(intervals).enumerate();
    columns.map(column).collect()
}

#[cfg(test)]
#[path = "activation_tests.rs"]
mod tests;
