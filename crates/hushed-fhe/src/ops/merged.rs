//! A feed-forward block whose activation was pruned and whose maps were merged (the Orion kernels paper, §III-D), on
//! columns: one map, one level. The norm after it is folded in, as for the last map of any block.

use hushed_lower::LinearMap;
use hushed_model::{Linear, StepId, same};

use crate::choices::NormChoice;
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::slots::Slots;

/// The map from the vectors of `x` to κ·(y − mean of y), for y = W·x + b.
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
