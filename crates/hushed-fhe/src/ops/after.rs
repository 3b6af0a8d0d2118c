//! The reader of a block's result, which decides what is folded into its last map; and that map, scalar or ternary.

use std::sync::Arc;

use hushed_ckks::Scale;
use hushed_lower::LinearMap;
use hushed_model::{Linear, Norm, StepId};
use rayon::prelude::*;
use serde::Serialize;

use crate::choices::NormChoice;
use crate::error::FheError;
use crate::ops::acts::centred;
use crate::ops::levels::below;
use crate::ops::norm::centred_scale;
use crate::slots::Slots;

/// The reader of a block's result.
#[derive(Clone, Copy)]
pub enum After<'a> {
    /// A residual sum and a norm: κ·(y − mean of y).
    Norm(&'a NormChoice),
    /// A residual sum of numbers within this bound, refreshed afterwards: y/bound.
    Sum(f64),
}

/// How a layer that is declared ternary is computed, and if not with weights −1, 0 and 1, why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// With weights −1, 0 and 1: no level.
    Ternary,
    /// With scalar weights: the gains of the norm whose columns it reads are folded in.
    NormBefore,
    /// With scalar weights: the norm inside the block has gains other than 1.
    SubNorm,
    /// With scalar weights: what the norm after it takes is folded in.
    NormAfter,
    /// With scalar weights: its operands come at a given scale.
    GivenScale,
    /// With diagonals of packed rows.
    PackedRows,
}

impl Form {
    /// How a layer that reads the columns of a norm is computed; `None` if it is not declared ternary.
    #[must_use]
    pub fn first(w: &Linear) -> Option<Form> {
        w.ternary.then_some(Form::NormBefore)
    }

    /// The levels of a map.
    #[must_use]
    pub fn levels(form: Option<Form>) -> usize {
        usize::from(form != Some(Form::Ternary))
    }
}

/// The last map of a block.
pub enum Last {
    /// With everything folded in: one level.
    Scalar {
        /// The map.
        map: Arc<LinearMap>,
        /// The scale of its results.
        target: Scale,
    },
    /// Weights −1, 0 and 1, for operands at `factor` times the default scale: no level. The result, read as `factor`
    /// times itself, is at the default scale.
    Ternary {
        /// The layer, its scale as the bound.
        map: Arc<LinearMap>,
        /// The layer's scale divided by the bound.
        factor: f64,
    },
}

impl After<'_> {
    /// How a block's last map is computed, for the norm before it, if any; `None` if it is not declared ternary. `free`
    /// says whether the scale of its operands can be chosen.
    #[must_use]
    pub fn form(&self, w: &Linear, norm: Option<&Norm>, free: bool) -> Option<Form> {
        let form = match self {
            After::Norm(_) => Form::NormAfter,
            After::Sum(_) if !free => Form::GivenScale,
            After::Sum(_) if !norm.is_none_or(keeps_ternary) => Form::SubNorm,
            After::Sum(_) => Form::Ternary,
        };
        w.ternary.then_some(form)
    }

    /// The last map of a block, for operands with `limbs` primes, computed as [`After::form`] says.
    ///
    /// # Errors
    /// As [`centred`]; too few levels.
    pub fn last<S: Slots>(
        &self,
        on: &S,
        at: StepId,
        w: &Linear,
        limbs: usize,
        form: Option<Form>,
    ) -> Result<Last, FheError> {
        let bound = match self {
            After::Norm(norm) => {
                let map = on.map(at, || centred(on, at, w, norm.scale))?;
                let target = centred_scale(on, below(on, limbs, 1)?)?;
                return Ok(Last::Scalar { map, target });
            }
            After::Sum(bound) => *bound,
        };
        let shape = on.only_shapes();
        let levels = Form::levels(form);
        if levels > 0 {
            below(on, limbs, levels)?;
            let target = on.default_scale();
            let map = on.map(at, || match shape {
                true => Ok(LinearMap::shape(w.outputs, w.inputs)),
                false => Ok(LinearMap::of(at, w)?.times(1.0 / bound).bounded()),
            })?;
            return Ok(Last::Scalar { map, target });
        }
        let map = on.map(at, || {
            let mut map = match shape {
                true => LinearMap::shape(w.outputs, w.inputs),
                false => LinearMap::of(at, w)?,
            };
            map.bias = None;
            let size = map.weights.iter().fold(0.0_f64, |s, w| s.max(w.abs()));
            // A layer of zeros, or one with only a known shape. Weights of other sizes are refused when they are added.
            map.bound = if size > 0.0 { size } else { bound };
            Ok(map)
        })?;
        let factor = map.bound / bound;
        Ok(Last::Ternary { map, factor })
    }
}

impl Last {
    /// The levels it takes.
    #[must_use]
    pub fn levels(&self) -> usize {
        usize::from(matches!(self, Last::Scalar { .. }))
    }

    /// The scale of its operands, relative to the default one.
    #[must_use]
    pub fn operands(&self) -> f64 {
        match self {
            Last::Scalar { .. } => 1.0,
            Last::Ternary { factor, .. } => *factor,
        }
    }

    /// The whole map.
    #[must_use]
    pub fn map(&self) -> &LinearMap {
        match self {
            Last::Scalar { map, .. } | Last::Ternary { map, .. } => map,
        }
    }

    /// Adds the products of some of its columns.
    ///
    /// # Errors
    /// As [`Slots::linear_add`].
    pub fn add<S: Slots>(
        &self,
        on: &S,
        part: &LinearMap,
        x: &[S::Value],
        partial: Option<S::Partial>,
    ) -> Result<S::Partial, FheError> {
        match self {
            Last::Scalar { target, .. } => on.linear_add(part, x, *target, partial),
            Last::Ternary { .. } => on.ternary_add(part, x, partial),
        }
    }

    /// The results, at the scale their reader takes.
    ///
    /// # Errors
    /// If there is no level.
    pub fn finish<S: Slots>(&self, on: &S, partial: Option<S::Partial>) -> Result<Vec<S::Value>, FheError> {
        match (self, partial) {
            (_, None) => Ok(Vec::new()),
            (Last::Scalar { .. }, Some(partial)) => on.linear_finish(partial),
            (Last::Ternary { factor, .. }, Some(partial)) => {
                let sums = on.ternary_finish(partial)?.into_par_iter();
                sums.map(|v| on.read_as(v, *factor)).collect()
            }
        }
    }
}

/// Whether the map after a norm inside a block may stay ternary.
#[must_use]
pub fn keeps_ternary(norm: &Norm) -> bool {
    let gain = norm.gain.iter().flat_map(|gain| gain.iter());
    gain.into_iter().all(|&g| g == 1.0)
}
