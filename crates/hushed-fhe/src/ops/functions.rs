//! The functions of a run, each as the circuit asks [`Slots::apply`] for it: what is computed is a polynomial or an iteration, and what it
//! stands for is known, so that an interpretation may compute that instead and see what it is given.

use hushed_ckks::Scale;
use hushed_ckks::poly::{Inverse, InverseSqrt, Polynomial, evaluate};
use hushed_model::Activation;
use hushed_model::plain::activation as exact;

use crate::choices::Column;
use crate::choices::fits;
use crate::error::FheError;
use crate::ops::head::Squash;
use crate::ops::softmax::Softmax;
use crate::slots::Slots;

/// A function of each slot of a vector. Arguments and results are as they are in the slots: mapped to [−1, 1], divided by bounds.
pub enum Function<'a> {
    /// p of a diagonal of a head's scores.
    Exponential {
        /// The head's functions.
        softmax: &'a Softmax,
        /// Of row i with key i + this, modulo the rows.
        diagonal: usize,
    },
    /// 1/Σp of a head's rows.
    FirstInverse(&'a Softmax),
    /// 1/Σe.
    SecondInverse(&'a Softmax),
    /// An activation of a hidden column.
    Activation {
        /// What the polynomial stands for.
        f: Activation,
        /// The column.
        index: usize,
        /// Where its arguments are.
        column: Column,
        /// Of t in [−1, 1].
        polynomial: &'a Polynomial,
    },
    /// v^(−1/2) of a norm.
    Root(&'a InverseSqrt),
    /// The pooler's function in a classifier's head.
    Head(&'a Squash),
}

impl Function<'_> {
    /// Its polynomials, on a vector; the result is at `target`, [`Function::levels`] below.
    ///
    /// # Errors
    /// Too few levels.
    pub fn evaluate<S: Slots>(
        &self,
        on: &S,
        x: &S::Value,
        target: Scale,
    ) -> Result<S::Value, FheError> {
        match self {
            Function::Exponential { softmax, .. } => evaluate(on, x, softmax.polynomial(), target),
            Function::FirstInverse(softmax) => softmax.first().evaluate(on, x, target),
            Function::SecondInverse(softmax) => softmax.second().evaluate(on, x, target),
            Function::Activation { polynomial, .. } => evaluate(on, x, polynomial, target),
            Function::Root(root) => root.evaluate(on, x, target),
            Function::Head(squash) => squash.evaluate(on, x, target),
        }
    }

    /// Levels between its argument and its result.
    pub fn levels(&self) -> usize {
        let inverse = |inverse: &Inverse| inverse.levels();
        match self {
            Function::Exponential { softmax, .. } => softmax.exponential_levels(),
            Function::FirstInverse(softmax) => inverse(softmax.first()),
            Function::SecondInverse(softmax) => inverse(softmax.second()),
            Function::Activation { polynomial, .. } => polynomial.depth(),
            Function::Root(root) => root.levels(),
            Function::Head(squash) => squash.levels(),
        }
    }

    /// What the polynomials stand for.
    pub fn exact(&self, x: f64) -> f64 {
        match self {
            Function::Exponential { softmax, .. } => {
                ((softmax.score(x) - softmax.scores().high) / 2.0).exp() / softmax.first_high()
            }
            Function::FirstInverse(_) | Function::SecondInverse(_) => 1.0 / x,
            Function::Activation { f, column, .. } => exact(*f, argument(*column, x)),
            Function::Root(_) => 1.0 / x.sqrt(),
            Function::Head(squash) => squash.exact(x),
        }
    }
}

/// The argument of an activation that is at t in [−1, 1].
pub fn argument(column: Column, t: f64) -> f64 {
    let domain = fits::domain(column);
    domain.middle() + domain.half() * t
}
