//! Attention of texts in packed rows: all heads at once. The residual is a term of the output map.

use std::sync::Arc;

use hushed_lower::LinearMap;
use hushed_model::{Attention, StepId, same};

use super::products::{attend_scaled, scores};
use super::softmax::PackedSoftmax;
use super::{After, Packed, Term};
use crate::choices::AttentionChoice;
use crate::error::FheError;
use crate::ops::acts::{centred_output, reading};
use crate::ops::packed::rows::Kept;
use crate::slots::Slots;
use crate::tape::NodeId;
use crate::tape::record::Recorder;

/// A block's columns: the vectors, and the gain and offset of each column.
pub(crate) type Read<'a> = (NodeId, (&'a [f64], &'a [f64]));

/// κ·(y + x − mean) in pairs, where y is the attention's output with its biases; 0 in rows that are not kept.
///
/// # Errors
/// Shapes that differ, layers without numbers, intervals without a fit.
pub(crate) fn attention<S: Slots>(
    t: &mut Recorder,
    on: &S,
    p: &Packed,
    (at, block, choice): (StepId, &Attention, &AttentionChoice),
    (x, columns): Read<'_>,
    After { kept, kappa, beside, rest }: After,
) -> Result<NodeId, FheError> {
    let (heads, spread) = (&p.places.heads, p.places.columns);
    same(at, "heads of the calibration", choice.heads.len(), block.heads.count)?;
    let softmax = PackedSoftmax::new(on, &p.places, choice)?;
    t.at(at.part("query_key"));
    let maps = on.map(at.part("query_key"), || inputs(on, (at, block), columns, &softmax))?;
    let term: Term<'_> = (spread, x, &maps);
    let all = p.linear(t, spread.repeated(3)?, &[term], Kept::All)?;
    let count = spread.vectors();
    let vector = |t: &mut Recorder, i: usize| t.cut(all, i..i + 1);
    t.at(at.part("scores"));
    let mut all_scores = Vec::with_capacity(count);
    for i in 0..count {
        let (q, k) = (vector(t, i), vector(t, count + i));
        all_scores.push(scores(t, heads, q, k));
    }
    let mut attended = Vec::with_capacity(count);
    for (i, (e, inverse)) in softmax.weights(t, p, at, &all_scores).into_iter().enumerate() {
        let v = vector(t, 2 * count + i);
        attended.push(attend_scaled(t, heads, (e, v), |t, here| p.times(t, inverse, kept, here)));
    }
    let site = at.part("output");
    t.at(site);
    let output = on.map(site, || {
        let value = reading(on, at.part("value"), &block.value, columns)?;
        centred_output(on, site, &block.output, kappa, &value.bias.unwrap_or_default())
    })?;
    let y = t.join(&attended);
    // A first row may be far outside the norm's range. Rows of padding are 0.
    let beside = match kept {
        Kept::Later => t.mul_vectors(beside, vec![p.in_rows(kept, |_| 1.0)]),
        _ => beside,
    };
    p.linear(t, spread, &[(spread, y, &output), (spread, beside, &Arc::new(rest))], kept)
}

/// The stacked maps of Q, of the conjugates of K, and of V. K has no bias, as it would not change the softmax, and that
/// of V goes through the output map, as weights sum to 1.
fn inputs<S: Slots>(
    on: &S,
    (at, block): (StepId, &Attention),
    columns: (&[f64], &[f64]),
    softmax: &PackedSoftmax,
) -> Result<LinearMap, FheError> {
    let mut query = reading(on, at.part("query"), &block.query, columns)?;
    let mut key = reading(on, at.part("key"), &block.key, columns)?;
    let mut value = reading(on, at.part("value"), &block.value, columns)?;
    for map in [&query, &key, &value] {
        same(at, "columns of all heads", map.rows, columns.0.len())?;
    }
    let factor = |row: usize| block.heads.scale * softmax.factor(row / block.heads.width);
    let weights = query.weights.chunks_exact_mut(query.columns.max(1));
    for (row, weights) in weights.enumerate() {
        weights.iter_mut().for_each(|w| *w *= factor(row));
    }
    for (row, bias) in query.bias.iter_mut().flatten().enumerate() {
        *bias *= factor(row);
    }
    (key.bias, value.bias) = (None, None);
    // a − i·b: the second row of each pair is negated.
    let weights = key.weights.chunks_exact_mut(key.columns.max(1));
    for weights in weights.skip(1).step_by(2) {
        weights.iter_mut().for_each(|w| *w = -*w);
    }
    Ok(LinearMap::stacked(vec![query, key, value]))
}
