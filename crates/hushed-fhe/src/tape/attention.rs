//! Attention, written once for every layout.

use std::sync::Arc;

use hushed_model::{Attention, StepId};

use super::NodeId;
use super::functions::SlotFunction;
use super::layout::Layout;
use super::record::Recorder;
use crate::choices::{AttentionChoice, HeadChoice};
use crate::error::FheError;
use crate::ops::attention::Maps;
use crate::ops::softmax::{Softmax, highest};
use crate::slots::Slots;

/// A block, and what was folded and chosen for it.
pub(crate) struct AttentionBlock<'a> {
    pub at: StepId,
    pub block: &'a Attention,
    pub choice: &'a AttentionChoice,
    pub maps: Maps,
    /// Heads whose sums are refreshed together.
    pub together: usize,
}

/// The output of the block, by columns, from the columns x.
///
/// # Errors
/// Intervals without a fit.
pub(crate) fn attention<S: Slots, L: Layout>(
    t: &mut Recorder,
    on: &S,
    layout: &L,
    x: NodeId,
    layer: &AttentionBlock<'_>,
) -> Result<NodeId, FheError> {
    let AttentionBlock { at, block, choice, maps, together } = layer;
    let width = block.heads.width;
    let (mut learned, mut fixed) = (Vec::new(), Vec::new());
    for (h, head) in choice.heads.iter().enumerate() {
        match head {
            HeadChoice::Previous => fixed.push(h),
            HeadChoice::Softmax { .. } => learned.push((h, Arc::new(layout.softmax(on, head, choice)?.of_head(h)))),
        }
    }
    let output = t.map(Arc::clone(&maps.output));
    let mut partial = None;
    let mut add = |t: &mut Recorder, h: usize, pairs: NodeId| {
        t.at(at.part("output"));
        let columns = layout.columns(t, pairs, width);
        partial = Some(t.linear_sum(output, h * width..(h + 1) * width, columns, partial));
    };
    for group in learned.chunks((*together).max(1)) {
        let weights = weights(t, on, layout, x, layer, group)?;
        t.at(at.part("value"));
        let heads: Vec<usize> = group.iter().map(|(h, _)| *h).collect();
        let map = t.map(maps.values(width, &heads));
        let values = layout.values(t, map, width, heads.len(), x);
        for ((&(h, ref softmax), (e, sum)), v) in group.iter().zip(weights).zip(values) {
            t.at(at.part("weigh"));
            let second = t.function(SlotFunction::SecondInverse(Arc::clone(softmax)));
            let inverse = t.apply(second, sum);
            t.at(at.part("attend"));
            let pairs = layout.attend(t, e, v, inverse);
            add(t, h, pairs);
        }
    }
    for heads in fixed.chunks((*together).max(1)) {
        t.at(at.part("value"));
        let map = t.map(maps.values(width, heads));
        let values = layout.values(t, map, width, heads.len(), x);
        for (&h, v) in heads.iter().zip(values) {
            t.at(at.part("attend"));
            let pairs = layout.previous(t, v);
            add(t, h, pairs);
        }
    }
    t.at(at.part("output"));
    let partial = partial.ok_or(crate::packing::PackingError::Mismatch)?;
    Ok(t.finished(partial))
}

/// The weights of a group of heads without their last factor, and the sum to divide by.
fn weights<S: Slots, L: Layout>(
    t: &mut Recorder,
    on: &S,
    layout: &L,
    x: NodeId,
    layer: &AttentionBlock<'_>,
    group: &[(usize, Arc<Softmax>)],
) -> Result<Vec<(NodeId, NodeId)>, FheError> {
    let (at, heads) = (layer.at, &layer.block.heads);
    let high = highest(group.iter().map(|(_, softmax)| &**softmax));
    let (mut all, mut sums) = (Vec::new(), Vec::new());
    for (h, softmax) in group {
        t.at(at.part("query_key"));
        let map = t.map(layer.maps.query_key(heads, *h, softmax));
        let (_, offset) = softmax.argument();
        let operands = layout.queries_keys(t, map, heads.width, x, offset);
        t.at(at.part("scores"));
        let p = layout.scores(t, operands, offset, &mut |t, first, argument| {
            t.at(at.part("weigh"));
            let function = t.function(SlotFunction::Exponential { softmax: Arc::clone(softmax), first });
            let p = t.apply(function, argument);
            t.within(p, 1.0);
            t.at(at.part("scores"));
            Ok(p)
        })?;
        all.push(p);
    }
    t.at(at.part("weigh"));
    for ((_, softmax), p) in group.iter().zip(&all) {
        let sum = layout.row_sum(t, *p, softmax.padding(on));
        sums.push(t.within(sum, 1.0));
    }
    let sums = refreshed(t, at.part("weigh"), "first_sum", &sums, 1.0);
    let (mut exponentials, mut second) = (Vec::new(), Vec::new());
    for (((_, softmax), p), sum) in group.iter().zip(all).zip(sums) {
        let first = t.function(SlotFunction::FirstInverse(Arc::clone(softmax)));
        let inverse = t.apply(first, sum);
        let y = t.mul(p, inverse);
        t.within(y, 1.0);
        let e = t.mul(y, y);
        t.within(e, 1.0);
        let again = &mut |t: &mut Recorder| t.apply(first, sum);
        let sum = layout.row_sum_of_squares(t, e, inverse, again, softmax.padding(on));
        second.push(t.within(sum, high));
        exponentials.push(e);
    }
    let second = refreshed(t, at.part("weigh"), "second_sum", &second, high);
    Ok(exponentials.into_iter().zip(second).collect())
}

/// Sums, refreshed together, without the imaginary part of the error ([`crate::ops::softmax`]).
pub(crate) fn refreshed(t: &mut Recorder, at: StepId, part: &'static str, sums: &[NodeId], bound: f64) -> Vec<NodeId> {
    t.at(at.part(part));
    let joined = t.join(sums);
    let marked = t.mark(joined, bound);
    t.at(at);
    let real = t.real(marked);
    (0..sums.len()).map(|h| t.cut(real, h..h + 1)).collect()
}
