//! The polynomials of choices: the only fits, for encrypted runs, for simulations and for the search.
//!
//! | function | argument | fit | error that counts |
//! |---|---|---|---|
//! | [`exponential`], [`masked_exponential`] | t in [−1, 1], scores mapped to it | weighted minimax (Remez) | relative to the largest of its row, of e^{s/2} |
//! | [`activation`] | t in [−1, 1], arguments mapped to it ([`domain`]) | least squares, weighted by the normal density of its mean and deviation, and a little everywhere | mean square over the arguments that occur |
//! | [`root`] | v | minimax in relative error, then relaxed Newton | relative |
//!
//! (Inverses need only their ranges and steps: `Inverse::with_steps`.)
//!
//! Degrees and steps are inputs, not derived from intervals: intervals depend on weights, and operations must not.
//!
//! *Outside the intervals* each of these is wrong, and far outside it grows until it overflows the ciphertexts that
//! texts share. Two measures cost no level: activations are bounded on a wider interval than their column's ([`OUTER`],
//! [`BEYOND`]), and a root is fitted on a wider range than the calibrated one, as far as its steps and the error allow
//! ([`root`]). An inverse has no such room: its steps multiply scales, and a much wider range outgrows the primes.

use hushed_ckks::poly::{InverseSqrt, PolyError, Polynomial};
use hushed_math::fit::{least_squares_points, minimax, minimax_over};
use hushed_model::Activation;
use hushed_model::plain::activation as exact;

use crate::choices::{ChoicesError, Column, HeadChoice, Interval, NormChoice};
use crate::error::FheError;

/// Nats below the least row maximum down to which exponentials keep their relative accuracy. Three nats of score are a
/// factor of e^{−1.5} in e^{s/2}: squaring damps an error as large as the largest one's by that.
const RELATIVE_BELOW: f64 = 3.0;

/// Weight everywhere else, so that the fit stays close at rare arguments.
const UNIFORM: f64 = 0.01;

/// Width of a column's interval over the width of the part in which arguments are expected.
pub const OUTER: f64 = 1.5;

/// Weight of the rest of the interval, where the polynomial need only be bounded: with [`UNIFORM`] there, the error in
/// the expected part would double.
const BOUNDED: f64 = 1e-4;

/// A polynomial is bounded on this many times the column's interval, so that a number a little outside does not grow.
pub const BEYOND: f64 = 1.1;

/// Weight outside the interval: polynomials of the shipped calibration stay below 20 there. Ten times the weight does
/// not make them smaller.
const OUTSIDE: f64 = 1e-7;

/// Points of a fit per coefficient.
const POINTS: usize = 7;

/// Upper ends of the range of a root, tried in this order; the calibrated end is 1.
const REACHES: [f64; 5] = [4.0, 3.0, 2.0, 1.5, 1.2];

/// A relative error of a root that no answer shows: a calibration takes the steps that reach it.
pub const ROOT_ERROR: f64 = 1.0 / 16384.0;

/// The polynomial in t = (2s − low − high)/(high − low) for e^{(s − high)/2}/`first.high`: its sums over a row are
/// within 1.
///
/// # Errors
/// [`FheError::Choices`] for a head without a softmax, [`FheError::Poly`] if the fit is refused.
pub fn exponential(head: &HeadChoice, degree: usize) -> Result<Polynomial, FheError> {
    let target = Exponential::of(head, |scores| scores)?;
    let (value, weight) = (|t| target.value(t), |t| target.weight(t));
    let fit = minimax(value, weight, degree, -1.0, 1.0).map_err(PolyError::from)?;
    Ok(Polynomial::from_fit(&fit)?)
}

/// The same for s in [`masked`] mapped to [−1, 1], and exactly 0 at t = −1, where masked scores are: (1 + t)·q(t), with
/// q fitted where scores are calibrated.
///
/// The pole of e^{…}/(1 + t) is [`APART`] of their interval away from them, so that its error falls by a factor of 2
/// with each degree.
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

/// What the exponential of a head is to be, and how much its errors count.
struct Exponential {
    /// The interval that is mapped to [−1, 1].
    scores: Interval,
    /// Below it no relative accuracy is needed.
    least: f64,
    divisor: f64,
}

impl Exponential {
    fn of(head: &HeadChoice, mapped: fn(Interval) -> Interval) -> Result<Exponential, FheError> {
        let HeadChoice::Softmax {
            scores,
            least_maximum,
            first,
            ..
        } = *head
        else {
            let what = "a head with a fixed pattern has no exponential".to_owned();
            return Err(ChoicesError::Unusable { what }.into());
        };
        Ok(Exponential {
            scores: mapped(scores),
            least: least_maximum - RELATIVE_BELOW,
            divisor: first.high,
        })
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

/// The interval that is mapped to [−1, 1] for a column: [`BEYOND`] times its own.
#[must_use]
pub fn domain(column: impl Into<Column>) -> Interval {
    let interval = column.into().interval();
    let (middle, half) = (interval.middle(), BEYOND * interval.half());
    Interval {
        low: middle - half,
        high: middle + half,
    }
}

/// The polynomial in t for an activation of x, t in [−1, 1] for x in the column's [`domain`]. (An interval stands for a
/// column with its mean in the middle.)
///
/// # Errors
/// [`PolyError::Fit`] if the column's deviation is 0.
pub fn activation(
    f: Activation,
    column: impl Into<Column>,
    degree: usize,
) -> Result<Polynomial, PolyError> {
    let column: Column = column.into();
    let wide = domain(column);
    let count = POINTS * (degree + 1);
    let points: Vec<(f64, f64, f64)> = (0..=count)
        .map(|i| {
            // Points are dense at the ends, where polynomials oscillate, and weighted by the width around them.
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

/// Share of an interval of scores, at its lower end, that only separates masked scores from calibrated ones.
pub const APART: f64 = 0.125;

/// The polynomial in t, for s in [`masked`] mapped to [−1, 1], of the logistic function of s + `bias`, and exactly 0 at
/// t = −1, where masked scores are.
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
            // As much as all others together.
            0 => (t, 0.0, count as f64),
            _ => (t, 1.0 / (1.0 + (-s - bias).exp()), width * weight),
        }
    };
    let points: Vec<_> = (0..=count).map(point).collect();
    let near = Polynomial::from_fit(&least_squares_points(&points, degree)?)?;
    // What is left at −1, a thousandth of the error elsewhere, is taken off everywhere.
    let left = near.eval(-1.0);
    let moved: Vec<_> = (points.iter().map(|&(t, ..)| (t, near.eval(t) - left, 1.0))).collect();
    Polynomial::from_fit(&least_squares_points(&moved, degree)?)
}

/// The interval that scores are mapped from: wider at the lower end, which is where masked scores are put.
#[must_use]
pub fn masked(scores: Interval) -> Interval {
    Interval {
        low: scores.low - APART * (scores.high - scores.low),
        high: scores.high,
    }
}

/// 1/√x on [low, 1] alone: of one shape with [`root`].
pub fn root_within(choice: &NormChoice) -> Result<InverseSqrt, PolyError> {
    InverseSqrt::with_steps(choice.low, 1.0, choice.seed, choice.steps)
}

/// 1/√x for the variances of a norm: on [low, 1], and as far above as its steps allow.
///
/// # Errors
/// [`PolyError`] for a range, degree or steps that are not valid.
pub fn root(choice: &NormChoice) -> Result<InverseSqrt, PolyError> {
    let on = |reach: f64| InverseSqrt::with_steps(choice.low, reach, choice.seed, choice.steps);
    let plain = root_within(choice)?;
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
