//! The polynomials that choices stand for: one place for those who compute them, in the clear or encrypted, and for the
//! search that chose them.
//!
//! | function | argument | fit | error that counts |
//! |---|---|---|---|
//! | [`exponential`] | t in [−1, 1], scores mapped to it | weighted minimax (Remez) | relative to the largest of its row, of e^{s/2} |
//! | [`activation`] | t in [−1, 1], arguments mapped to it ([`domain`]) | least squares under the bell of its mean and deviation, and a little everywhere | mean square over what occurs |
//! | [`root`] | v | minimax in relative error, then relaxed Newton | relative |
//!
//! (Inverses need only their ranges and steps: `Inverse::with_steps`.)
//!
//! Degrees and steps are given, not found from intervals: intervals follow from weights, and what is computed must not.
//!
//! *Beyond the intervals* every one of these is garbage, and far beyond it grows until it overflows the ciphertexts
//! that texts share. What can be had without a level is had here: activations are bounded on a wider interval than
//! their column's ([`OUTER`], [`BEYOND`]), and a root is made for a wider range than was calibrated, as far as its
//! steps and the error allow ([`root`]). An inverse has nothing to spare: its steps multiply scales, and a range wider
//! by more than a little outgrows the primes.

use hushed_ckks::poly::{InverseSqrt, PolyError, Polynomial};
use hushed_math::fit::{least_squares_points, minimax};
use hushed_model::Activation;
use hushed_model::plain::activation as exact;

use crate::choices::{ChoicesError, Column, HeadChoice, Interval, NormChoice};
use crate::error::FheError;

/// Nats below the least row maximum down to which exponentials keep their relative accuracy. Three nats of score are a
/// factor of e^{−1.5} in e^{s/2}: an error of the size of the largest one's is damped by that when it is squared.
const RELATIVE_BELOW: f64 = 3.0;

/// Weight of everything else, so that what is rare stays near.
const UNIFORM: f64 = 0.01;

/// A column's interval is so many times as wide as the part of it in which arguments are expected.
pub const OUTER: f64 = 1.5;

/// Weight of the rest of it, so that a polynomial stays bounded there: with [`UNIFORM`] the expected part would be
/// twice as far off.
const BOUNDED: f64 = 1e-4;

/// A polynomial is bounded on so many times the column's interval: single numbers that leave it do not grow.
pub const BEYOND: f64 = 1.1;

/// Weight of what is beyond the interval: those of the shipped calibration stay below 20 there. Ten times as much makes
/// nothing smaller.
const OUTSIDE: f64 = 1e-7;

/// Points of a fit for each of its coefficients.
const POINTS: usize = 7;

/// How far beyond the calibrated end, 1, a root may be good, tried from the first.
const REACHES: [f64; 5] = [4.0, 3.0, 2.0, 1.5, 1.2];

/// A relative error of a root that nobody sees: a calibration takes as many steps as reach it.
pub const ROOT_ERROR: f64 = 1.0 / 16384.0;

/// The polynomial in t = (2s − low − high)/(high − low) for e^{(s − high)/2}/`first.high`: its sums over a row are
/// within 1.
///
/// # Errors
/// [`FheError::Choices`] for a head without a softmax, [`FheError::Poly`] if the fit is refused.
pub fn exponential(head: &HeadChoice, degree: usize) -> Result<Polynomial, FheError> {
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
    let at = |t: f64| scores.middle() + scores.half() * t;
    let least = least_maximum - RELATIVE_BELOW;
    let value = |t: f64| ((at(t) - scores.high) / 2.0).exp() / first.high;
    let weight = |t: f64| ((scores.high - at(t).max(least)) / 2.0).exp() * first.high;
    let fit = minimax(value, weight, degree, -1.0, 1.0).map_err(PolyError::from)?;
    Ok(Polynomial::from_fit(&fit)?)
}

/// The interval that a column's arguments are mapped to [−1, 1] from: [`BEYOND`] times its own.
#[must_use]
pub fn domain(column: impl Into<Column>) -> Interval {
    let interval = column.into().interval();
    let (middle, half) = (interval.middle(), BEYOND * interval.half());
    Interval {
        low: middle - half,
        high: middle + half,
    }
}

/// The polynomial in t for an activation of x, t in [−1, 1] for x in the column's [`domain`]. (An interval is a column
/// whose mean is in its middle.)
///
/// # Errors
/// [`PolyError::Fit`] if the column has no deviation.
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
            // Dense at the ends, where polynomials swing; each point stands for the width around it.
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

/// 1/√x on [low, 1] alone: of one shape with [`root`].
///
/// # Errors
/// As [`root`].
pub fn root_within(choice: &NormChoice) -> Result<InverseSqrt, PolyError> {
    InverseSqrt::with_steps(choice.low, 1.0, choice.seed, choice.steps)
}

/// 1/√x on [low, 1] and as far beyond as the steps allow: of the variances of a norm.
///
/// # Errors
/// [`PolyError`] for numbers that no root has.
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
