//! The answers of an encoder over a batch ([`crate::ops::pool`]).

use std::sync::Arc;

use hushed_model::{Pool, StepId};

use super::layout::{Columns, Rows};
use super::record::Recorder;
use super::{NodeId, Plain};
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::pool::factor;

/// The pooled row of each text, packed: column j in row j mod m of vector j/m.
///
/// # Errors
/// Poolings that have no circuit.
pub(crate) fn pool(
    t: &mut Recorder,
    layout: &Columns,
    at: StepId,
    x: &Acts<NodeId>,
    columns: NodeId,
    how: Pool,
) -> Result<Vec<NodeId>, FheError> {
    factor(how, matches!(layout.rows, Rows::Public(_)))?;
    t.at(at);
    let (m, width) = (layout.layout.rows(), x.width());
    let counts = match (&layout.rows, how) {
        (Rows::Private { real, .. }, Pool::Mean) => Some(row_sums(t, layout, *real)),
        _ => None,
    };
    let mut answer = Vec::with_capacity(width.div_ceil(m));
    for from in (0..width).step_by(m) {
        let range = from..width.min(from + m);
        let block = t.cut(columns, range.clone());
        let (gain, offset) = (&x.gain[range.clone()], &x.offset[range]);
        answer.push(match how {
            Pool::Mean => mean(t, layout, block, (gain, offset), counts),
            _ => first(t, layout, block, (gain, offset)),
        });
    }
    Ok(answer)
}

/// Sums the rows of each text into every row of it.
fn row_sums(t: &mut Recorder, layout: &Columns, mut x: NodeId) -> NodeId {
    for k in 0..layout.layout.rows().ilog2() {
        let rotated = t.rotate(x, layout.layout.rotation(1 << k));
        x = t.add(x, rotated);
    }
    x
}

fn mean(
    t: &mut Recorder,
    layout: &Columns,
    block: NodeId,
    (gain, offset): (&[f64], &[f64]),
    counts: Option<NodeId>,
) -> NodeId {
    let m = layout.layout.rows() as f64;
    let sums = row_sums(t, layout, block);
    let offsets = |share: f64| layout.row_vector(|row| offset.get(row).map_or(0.0, |o| o / share));
    match &layout.rows {
        Rows::Public(texts) => {
            let row = |(row, &value)| Plain::Row { texts: Arc::clone(texts), row, value, mean: true };
            let kept = t.mul_vectors(sums, gain.iter().enumerate().map(row).collect());
            let sum = t.total(&[kept]);
            let there = texts.by_text(|tokens| f64::from(u8::from(tokens > 0)));
            let added = offsets(1.0).numbers().iter().zip(there).map(|(o, there)| o * there).collect();
            t.add_vectors(sum, vec![Plain::Given(added)])
        }
        Rows::Private { .. } => {
            let row = |(row, &value): (usize, &f64)| layout.row_vector(|r| if r == row { value / m } else { 0.0 });
            let kept = t.mul_vectors(sums, gain.iter().enumerate().map(row).collect());
            let sum = t.total(&[kept]);
            match counts {
                Some(counts) => {
                    let added = t.mul_vectors(counts, vec![offsets(m)]);
                    t.add(sum, added)
                }
                None => sum,
            }
        }
    }
}

fn first(t: &mut Recorder, layout: &Columns, block: NodeId, (gain, offset): (&[f64], &[f64])) -> NodeId {
    let top = |values: &[f64]| {
        let one = |&value: &f64| layout.row_vector(|row| if row == 0 { value } else { 0.0 });
        values.iter().map(one).collect()
    };
    let mut kept = t.mul_vectors(block, top(gain));
    if let Rows::Private { real, .. } = layout.rows {
        let there = t.join(&vec![real; offset.len()]);
        let offsets = t.mul_vectors(there, top(offset));
        kept = t.add(kept, offsets);
    }
    let by = layout.layout.rotation(layout.layout.rows() - 1);
    let last = t.count(kept) - 1;
    let mut packed = t.cut(kept, last..last + 1);
    for r in (0..last).rev() {
        let moved = t.rotate(packed, by);
        let v = t.cut(kept, r..r + 1);
        packed = t.add(moved, v);
    }
    match &layout.rows {
        Rows::Private { .. } => packed,
        Rows::Public(texts) => {
            let there = texts.by_text(|tokens| f64::from(u8::from(tokens > 0)));
            let offsets = layout.row_vector(|row| offset.get(row).copied().unwrap_or(0.0)).numbers();
            let offsets = offsets.iter().zip(there).map(|(o, there)| o * there).collect();
            t.add_vectors(packed, vec![Plain::Given(offsets)])
        }
    }
}
