//! The functions of a slot that a tape applies.

use std::sync::Arc;

use hushed_ckks::Scale;
use hushed_ckks::poly::{Inverse, InverseSqrt, Polynomial, SlotPolynomial, evaluate, evaluate_slots};
use hushed_model::Activation;
use rayon::prelude::*;

use crate::choices::Column;
use crate::error::FheError;
use crate::ops::activation::{activation, levels};
use crate::ops::folded::Polynomials;
use crate::ops::functions::Function;
use crate::ops::head::HeadActivation;
use crate::ops::sigmoid::Sigmoid;
use crate::ops::softmax::Softmax;
use crate::packing::PackingError;
use crate::slots::Slots;

/// A function of a vector and its number in its block.
type OfVector<'a, V> = dyn Fn(usize, V) -> Result<V, FheError> + Sync + 'a;

/// A function of each slot, and what approximates it.
#[derive(Clone)]
pub(crate) enum SlotFunction {
    /// p of diagonals of t, from diagonal `first` on.
    Exponential { softmax: Arc<Softmax>, first: usize },
    /// The weights of scores by a sigmoid.
    Sigmoid(Arc<Sigmoid>),
    /// 1/Σp.
    FirstInverse(Arc<Softmax>),
    /// 1/Σe.
    SecondInverse(Arc<Softmax>),
    /// 1/Σp or 1/Σe of all heads side by side.
    Inverse(Arc<Inverse>),
    /// A polynomial on [−1, 1].
    Polynomial(Arc<Polynomial>),
    /// A polynomial for each slot: one for each vector, or one for all.
    Places(Arc<Vec<SlotPolynomial>>),
    /// v^(−1/2) in a norm.
    Root(Arc<InverseSqrt>),
    /// The activation of a classifier's head.
    Head(Arc<HeadActivation>),
    /// An activation of hidden columns, from column `first` on.
    Activation { f: Activation, first: usize, columns: Vec<Column>, degree: usize, polynomials: Arc<Polynomials> },
}

impl SlotFunction {
    /// The levels it takes.
    pub fn levels(&self) -> usize {
        match self {
            SlotFunction::Exponential { softmax, .. } => softmax.exponential_levels(),
            SlotFunction::Sigmoid(sigmoid) => sigmoid.levels(),
            SlotFunction::FirstInverse(softmax) => softmax.first().levels(),
            SlotFunction::SecondInverse(softmax) => softmax.second().levels(),
            SlotFunction::Inverse(inverse) => inverse.levels(),
            SlotFunction::Polynomial(p) => p.depth(),
            SlotFunction::Places(all) => all.first().map_or(0, SlotPolynomial::depth),
            SlotFunction::Root(root) => root.levels(),
            SlotFunction::Head(head) => head.levels(),
            SlotFunction::Activation { degree, .. } => levels(*degree),
        }
    }

    /// Whether it is a polynomial of its argument, which has a scale that suits it best.
    pub fn is_polynomial(&self) -> bool {
        use SlotFunction::{Activation, Exponential, Places, Polynomial, Sigmoid};
        matches!(self, Exponential { .. } | Sigmoid(_) | Polynomial(_) | Places(_) | Activation { .. })
    }

    /// Whether its values are at the default scale, whatever is asked for.
    pub fn is_at_default(&self) -> bool {
        use SlotFunction::{Activation, Exponential, Head, Sigmoid};
        matches!(self, Exponential { .. } | Sigmoid(_) | Activation { .. } | Head(_))
    }

    /// Its values on vectors, at `target`.
    ///
    /// # Errors
    /// Too few levels, a refused fit.
    pub fn evaluate<S: Slots>(&self, on: &S, x: Vec<S::Value>, target: Scale) -> Result<Vec<S::Value>, FheError> {
        let each = |x: Vec<S::Value>, f: &OfVector<'_, S::Value>| {
            x.into_par_iter().enumerate().map(|(i, x)| f(i, x)).collect::<Result<Vec<_>, _>>()
        };
        match self {
            SlotFunction::Exponential { softmax, first } => each(x, &|i, t| softmax.exponential(on, first + i, &t)),
            SlotFunction::Sigmoid(sigmoid) => each(x, &|_, t| sigmoid.evaluate(on, &t)),
            SlotFunction::FirstInverse(softmax) => each(x, &|_, sum| softmax.first_inverse(on, &sum, target)),
            SlotFunction::SecondInverse(softmax) => each(x, &|_, sum| softmax.second_inverse(on, &sum, target)),
            SlotFunction::Inverse(inverse) => each(x, &|_, sum| inverse.evaluate(on, &sum, target)),
            SlotFunction::Polynomial(p) => each(x, &|_, t| evaluate(on, &on.within(t, 1.0), p, target)),
            SlotFunction::Places(all) => each(x, &|i, t| {
                let p = all.get(i.min(all.len().saturating_sub(1))).ok_or(PackingError::Mismatch)?;
                evaluate_slots(on, &t, p, target)
            }),
            SlotFunction::Root(root) => each(x, &|_, v| {
                let compute = || root.evaluate(on, &v, target);
                on.apply(&Function::Root, &v, (root.levels(), target), compute)
            }),
            SlotFunction::Head(head) => each(x, &|_, t| head.evaluate(on, &t)),
            SlotFunction::Activation { f, first, columns, degree, polynomials } => {
                activation(on, *f, *first, x, columns, *degree, polynomials)
            }
        }
    }

    /// The function of slot `slot` of vector `i` at t: itself, or what approximates it.
    ///
    /// # Errors
    /// A refused fit.
    #[cfg(test)]
    pub fn at(&self, (i, slot): (usize, usize), t: f64, exact: bool) -> Result<f64, FheError> {
        let column = |columns: &[Column]| columns.get(i).copied().ok_or(PackingError::Mismatch);
        Ok(match self {
            SlotFunction::Exponential { softmax, first } if exact => softmax.function(first + i).exact(t),
            SlotFunction::Exponential { softmax, .. } => softmax.polynomial().eval(t),
            SlotFunction::Sigmoid(sigmoid) if exact => sigmoid.function().exact(t),
            SlotFunction::Sigmoid(sigmoid) => sigmoid.polynomial().eval(t),
            SlotFunction::FirstInverse(_) | SlotFunction::SecondInverse(_) if exact => 1.0 / t,
            SlotFunction::FirstInverse(softmax) => softmax.first().eval(t),
            SlotFunction::SecondInverse(softmax) => softmax.second().eval(t),
            SlotFunction::Inverse(_) if exact => 1.0 / t,
            SlotFunction::Inverse(inverse) => inverse.eval(t),
            SlotFunction::Polynomial(_) | SlotFunction::Places(_) if exact => {
                return Err(PackingError::Mismatch.into());
            }
            SlotFunction::Polynomial(p) => p.eval(t),
            SlotFunction::Places(all) => {
                let coefficients = all.get(i.min(all.len() - 1)).ok_or(PackingError::Mismatch)?.coeffs().iter();
                let of_slot = coefficients.map(|all| all.get(slot % all.len().max(1)).copied().unwrap_or(0.0));
                hushed_ckks::poly::Polynomial::chebyshev(of_slot.collect(), -1.0, 1.0)?.eval(t)
            }
            SlotFunction::Root(_) if exact => Function::Root.exact(t),
            SlotFunction::Root(root) => root.eval(t),
            SlotFunction::Head(head) if exact => head.function().exact(t),
            SlotFunction::Head(head) => head.eval(t),
            SlotFunction::Activation { f, first, columns, degree, polynomials } => match exact {
                true => Function::Activation { f: *f, index: first + i, column: column(columns)? }.exact(t),
                false => polynomials.get(*f, column(columns)?, *degree)?.eval(t),
            },
        })
    }
}
