//! What reads the result of a block, and so what is folded into its last map.

use hushed_ckks::Scale;
use hushed_lower::LinearMap;
use hushed_model::{Linear, StepId};

use crate::choices::NormChoice;
use crate::error::FheError;
use crate::ops::acts::centred;
use crate::ops::norm::centred_scale;
use crate::slots::Slots;

/// The reader of a block's result.
#[derive(Clone, Copy)]
pub enum After<'a> {
    /// A residual sum and a norm: κ·(y − mean of y).
    Norm(&'a NormChoice),
    /// A residual sum of numbers within this bound, which is refreshed: y/bound.
    Sum(f64),
}

impl After<'_> {
    /// The last map of the block, with what is folded into it.
    ///
    /// # Errors
    /// As [`centred`].
    pub fn map<S: Slots>(&self, on: &S, at: StepId, w: &Linear) -> Result<LinearMap, FheError> {
        match self {
            After::Norm(norm) => centred(on, at, w, norm.scale),
            After::Sum(_) if on.only_shapes() => Ok(LinearMap::shape(w.outputs, w.inputs)),
            After::Sum(bound) => Ok(LinearMap::of(at, w)?.times(1.0 / bound).bounded()),
        }
    }

    /// The scale of the results, with `limbs` primes.
    ///
    /// # Errors
    /// As [`centred_scale`].
    pub fn scale<S: Slots>(&self, on: &S, limbs: usize) -> Result<Scale, FheError> {
        match self {
            After::Norm(_) => centred_scale(on, limbs),
            After::Sum(_) => Ok(on.default_scale()),
        }
    }
}
