//! A residual sum and the norm after it, written once for every layout.

use std::sync::Arc;

use hushed_model::{Norm, NormKind, StepId};

use super::attention::refreshed;
use super::functions::SlotFunction;
use super::layout::Layout;
use super::record::Recorder;
use super::{NodeId, RowMask};
use crate::choices::NormChoice;
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::norm::{has_means, inverse_root};
use crate::slots::Slots;

/// κ·(x + y − mean of x + y), where `block` is κ·(y − mean of y).
pub(crate) fn residual<L: Layout>(
    t: &mut Recorder,
    layout: &L,
    x: &Acts<NodeId>,
    columns: NodeId,
    block: NodeId,
    kappa: f64,
) -> NodeId {
    let factors: Vec<f64> = x.gain.iter().map(|gain| kappa * gain).collect();
    let scaled = layout.centred(t, columns, &factors);
    let sum = t.add(scaled, block);
    let mean = x.offset.iter().sum::<f64>() / x.offset.len() as f64;
    t.add_numbers(sum, x.offset.iter().map(|offset| kappa * (offset - mean)).collect())
}

/// What no inverse root exceeds that is refreshed: a margin above the largest one of a calibrated variance, or, of an
/// RMSNorm, above those of padding rows, 3.5/√low.
pub(crate) fn largest_root(norm: &Norm, choice: &NormChoice) -> f64 {
    let margin = match norm.kind {
        NormKind::LayerNorm => 1.5,
        NormKind::RmsNorm => 4.0,
    };
    margin / choice.low.sqrt()
}

/// The part of a norm that is the refresh of its root.
pub(crate) const ROOT: &str = "root";

/// A norm, and what was chosen for it.
pub(crate) struct NormBlock<'a> {
    pub at: StepId,
    pub norm: &'a Norm,
    pub choice: &'a NormChoice,
    /// The rows that get a result; the others get 0.
    pub rows: &'a RowMask,
    /// Whether a block reads its results before they are refreshed: then the root, which arrives low, is refreshed.
    pub read: bool,
    /// Constants in place of its results, in the rows of another mask.
    pub frozen: Option<(Vec<f64>, RowMask)>,
}

/// x̂ divided by the bound of its choice, from κ·(x − mean of x).
///
/// # Errors
/// A norm without means, a range without a fit.
pub(crate) fn norm<S: Slots, L: Layout>(
    t: &mut Recorder,
    on: &S,
    layout: &L,
    centred: NodeId,
    block: NormBlock<'_>,
) -> Result<NodeId, FheError> {
    let NormBlock { at, norm, choice, rows, read, frozen } = block;
    has_means(at, norm)?;
    t.at(at);
    let squares = layout.squares(t, centred);
    let epsilon = choice.scale.powi(2) * norm.width as f64 * norm.epsilon;
    let v = t.add_numbers(squares, vec![epsilon]);
    t.within(v, 1.0);
    let v = layout.statistic(t, v, rows);
    // 1 + mask·(v − 1).
    let less = t.add_numbers(v, vec![-1.0]);
    let masked = layout.masked(t, less, rows, 1.0);
    let v = t.add_numbers(masked, vec![1.0]);
    t.within(v, 1.0);
    let root = t.function(SlotFunction::Root(Arc::new(inverse_root(on, choice)?)));
    let inverse = t.apply(root, v);
    let factor = (norm.width as f64).sqrt() / choice.bound;
    let inverse = if read {
        let most = largest_root(norm, choice);
        let root = layout.masked(t, inverse, rows, 1.0 / most);
        let root = refreshed(t, at, ROOT, &[root], 1.0);
        t.read_as(root[0], most * factor)
    } else {
        layout.masked(t, inverse, rows, factor)
    };
    let y = t.mul(centred, inverse);
    t.within(y, 1.0);
    Ok(match frozen {
        None => y,
        Some((numbers, rows)) => layout.plus_rows(t, y, &rows, &numbers),
    })
}
