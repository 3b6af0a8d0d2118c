//! The answers of a batch: of an encoder pooled rows ([`crate::ops::pool`]) or the logits of a classifier
//! ([`crate::ops::head`]), of a decoder last rows, their logits, or all rows.

use std::sync::Arc;

use hushed_lower::LinearMap;
use hushed_model::{Classifier, Pool, StepId, here, same};

use super::functions::SlotFunction;
use super::layout::{Columns, Hidden, Layout};
use super::record::Recorder;
use super::{Holds, Kept, NodeId};
use crate::choices::ClassifierChoice;
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::head::HeadActivation;

/// The levels of [`pool`] from columns to answers.
pub(crate) fn pool_levels(most: usize) -> usize {
    if most > 1 { 2 } else { 1 }
}

/// The pooled row of each text, packed: column j in row j mod m of vector j/m. Where texts share places, the vectors
/// of the first text of each place come first, then those of the second.
pub(crate) fn pool(
    t: &mut Recorder,
    layout: &Columns,
    at: StepId,
    x: &Acts<NodeId>,
    columns: NodeId,
    how: Pool,
) -> Vec<NodeId> {
    t.at(at);
    let (m, width) = (layout.rows(), x.width());
    if layout.most() > 1 {
        let texts = 0..layout.most();
        return texts.flat_map(|text| of_text(t, layout, x, columns, (text, how))).collect();
    }
    let counts = match (layout.hidden(Hidden::Tokens), how) {
        (Some(tokens), Pool::Mean) => Some(layout.over_rows(t, tokens)),
        _ => None,
    };
    let mut answer = Vec::with_capacity(width.div_ceil(m));
    for from in (0..width).step_by(m) {
        let range = from..width.min(from + m);
        let block = t.cut(columns, range.clone());
        let (gain, offset) = (&x.gain[range.clone()], &x.offset[range]);
        answer.push(match how {
            Pool::Mean => mean(t, layout, block, (gain, offset), counts),
            _ => one_row(t, layout, (0, block), (gain, offset)),
        });
    }
    answer
}

/// The pooled row of the text of this number in each place: its rows are masked before rows are summed, which takes
/// another level. Columns are summed in pairs.
fn of_text(
    t: &mut Recorder,
    layout: &Columns,
    x: &Acts<NodeId>,
    columns: NodeId,
    (text, how): (usize, Pool),
) -> Vec<NodeId> {
    let (m, width) = (layout.rows(), x.width());
    let block = |from: usize| {
        let range = from..width.min(from + m);
        let gains = x.gain[range.clone()].iter();
        let rows = |&value: &f64| layout.plain(Holds::OfText { text, value, first: how == Pool::First });
        let block = t.cut(columns, range.clone());
        let own = t.mul_vectors(block, gains.map(rows).collect());
        let pairs = t.pair(own, false);
        let sums = layout.over_rows(t, pairs);
        let top = |pair: usize| layout.row_vector(|row| f64::from(u8::from(row == 2 * pair)));
        let kept = t.mul_vectors(sums, (0..t.count(sums)).map(top).collect());
        let sum = t.total(&[kept]);
        // The second column of a pair goes to the row after that of the first.
        let parts = t.parts(sum, 2);
        let [first, second] = [0, 1].map(|part| t.cut(parts, part..part + 1));
        let second = layout.turned(t, second, m - 1);
        let sum = t.add(first, second);
        let numbers = x.offset[range].to_vec();
        t.add_vectors(sum, vec![layout.plain(Holds::TextRows { numbers, text })])
    };
    (0..width).step_by(m).map(block).collect()
}

fn mean(
    t: &mut Recorder,
    layout: &Columns,
    block: NodeId,
    (gain, offset): (&[f64], &[f64]),
    counts: Option<NodeId>,
) -> NodeId {
    let m = layout.rows() as f64;
    let sums = layout.over_rows(t, block);
    let Some(counts) = counts else {
        let row = |(row, &value)| layout.plain(Holds::Share { row, value });
        let kept = t.mul_vectors(sums, gain.iter().enumerate().map(row).collect());
        let sum = t.total(&[kept]);
        return t.add_vectors(sum, vec![layout.plain(Holds::TextRows { numbers: offset.to_vec(), text: 0 })]);
    };
    let row = |(row, &value): (usize, &f64)| layout.row_vector(|r| if r == row { value / m } else { 0.0 });
    let kept = t.mul_vectors(sums, gain.iter().enumerate().map(row).collect());
    let sum = t.total(&[kept]);
    let offsets = layout.row_vector(|row| offset.get(row).map_or(0.0, |o| o / m));
    let added = t.mul_vectors(counts, vec![offsets]);
    t.add(sum, added)
}

/// Row `row` of each text, of at most m columns: column j in row j.
fn one_row(
    t: &mut Recorder,
    layout: &Columns,
    (row, block): (usize, NodeId),
    (gain, offset): (&[f64], &[f64]),
) -> NodeId {
    let one = |&value: &f64| {
        let mut rows = vec![0.0; row + 1];
        rows[row] = value;
        layout.plain(Holds::Rows(rows))
    };
    let kept = t.mul_vectors(block, gain.iter().map(one).collect());
    match layout.hidden(Hidden::Tokens) {
        Some(tokens) => {
            let offsets = t.mul_vectors(tokens, offset.iter().map(one).collect());
            let kept = t.add(kept, offsets);
            let packed = packed(t, layout, kept);
            // `packed` expects row 0; from row m − 1, every column lands one row too early.
            if row == 0 { packed } else { layout.turned(t, packed, row) }
        }
        None if layout.has_offsets() => {
            let packed = packed(t, layout, kept);
            t.add_vectors(packed, vec![layout.plain(Holds::TextRows { numbers: offset.to_vec(), text: 0 })])
        }
        None => {
            let packed = packed(t, layout, kept);
            layout.turned(t, packed, row)
        }
    }
}

/// Row 0 of column r in row r, for columns that are 0 in all other rows.
fn packed(t: &mut Recorder, layout: &Columns, columns: NodeId) -> NodeId {
    let last = t.count(columns) - 1;
    let mut packed = t.cut(columns, last..last + 1);
    for r in (0..last).rev() {
        let moved = layout.turned(t, packed, layout.rows() - 1);
        let v = t.cut(columns, r..r + 1);
        packed = t.add(moved, v);
    }
    packed
}

/// The last row of each text of a decoder, packed as [`pool`] packs; zeros where there is no text.
pub(crate) fn last_rows(
    t: &mut Recorder,
    layout: &Columns,
    at: StepId,
    x: &Acts<NodeId>,
    columns: NodeId,
) -> Vec<NodeId> {
    t.at(at);
    let (m, width) = (layout.rows(), x.width());
    let block = |from: usize| {
        let range = from..width.min(from + m);
        let block = t.cut(columns, range.clone());
        one_row(t, layout, (m - 1, block), (&x.gain[range.clone()], &x.offset[range]))
    };
    (0..width).step_by(m).map(block).collect()
}

/// A map of the last row of each text of a decoder, packed as [`pool`] packs; m numbers are in memory at a time.
pub(crate) fn logits(t: &mut Recorder, layout: &Columns, at: StepId, map: &LinearMap, columns: NodeId) -> Vec<NodeId> {
    t.at(at);
    let (m, width, bias) = (layout.rows(), map.rows, map.bias.clone().unwrap_or_default());
    // Biases are added where there is a text alone: they are the server's.
    let map = t.map(LinearMap { bias: None, ..map.clone() });
    let block = |from: usize| {
        let range = from..width.min(from + m);
        let numbers = t.linear(map, range.clone(), columns);
        let bias: Vec<f64> = range.clone().map(|i| bias.get(i).copied().unwrap_or(0.0)).collect();
        one_row(t, layout, (m - 1, numbers), (&vec![1.0; range.len()], &bias))
    };
    (0..width).step_by(m).map(block).collect()
}

/// All rows of a decoder's texts, columns 2j and 2j + 1 as the parts of vector j; zeros where there is no token.
pub(crate) fn rows(t: &mut Recorder, layout: &Columns, at: StepId, x: &Acts<NodeId>, columns: NodeId) -> NodeId {
    t.at(at);
    let mut kept = t.scaled(columns, x.gain.clone());
    if let Some(tokens) = layout.hidden(Hidden::Tokens) {
        let offsets = t.scaled(tokens, x.offset.clone());
        kept = t.add(kept, offsets);
    }
    t.pair(kept, false)
}

/// Blocks of m of the columns, packed as [`pool`] packs; they are 0 in all rows but the first.
fn blocks(t: &mut Recorder, layout: &Columns, columns: NodeId) -> Vec<NodeId> {
    let (m, width) = (layout.rows(), t.count(columns));
    let block = |from: usize| {
        let block = t.cut(columns, from..width.min(from + m));
        packed(t, layout, block)
    };
    (0..width).step_by(m).map(block).collect()
}

/// A map of the first row of each text, packed as [`pool`] packs, from columns that are 0 in all other rows.
pub(crate) fn classes(t: &mut Recorder, layout: &Columns, at: StepId, map: &LinearMap, columns: NodeId) -> Vec<NodeId> {
    t.at(at);
    let (width, bias) = (map.rows, map.bias.clone().unwrap_or_default());
    // Biases are added in first rows alone: they are the server's.
    let map = t.map(LinearMap { bias: None, ..map.clone() });
    let numbers = t.linear(map, 0..width, columns);
    let numbers = match bias.is_empty() {
        true => numbers,
        false => layout.plus_rows(t, numbers, &layout.mask(Kept::First(0)), &bias),
    };
    blocks(t, layout, numbers)
}

/// The logits of each text, packed as [`pool`] packs, from columns that are 0 in all rows but the first. `dense` gives
/// the arguments of the activation, in units of the reach.
///
/// # Errors
/// Layers without numbers, functions without a fit.
pub(crate) fn head(
    t: &mut Recorder,
    layout: &Columns,
    (at, c, choice): (StepId, &Classifier, &ClassifierChoice),
    dense: &LinearMap,
    columns: NodeId,
) -> Result<Vec<NodeId>, FheError> {
    t.at(at.part("dense"));
    let (m, width) = (layout.rows(), dense.rows);
    // Biases are added when only rows of arguments remain.
    let map = t.map(LinearMap { bias: None, ..dense.clone() });
    let arguments = t.linear(map, 0..width, columns);
    t.at(at.part("pack"));
    let mut arguments = blocks(t, layout, arguments);
    for (packed, from) in arguments.iter_mut().zip((0..width).step_by(m)) {
        let bias = dense.bias.as_ref().and_then(|bias| bias.get(from..width.min(from + m))).unwrap_or_default();
        *packed = t.add_vectors(*packed, vec![layout.plain(Holds::Rows(bias.to_vec()))]);
        t.within(*packed, 1.0);
    }
    t.at(at.part("refresh"));
    let joined = t.join(&arguments);
    let refreshed = t.mark(joined, 1.0);
    t.at(at.part("activation"));
    let tanh = t.function(SlotFunction::Head(Arc::new(HeadActivation::new(c.activation, choice)?)));
    let pooled = t.apply(tanh, refreshed);
    t.at(at.part("classes"));
    let (weights, bias) = (here(at, &c.classes.weights)?, here(at, &c.classes.bias)?);
    same(at, "columns", c.classes.inputs, c.dense.outputs)?;
    // The mask of row r of each text.
    let mut masks: Vec<NodeId> = layout.hidden(Hidden::First).into_iter().collect();
    while let Some(&last) = masks.last().filter(|_| masks.len() < c.classes.outputs.min(m)) {
        masks.push(layout.turned(t, last, m - 1));
    }
    let mut answer = Vec::<NodeId>::new();
    for class in 0..c.classes.outputs {
        let blocks = weights.row(class).chunks(m);
        let row = |block: &[f32]| layout.plain(Holds::Rows(block.iter().map(|&w| f64::from(w)).collect()));
        let products = t.mul_vectors(pooled, blocks.map(row).collect());
        let sum = t.total(&[products]);
        let sum = layout.over_rows(t, sum);
        let sum = t.add_numbers(sum, vec![f64::from(bias[class])]);
        let row = class % m;
        let kept = match masks.get(row) {
            Some(&mask) => t.mul(sum, mask),
            None => t.mul_vectors(sum, vec![layout.plain(Holds::Mask { rows: Kept::First(row), factor: 1.0 })]),
        };
        match answer.last_mut() {
            Some(sum) if row != 0 => *sum = t.add(*sum, kept),
            _ => answer.push(kept),
        }
    }
    Ok(answer)
}
