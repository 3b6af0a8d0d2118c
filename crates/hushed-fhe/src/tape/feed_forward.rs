//! A feed-forward block, written once for every layout with a vector for each column, or for two.
//!
//! | step | levels |
//! |---|---|
//! | up: gain and offset of the norm before, and the map of each column's interval to [−1, 1], are folded in | 1 |
//! | the activation, a polynomial per column ([`crate::ops::activation`]) | ⌈log2(degree + 1)⌉ |
//! | with a gate: its product with the result of `up`, relinearised column by column | 1 |
//! | with a gate, if down is declared ternary: products are at the scale it takes | 0 |
//! | down: what the reader of its result takes is folded in; all products are summed, then rescaled once | 1 |
//!
//! There are no rotations. Hidden columns are computed, used and dropped block by block, so they are never all in
//! memory. MOAI holds all hidden columns (3072 ciphertexts); a block of 64 takes at most 0.8 GiB at N = 2^16.

use std::sync::Arc;

use hushed_lower::LinearMap;
use hushed_model::{FeedForward, Linear, StepId, same};

use super::NodeId;
use super::causal::paired::Vectors;
use super::causal::sums::Sums;
use super::functions::SlotFunction;
use super::record::Recorder;
use crate::choices::ActivationChoice;
use crate::error::FheError;
use crate::ops::activation::{any_column, unit_map};
use crate::ops::acts::reading;
use crate::slots::Slots;

/// A block, and what was chosen for it.
pub(crate) struct FeedForwardBlock<'a> {
    pub at: StepId,
    pub block: &'a FeedForward,
    pub choice: &'a ActivationChoice,
    /// Hidden columns at a time.
    pub hidden: usize,
}

/// down(f(up(x))), or down(f(gate(x)) ∘ up(x)), from columns x with these gains and offsets; `sums` is the last map.
///
/// # Errors
/// Shapes that differ, layers without numbers, a refused fit.
pub(crate) fn feed_forward<S: Slots>(
    t: &mut Recorder,
    on: &S,
    (x, columns): (Vectors, (&[f64], &[f64])),
    layer: &FeedForwardBlock<'_>,
    mut sums: Sums<'_>,
) -> Result<NodeId, FheError> {
    let FeedForwardBlock { at, block, choice, .. } = *layer;
    same(at, "intervals", choice.columns.len(), block.up.outputs)?;
    same(at, "hidden columns", block.down.inputs, block.up.outputs)?;
    let (up, down, polynomials) = (at.part("up"), at.part("down"), on.polynomials());
    // A fit that is refused is refused for the step.
    any_column(on, block.activation, &choice.columns, choice.degree, &polynomials)?;
    let unit = |at, w| on.map(at, || unit_map(reading(on, at, w, columns)?, &choice.columns));
    let (argument, factor) = match &block.gate {
        None => (unit(up, &block.up)?, None),
        Some(gate) => {
            same(at, "columns of the gate", gate.outputs, block.up.outputs)?;
            let factor = on.map(up, || reading(on, up, &block.up, columns))?;
            (unit(at.part("gate"), gate)?, Some(t.map(factor)))
        }
    };
    let (hidden, argument) = (argument.rows, t.map(argument));
    for from in (0..hidden).step_by(layer.hidden.max(1)) {
        let these = from..hidden.min(from + layer.hidden.max(1));
        t.at(up);
        let arguments = x.linear(t, argument, these.clone());
        t.at(at.part("activation"));
        let function = t.function(SlotFunction::Activation {
            f: block.activation,
            first: from,
            columns: choice.columns.get(these.clone()).unwrap_or_default().to_vec(),
            degree: choice.degree,
            polynomials: Arc::clone(&polynomials),
        });
        let mut y = t.apply(function, arguments);
        if let Some(factor) = factor {
            t.at(up);
            // Computed at the level of the activation's results, where a product of the map costs least.
            let factors = x.linear(t, factor, these.clone());
            t.at(at.part("product"));
            y = t.mul(y, factors);
        }
        t.at(down);
        sums.add(t, these, y);
    }
    sums.finish(t, on)
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
