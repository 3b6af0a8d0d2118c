//! A feed-forward block whose activation was pruned and whose maps were merged (the Orion kernels paper, §III-D), on
//! columns: one map, one level. The norm after it is folded in, as for the last map of any block.

use hushed_lower::LinearMap;
use hushed_model::{Linear, StepId, same};

use crate::choices::NormChoice;
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::levels::below;
use crate::ops::norm::centred_scale;
use crate::slots::Slots;

/// Returns κ·(y − mean of y) for y = W·x + b, by columns, one level below x.
///
/// # Errors
/// Shapes that differ, layers without numbers, too few levels.
pub fn merged<S: Slots>(
    on: &S,
    at: StepId,
    x: &Acts<S::Value>,
    w: &Linear,
    norm: &NormChoice,
) -> Result<Vec<S::Value>, FheError> {
    let map = on.map(at, || Ok(map(on, at, x, w, norm)?.bounded()))?;
    let limbs = x.columns.iter().map(|c| on.limbs(c)).min().unwrap_or(0);
    let target = centred_scale(on, below(on, limbs, 1)?)?;
    on.linear(&map, &x.columns, target)
}

/// The same, as a map of the vectors of `x`.
///
/// # Errors
/// Shapes that differ, layers without numbers.
pub fn map<S: Slots>(
    on: &S,
    at: StepId,
    x: &Acts<S::Value>,
    w: &Linear,
    norm: &NormChoice,
) -> Result<LinearMap, FheError> {
    same(at, "columns", x.gain.len(), w.inputs)?;
    if on.only_shapes() {
        return Ok(LinearMap::shape(w.outputs, w.inputs));
    }
    let map = LinearMap::of(at, w)?.reading(&x.gain, &x.offset);
    Ok(map.centred().times(norm.scale))
}
