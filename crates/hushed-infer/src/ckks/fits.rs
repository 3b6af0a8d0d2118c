//! The polynomials that choices stand for: one place for those who compute them, in the clear or encrypted, and for the search that
//! chose them. (Inverses and inverse roots need only their ranges and steps: `Inverse::with_steps`, `InverseSqrt::with_steps`.)
//!
//! | function | argument | fit | error that counts |
//! |---|---|---|---|
//! | [`exponential`] | t in [−1, 1], scores mapped to it | weighted minimax (Remez) | relative to the largest of its row, of e^{s/2} |
//! | [`activation`] | t in [−1, 1], arguments mapped to it | least squares under the bell of its mean and deviation, and a little everywhere | mean square over what occurs |
//!
//! Degrees are given, not found from intervals: intervals follow from weights, and what is computed must not. Outside of its
//! interval every one of these is garbage, of any size: one text's garbage may grow until it overflows the ciphertexts that it shares with
//! others. So the intervals of activations, whose columns have long tails, are wider than what occurs: [`OUTER`].

use hushed_ckks::poly::{PolyError, Polynomial};
use hushed_math::fit::{least_squares_points, minimax};
use hushed_model::Activation;
use hushed_model::plain::activation as exact;

use super::choices::{ChoicesError, Column, HeadChoice};
use super::error::FheError;

/// Nats below the least row maximum down to which exponentials keep their relative accuracy. Three nats of score are a factor of e^{−1.5}
/// in e^{s/2}: an error of the size of the largest one's is damped by that when it is squared.
const RELATIVE_BELOW: f64 = 3.0;

/// Weight of everything else, so that what is rare stays near.
const UNIFORM: f64 = 0.01;

/// A column's interval is so many times as wide as the part of it in which arguments are expected.
pub const OUTER: f64 = 1.5;

/// Weight of the rest of it, so that a polynomial stays bounded there: with [`UNIFORM`] the expected part would be twice as far off.
const BOUNDED: f64 = 1e-4;

/// Points of a fit for each of its coefficients.
const POINTS: usize = 6;

/// The polynomial in t = (2s − low − high)/(high − low) for e^{(s − high)/2}/`first.high`: its sums over a row are within 1.
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

/// The polynomial in t = (2x − low − high)/(high − low) for an activation of x. (An interval is a column whose mean is in its middle.)
///
/// # Errors
/// [`PolyError::Fit`] if the column has no deviation.
pub fn activation(
    f: Activation,
    column: impl Into<Column>,
    degree: usize,
) -> Result<Polynomial, PolyError> {
    let column: Column = column.into();
    let interval = column.interval();
    let count = POINTS * (degree + 1);
    let points: Vec<(f64, f64, f64)> = (0..=count)
        .map(|i| {
            // Dense at the ends, where polynomials swing; each point stands for the width around it.
            let angle = std::f64::consts::PI * i as f64 / count as f64;
            let t = -angle.cos();
            let x = interval.middle() + interval.half() * t;
            let width = angle.sin().max(0.5 / count as f64);
            let bell = (-0.5 * ((x - column.mean) / column.deviation).powi(2)).exp();
            let rare = if t.abs() * OUTER <= 1.0 {
                UNIFORM
            } else {
                BOUNDED
            };
            (t, exact(f, x), width * (bell + rare))
        })
        .collect();
    Polynomial::from_fit(&least_squares_points(&points, degree)?)
}

#[cfg(test)]
#[path = "fits_tests.rs"]
mod tests;
