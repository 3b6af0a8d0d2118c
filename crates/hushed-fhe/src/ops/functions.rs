//! The functions of a run: what polynomials and iterations stand for. The circuit says with each which it is
//! ([`Slots::apply`](crate::Slots::apply)), so that an interpretation may compute that instead, and see what it is
//! given.

use hushed_model::Activation;
use hushed_model::plain::activation;

use crate::choices::fits;
use crate::choices::{Column, Interval};

/// A function of each slot of a vector. Arguments and results are as they are in the slots: mapped to [−1, 1], divided
/// by bounds.
#[derive(Clone, Copy, Debug)]
pub enum Function {
    /// e^{(s − high)/2}/`divisor` of t, which is the score s mapped from its interval.
    Exponential {
        /// Which head of its layer.
        head: usize,
        /// The interval of its scores.
        scores: Interval,
        /// The upper end of sums of it.
        divisor: f64,
        /// Row i with key i + this, modulo the rows.
        diagonal: usize,
    },
    /// The inverse of a head's Σp.
    FirstInverse {
        /// Which head of its layer.
        head: usize,
        /// The interval of its scores.
        scores: Interval,
    },
    /// The inverse of a head's Σe.
    SecondInverse {
        /// Which head of its layer.
        head: usize,
    },
    /// An activation of t, which is the argument mapped from its column's domain.
    Activation {
        /// Which function.
        f: Activation,
        /// The hidden column.
        index: usize,
        /// Where its arguments are.
        column: Column,
    },
    /// v^(−1/2) of a norm.
    Root,
    /// The pooler's function of t, its argument divided by `reach`, in a classifier's head.
    Head {
        /// Which function.
        f: Activation,
        /// No argument is larger.
        reach: f64,
    },
}

impl Function {
    /// Its value.
    pub fn exact(&self, t: f64) -> f64 {
        match *self {
            Function::Exponential {
                scores, divisor, ..
            } => ((self.argument(t) - scores.high) / 2.0).exp() / divisor,
            Function::FirstInverse { .. } | Function::SecondInverse { .. } => 1.0 / t,
            Function::Root => 1.0 / t.sqrt(),
            Function::Activation { f, .. } | Function::Head { f, .. } => {
                activation(f, self.argument(t))
            }
        }
    }

    /// The score or the argument that is at t.
    pub fn argument(&self, t: f64) -> f64 {
        let at = |x: Interval| x.middle() + x.half() * t;
        match *self {
            Function::Exponential { scores, .. } => at(scores),
            Function::Activation { column, .. } => at(fits::domain(column)),
            Function::Head { reach, .. } => reach * t,
            _ => t,
        }
    }
}
