//! The polynomials of choices: the only fits, used by encrypted runs, simulations and the search.
//!
//! | function | argument | fit | relevant error |
//! |---|---|---|---|
//! | [`exponential`], [`masked_exponential`] | t in [−1, 1], from scores | weighted Remez | over the row's largest |
//! | [`activation`] | t in [−1, 1] ([`domain`]) | weighted least squares | mean square over the arguments that occur |
//! | [`root`] | v | minimax in relative error, then relaxed Newton | relative |
//!
//! Errors of exponentials are those of e^{s/2}. Weights of activations: the normal density of the column's mean and
//! deviation, and a little everywhere. (Inverses need only their ranges and steps: `Inverse::with_steps`.) Degrees and
//! steps are inputs, not derived from intervals: intervals depend on weights, and operations must not.
//!
//! *Outside the intervals* each is wrong, and far outside it grows until it overflows the ciphertexts that texts share.
//! Two remedies cost no level: activations are bounded beyond their interval ([`OUTER`], [`BEYOND`]), and a root is
//! fitted beyond its calibrated range as far as steps and error allow ([`root`]). An inverse has no such room: its
//! steps multiply scales, and a much wider range would exceed the primes.

use hushed_ckks::poly::{InverseSqrt, PolyError, Polynomial};
use hushed_math::fit::{least_squares_points, minimax, minimax_over};
use hushed_model::Activation;
use hushed_model::plain::activation as exact;

use crate::choices::{ChoicesError, Column, HeadChoice, Interval, NormChoice};
use crate::error::FheError;

/// How many nats below the least row maximum exponentials keep their relative accuracy. Three nats of score are a
/// factor of e^{−1.5} in e^{s/2}: squaring damps an error as large as that of the largest exponential by this factor.
const RELATIVE_BELOW: f64 = 3.0;

/// Weight everywhere else, so that the fit stays close at rare arguments.
const UNIFORM: f64 = 0.01;

/// Width of a column's interval divided by the width of the part in which arguments are expected.
pub const OUTER: f64 = 1.5;

/// Weight of the rest of the interval, where the polynomial only has to be bounded: with [`UNIFORM`] there, the error
/// in the expected part would double.
const BOUNDED: f64 = 1e-4;

/// A polynomial is bounded on this many times the column's interval, so that a number slightly outside does not grow.
pub const BEYOND: f64 = 1.1;

/// Weight outside the interval: polynomials of the shipped calibration stay below 20 there. Ten times the weight does
/// not make them smaller.
const OUTSIDE: f64 = 1e-7;

/// Points per coefficient of a fit.
const POINTS: usize = 7;

/// Upper ends of a root's range, tried in this order; the calibrated end is 1.
const REACHES: [f64; 5] = [4.0, 3.0, 2.0, 1.5, 1.2];

/// A relative error of a root that does not show in answers: calibration chooses the steps that reach it.
pub const ROOT_ERROR: f64 = 1.0 / 16384.0;

/// The polynomial in t = (2s − low − high)/(high − low) for e^{(s − high)/2}/`first.high`: its sums over a row are at
/// most 1.
///
/// # Errors
/// [`FheError::Choices`] for a head without a softmax, [`FheError::Poly`] if the fit is refused.
pub fn exponential(head: &HeadChoice, degree: usize) -> Result<Polynomial, FheError> {
    let target = Exponential::of(head, |scores| scores)?;
    let (value, weight) = (|t| target.value(t), |t| target.weight(t));
    let fit = minimax(value, weight, degree, -1.0, 1.0).map_err(PolyError::from)?;
    Ok(Polynomial::from_fit(&fit)?)
}

/// As [`exponential`], for s in [`masked`] mapped to [−1, 1], and exactly 0 at t = −1, where masked scores lie: (1 +
/// t)·q(t), with q fitted where scores are calibrated.
///
/// The pole of e^{…}/(1 + t) is [`APART`] of their interval away from them, so the error of q falls by a factor of 2
/// per degree.
///
/// # Errors
/// As [`exponential`].
pub fn masked_exponential(head: &HeadChoice, degree: usize) -> Result<Polynomial, FheError> {
    let target = Exponential::of(head, masked)?;
    let value = |t| target.value(t) / (1.0 + t);
    let weight = |t| target.weight(t) * (1.0 + t);
    let calibrated = (2.0 * APART / (1.0 + APART) - 1.0, 1.0);
    let q = minimax_over(value, weight, degree.max(1) - 1, (-1.0, 1.0), &[calibrated]);
    let q = q.map_err(PolyError::from)?.chebyshev;
    // t·T_k = (T_{k+1} + T_{|k−1|})/2.
    let mut product = vec![0.0; q.len() + 1];
    for (k, &c) in q.iter().enumerate() {
        product[k] += c;
        product[k + 1] += c / 2.0;
        product[k.abs_diff(1)] += c / 2.0;
    }
    Ok(Polynomial::chebyshev(product, -1.0, 1.0)?)
}

/// The target of an exponential's fit, and the weight of its errors.
struct Exponential {
    /// The interval that is mapped to [−1, 1].
    scores: Interval,
    /// No relative accuracy is needed below it.
    least: f64,
    divisor: f64,
}

impl Exponential {
    fn of(head: &HeadChoice, mapped: fn(Interval) -> Interval) -> Result<Exponential, FheError> {
        let HeadChoice::Softmax { scores, least_maximum, first, .. } = *head else {
            let what = "a head with a fixed pattern has no exponential".to_owned();
            return Err(ChoicesError::Unusable { what }.into());
        };
        Ok(Exponential { scores: mapped(scores), least: least_maximum - RELATIVE_BELOW, divisor: first.high })
    }

    fn at(&self, t: f64) -> f64 {
        self.scores.middle() + self.scores.half() * t
    }

    fn value(&self, t: f64) -> f64 {
        ((self.at(t) - self.scores.high) / 2.0).exp() / self.divisor
    }

    fn weight(&self, t: f64) -> f64 {
        ((self.scores.high - self.at(t).max(self.least)) / 2.0).exp() * self.divisor
    }
}

/// The interval mapped to [−1, 1] for a column: [`BEYOND`] times its own.
#[must_use]
pub fn domain(column: impl Into<Column>) -> Interval {
    let interval = column.into().interval();
    let (middle, half) = (interval.middle(), BEYOND * interval.half());
    Interval { low: middle - half, high: middle + half }
}

/// The polynomial in t for an activation of x, with t in [−1, 1] for x in the column's [`domain`]. (An interval stands
/// for a column with its mean in the middle.)
///
/// # Errors
/// [`PolyError::Fit`] if the column's deviation is 0.
pub fn activation(f: Activation, column: impl Into<Column>, degree: usize) -> Result<Polynomial, PolyError> {
    let column: Column = column.into();
    let wide = domain(column);
    let count = POINTS * (degree + 1);
    let points: Vec<(f64, f64, f64)> = (0..=count)
        .map(|i| {
            // Points are dense at the ends, where polynomials oscillate, and weighted by their spacing.
            let angle = std::f64::consts::PI * i as f64 / count as f64;
            let t = -angle.cos();
            let x = wide.middle() + wide.half() * t;
            let width = angle.sin().max(0.5 / count as f64);
            let bell = (-0.5 * ((x - column.mean) / column.deviation).powi(2)).exp();
            let rare = match BEYOND * t.abs() {
                u if u * OUTER <= 1.0 => UNIFORM,
                u if u <= 1.0 => BOUNDED,
                _ => OUTSIDE,
            };
            (t, exact(f, x), width * (bell + rare))
        })
        .collect();
    Polynomial::from_fit(&least_squares_points(&points, degree)?)
}

/// Fraction of an interval of scores, at its lower end, that only separates masked scores from calibrated ones.
pub const APART: f64 = 0.125;

/// The polynomial in t for the logistic function of s + `bias`, with s in [`masked`] mapped to [−1, 1], and exactly 0
/// at t = −1, where masked scores lie.
///
/// # Errors
/// [`PolyError::Fit`] for an empty interval.
pub fn sigmoid(scores: Interval, bias: f64, degree: usize) -> Result<Polynomial, PolyError> {
    let wide = masked(scores);
    let count = POINTS * (degree + 1);
    let point = |i: usize| {
        let angle = std::f64::consts::PI * i as f64 / count as f64;
        let t = -angle.cos();
        let s = wide.middle() + wide.half() * t;
        let width = angle.sin().max(0.5 / count as f64);
        let weight = match s < scores.low {
            true => BOUNDED,
            false => 1.0,
        };
        match i {
            // As heavy as all others together.
            0 => (t, 0.0, count as f64),
            _ => (t, 1.0 / (1.0 + (-s - bias).exp()), width * weight),
        }
    };
    let points: Vec<_> = (0..=count).map(point).collect();
    let near = Polynomial::from_fit(&least_squares_points(&points, degree)?)?;
    // The residual at −1, a thousandth of the error elsewhere, is subtracted everywhere.
    let left = near.eval(-1.0);
    let moved: Vec<_> = (points.iter().map(|&(t, ..)| (t, near.eval(t) - left, 1.0))).collect();
    Polynomial::from_fit(&least_squares_points(&moved, degree)?)
}

/// The interval that scores are mapped from: extended at the lower end, where masked scores are placed.
#[must_use]
pub fn masked(scores: Interval) -> Interval {
    Interval { low: scores.low - APART * (scores.high - scores.low), high: scores.high }
}

/// 1/√x for the variances of a norm: on [low, 1], and as far above 1 as its steps allow.
///
/// # Errors
/// [`PolyError`] for an invalid range, degree or number of steps.
pub fn root(choice: &NormChoice) -> Result<InverseSqrt, PolyError> {
    let on = |reach: f64| InverseSqrt::with_steps(choice.low, reach, choice.seed, choice.steps);
    let plain = on(1.0)?;
    let most = plain.report().error.max(ROOT_ERROR);
    for reach in REACHES {
        let wide = on(reach)?;
        if wide.report().error <= most {
            return Ok(wide);
        }
    }
    Ok(plain)
}

#[cfg(test)]
#[path = "fits_tests.rs"]
mod tests;
