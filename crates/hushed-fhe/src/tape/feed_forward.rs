//! A feed-forward block, written once for every layout.

use std::sync::Arc;

use hushed_lower::LinearMap;
use hushed_model::{FeedForward, Linear, StepId};

use super::NodeId;
use super::functions::SlotFunction;
use super::record::Recorder;
use crate::choices::ActivationChoice;
use crate::error::FheError;
use crate::ops::acts::reading;
use crate::ops::folded::Polynomials;
use crate::slots::Slots;

/// A block, and what was folded and chosen for it.
pub(crate) struct FeedForwardBlock<'a> {
    pub at: StepId,
    pub block: &'a FeedForward,
    pub choice: &'a ActivationChoice,
    /// Mapped to the intervals of the activation.
    pub up: Arc<LinearMap>,
    pub down: Arc<LinearMap>,
    /// Hidden columns at a time.
    pub hidden: usize,
    pub polynomials: Arc<Polynomials>,
}

/// down(f(up(x))).
pub(crate) fn feed_forward(t: &mut Recorder, x: NodeId, layer: &FeedForwardBlock<'_>) -> Option<NodeId> {
    let (at, hidden) = (layer.at, layer.up.rows);
    let (up, down) = (t.map(Arc::clone(&layer.up)), t.map(Arc::clone(&layer.down)));
    let mut partial = None;
    for from in (0..hidden).step_by(layer.hidden.max(1)) {
        let block = from..hidden.min(from + layer.hidden.max(1));
        t.at(at.part("up"));
        let argument = t.linear(up, block.clone(), x);
        t.at(at.part("activation"));
        let function = t.function(SlotFunction::Activation {
            f: layer.block.activation,
            first: from,
            columns: layer.choice.columns.get(block.clone()).unwrap_or_default().to_vec(),
            degree: layer.choice.degree,
            polynomials: Arc::clone(&layer.polynomials),
        });
        let y = t.apply(function, argument);
        t.at(at.part("down"));
        partial = Some(t.linear_sum(down, block, y, partial));
    }
    partial.map(|partial| t.finished(partial))
}

/// The map of a block that was merged into one, centred and times κ: of columns with this gain and offset.
///
/// # Errors
/// Shapes that differ, layers without numbers.
pub(crate) fn merged<S: Slots>(
    on: &S,
    at: StepId,
    w: &Linear,
    columns: (&[f64], &[f64]),
    kappa: f64,
) -> Result<LinearMap, FheError> {
    if on.only_shapes() {
        return reading(on, at, w, columns);
    }
    Ok(reading(on, at, w, columns)?.centred().times(kappa).bounded())
}
