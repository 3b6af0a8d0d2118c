//! The functions that the polynomials and iterations of a run approximate. The circuit names the function at each call
//! ([`Slots::apply`](crate::Slots::apply)), so that an implementation may compute it exactly and record its arguments.

use hushed_model::Activation;
use hushed_model::plain::activation;

use crate::choices::fits;
use crate::choices::{Column, Interval};

/// Arguments up to this value are masked scores, which are −1 up to rounding; calibrated scores are farther from it.
pub(crate) const MASKED: f64 = -1.0 + 1e-6;

/// A function of each slot of a vector. Arguments and results are the numbers in the slots: mapped to [−1, 1] or
/// divided by bounds.
#[derive(Clone, Copy, Debug)]
pub enum Function {
    /// e^{(s − high)/2}/`divisor` as a function of t, the score s mapped from its interval to [−1, 1]; 0 at −1, the
    /// value of padding and masked scores.
    Exponential {
        /// The head in its layer.
        head: usize,
        /// The interval of its scores.
        scores: Interval,
        /// The upper end of the sums of exponentials.
        divisor: f64,
        /// Diagonal j: row i and key i + j, modulo the rows; in a decoder, in the frame of its giant step.
        diagonal: usize,
    },
    /// The inverse of a head's Σp.
    FirstInverse {
        /// The head in its layer.
        head: usize,
        /// The interval of its scores.
        scores: Interval,
    },
    /// The inverse of a head's Σe.
    SecondInverse {
        /// The head in its layer.
        head: usize,
    },
    /// The logistic function of s + `bias` as a function of t, the score s mapped from its interval to [−1, 1]; 0 at
    /// −1, the value of masked scores.
    Sigmoid {
        /// The head in its layer.
        head: usize,
        /// The interval of its scores.
        scores: Interval,
        /// Added to every score.
        bias: f64,
    },
    /// An activation as a function of t, its argument mapped from the column's domain to [−1, 1].
    Activation {
        /// The function.
        f: Activation,
        /// The hidden column.
        index: usize,
        /// The interval of its arguments.
        column: Column,
    },
    /// v^(−1/2) in a norm.
    Root,
    /// The pooler's activation in a classifier's head, as a function of t, its argument divided by `reach`.
    Head {
        /// The function.
        f: Activation,
        /// The largest absolute value of its argument.
        reach: f64,
    },
}

impl Function {
    /// Its value at t.
    pub fn exact(&self, t: f64) -> f64 {
        match *self {
            Function::Exponential { .. } | Function::Sigmoid { .. } if t <= MASKED => 0.0,
            Function::Exponential { scores, divisor, .. } => ((self.argument(t) - scores.high) / 2.0).exp() / divisor,
            Function::Sigmoid { bias, .. } => 1.0 / (1.0 + (-self.argument(t) - bias).exp()),
            Function::FirstInverse { .. } | Function::SecondInverse { .. } => 1.0 / t,
            Function::Root => 1.0 / t.sqrt(),
            Function::Activation { f, .. } | Function::Head { f, .. } => activation(f, self.argument(t)),
        }
    }

    /// The score or argument that t stands for.
    pub fn argument(&self, t: f64) -> f64 {
        let at = |x: Interval| x.middle() + x.half() * t;
        match *self {
            Function::Exponential { scores, .. } | Function::Sigmoid { scores, .. } => at(scores),
            Function::Activation { column, .. } => at(fits::domain(column)),
            Function::Head { reach, .. } => reach * t,
            _ => t,
        }
    }
}
