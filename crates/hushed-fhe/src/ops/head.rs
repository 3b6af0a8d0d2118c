//! The head of a classifier: BERT's pooler, which is tanh of a linear map of the first row, then one number per class.
//!
//! Only first rows are used, 1/m of the slots. So the d columns of arguments are packed before any deep step, and ⌈d/m⌉
//! vectors are refreshed instead of d: three bootstraps for BERT-base and texts of 128 rows instead of 384.
//!
//! | step | levels |
//! |---|---|
//! | the last norm, masked to first rows: every other row is 0 | 0 |
//! | `dense`: gains and offsets of that norm and 1/reach folded into its weights; d columns, valid in row 0 | 1 |
//! | `pack`: column j to row j mod m of vector j/m, m − 1 rotations per vector, all by one row; then the biases | 0 |
//! | `refresh` | |
//! | `activation`: to polynomial scale; the fold; one odd polynomial per vector, on ±reach | 4 + ⌈log2(degree + 1)⌉ |
//! | `classes`: times a row of the weights, summed over rows by log2(m) rotations per class | 1 |
//! | times a mask that keeps row c mod m of class c in texts, nothing elsewhere | 1 |
//!
//! MOAI takes a polynomial and a ciphertext for each column here. One interval for all columns costs nothing: high
//! degrees are cheap for few vectors, and tanh is flat where its argument is large. An interval for each column would
//! also reveal something about the weights.
//!
//! *Outside the reach.* A refresh returns 1.5 as 1.5 (its sine is nearly linear up to about a hundred), so such an
//! argument reaches the polynomial. One of degree 63 on [−1, 1] is 2^22 at 1.1 and 2^38 at 1.2: the ciphertext wraps
//! around, and all texts of its vector are lost. So arguments are first *folded* by y = −T_7(t/7), with t in units of
//! the reach: y is within 1 for |t| ≤ [`EXTENDED`] = 7, the slope at 0 is 1, and on [−1, 1] it is a bijection onto
//! ±0.84. The polynomial undoes the fold: it approximates tanh(reach·7·sin(asin(y)/7)). (This is domain extension,
//! MOAI's appendix C.2, in one step of degree 7: three levels, where two of degree 3 take four.) An argument between
//! the reach and seven times the reach makes the answer of its own text wrong, and no other: every result is within
//! [`LARGEST`].

use hushed_ckks::poly::{Parity, PolyError, Polynomial, compose, to_unit_interval};
use hushed_lower::bound_of;
use hushed_math::fit::least_squares_points;
use hushed_model::plain::activation as exact;
use hushed_model::{Activation, Classifier, StepId, here};

use crate::choices::ClassifierChoice;
use crate::error::FheError;
use crate::ops::activation;
use crate::ops::functions::Function;
use crate::slots::Slots;

/// The bound on the approximated tanh, for arguments up to [`EXTENDED`] times the reach.
const LARGEST: f64 = 1.0 + 1.0 / 64.0;

/// Arguments up to this many times the reach stay bounded. An odd number n; the fold is ±T_n(t/n), and the sign is − if
/// n mod 4 = 3.
pub const EXTENDED: usize = 7;

/// Levels of the fold.
const FOLD_LEVELS: usize = (EXTENDED + 1).ilog2() as usize;

/// Fit points per coefficient.
const POINTS: usize = 8;

/// The weight of points that only arguments outside the reach fold to: there the polynomial need only be bounded.
const BOUNDED: f64 = 1e-3;

/// Levels between the refresh and the answer.
#[must_use]
pub fn levels(choice: &ClassifierChoice) -> usize {
    FOLD_LEVELS + activation::levels(choice.degree) + 3
}

/// The activation of the classifier head, an odd function of x, as two odd polynomials: the fold, of t = x/reach, and
/// one of its result.
pub struct HeadActivation {
    /// The first takes t/[`EXTENDED`].
    parts: [Polynomial; 2],
    function: Function,
}

impl HeadActivation {
    /// The fold, and a least-squares fit: with weight 1 on the image of [−1, 1] under the fold, and weight [`BOUNDED`]
    /// elsewhere.
    ///
    /// # Errors
    /// [`PolyError`] for a function that is not odd, or a refused fit.
    pub fn new(f: Activation, choice: &ClassifierChoice) -> Result<HeadActivation, PolyError> {
        let times = EXTENDED as f64;
        let mut fold = vec![0.0; EXTENDED + 1];
        fold[EXTENDED] = -1.0;
        let within = (times * (1.0 / times).asin()).sin();
        let count = POINTS * (choice.degree + 1);
        // One point in the middle, the others in pairs: even coefficients come out as rounding errors.
        let point = |i: usize| {
            let angle = std::f64::consts::PI * (i as f64 / (2 * count) as f64 - 0.5);
            let (y, x) = (angle.sin(), times * (angle / times).sin());
            let rare = if y.abs() <= within { 1.0 } else { BOUNDED };
            let width = angle.cos().max(0.25 / count as f64);
            (y, exact(f, choice.reach * x), rare * width)
        };
        let points: Vec<(f64, f64, f64)> = (0..=2 * count).map(point).collect();
        let mut coeffs = least_squares_points(&points, choice.degree)?.chebyshev;
        coeffs.iter_mut().step_by(2).for_each(|c| *c = 0.0);
        let odd = |coeffs| Polynomial::chebyshev(coeffs, -1.0, 1.0)?.with_parity(Parity::Odd);
        Ok(HeadActivation { parts: [odd(fold)?, odd(coeffs)?], function: Function::Head { f, reach: choice.reach } })
    }

    /// Its value at t, in f64.
    #[must_use]
    pub fn eval(&self, t: f64) -> f64 {
        let fold = |y: f64, p: &Polynomial| p.eval(y);
        self.parts.iter().fold(t / EXTENDED as f64, fold)
    }

    /// One level to change to the scale of polynomials, and those of the two.
    pub(crate) fn levels(&self) -> usize {
        1 + self.parts.iter().map(Polynomial::depth).sum::<usize>()
    }

    /// The function that it approximates.
    #[cfg(test)]
    pub(crate) fn function(&self) -> &Function {
        &self.function
    }

    /// Its values on a vector of t, at [`Slots::default_scale`].
    pub(crate) fn evaluate<S: Slots>(&self, on: &S, t: &S::Value) -> Result<S::Value, FheError> {
        let (times, target) = (EXTENDED as f64, on.default_scale());
        let levels = self.levels();
        let compute = || {
            let u = to_unit_interval(on, t, -times, times)?;
            compose(on, &u, &self.parts, target)
        };
        let y = on.apply(&self.function, t, (levels, target), compute)?;
        Ok(on.within(y, LARGEST))
    }
}

/// A bound on the logits, a power of two: each number of the pooler is within [`LARGEST`].
///
/// # Errors
/// [`FheError::Model`] if the model has no numbers.
pub fn magnitude(at: StepId, c: &Classifier) -> Result<f64, FheError> {
    let (weights, bias) = (here(at, &c.classes.weights)?, here(at, &c.classes.bias)?);
    let logit = |(row, &b): (&[f32], &f32)| {
        let sum: f64 = row.iter().map(|&w| f64::from(w).abs()).sum();
        LARGEST * sum + f64::from(b).abs()
    };
    let rows = weights.data().chunks_exact(c.classes.inputs.max(1));
    let most = rows.zip(bias.iter()).map(logit).fold(1.0, f64::max);
    Ok(bound_of(&[most]))
}

/// Checks that the function is tanh.
pub(crate) fn supported(at: StepId, c: &Classifier) -> Result<(), FheError> {
    match c.activation {
        Activation::Tanh => Ok(()),
        other => Err(FheError::Unsupported {
            what: format!("{at}: a pooler with {other:?}"),
            remedy: "poolers with tanh can be run",
        }),
    }
}

#[cfg(test)]
#[path = "head_tests.rs"]
mod tests;
