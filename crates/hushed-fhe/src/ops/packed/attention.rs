//! Attention of texts in packed rows: all heads at once, in fourteen levels with an exponential of four. The residual
//! is a term of the output map.

use hushed_model::{Attention, StepId, same};

use super::linear::{Term, biases, folded, linear, residual};
use super::rows::{Kept, PackedRows};
use super::softmax::{PackedSoftmax, PackedWeights};
use crate::choices::{AttentionChoice, NormChoice};
use crate::error::FheError;
use crate::ops::activation::{self, argument_scale};
use crate::ops::acts::{Acts, centred_output};
use crate::ops::levels::{above, below, divisor, scale_of};
use crate::packing::heads::{Heads, attend_times, scores};
use crate::packing::sums::Firsts;
use crate::packing::{Layout, PackingError, Spread};
use crate::slots::Slots;
use hushed_lower::LinearMap;

/// Copies of an operand in Q·Kᵀ and P·V: J in docs/one-text.md, unless heads or rows have fewer.
const COPIES: usize = 4;

/// A layer's attention in packed rows.
pub struct PackedAttention<'a, V> {
    /// The step that plans, counters and progress show.
    pub at: StepId,
    /// Weights and shapes of the model.
    pub block: &'a Attention,
    /// Intervals and degrees of its heads.
    pub choice: &'a AttentionChoice,
    /// The norm after it, whose κ is in the output map.
    pub norm: &'a NormChoice,
    /// The texts.
    pub rows: &'a PackedRows<V>,
    /// The places of the columns, with heads whole.
    pub columns: Spread,
    /// Rows whose results are used; others get 0.
    pub kept: Kept,
    /// Primes of refreshed sums.
    pub statistics: usize,
}

/// Levels from the columns to the scores: maps, copies, products, sums.
pub const SCORES: usize = 4;

/// How the heads of a model lie in packed rows, as many side by side as a row has places for.
///
/// # Errors
/// [`PackingError::Mismatch`] if they do not fit: the pairs of columns per head are not a power of two, or exceed the
/// rows or the places.
pub fn heads_of(block: &Attention, layout: Layout) -> Result<Heads, PackingError> {
    let pairs = block.heads.width / 2;
    let inner = block.heads.count * block.heads.width;
    let fits = block.heads.width.is_multiple_of(2) && inner == block.query.inputs;
    if !fits || pairs == 0 {
        return Err(PackingError::Mismatch);
    }
    let copies = COPIES.min(pairs).min(layout.rows());
    let groups = layout.rows() / copies.max(1);
    // About the square root of the groups, in whole vectors of E diagonals each.
    let root = 1_usize << (groups.max(1).ilog2() / 2);
    let baby = root.max(pairs / copies.max(1)).max(2 * root).min(groups);
    Heads::new(layout, pairs, copies, baby)
}

/// κ·(y + x − mean) in pairs at half of [`Slots::default_scale`], where y is the attention's output with its biases; 0
/// in rows that are not kept.
///
/// # Errors
/// [`FheError::Packing`] for heads that do not fit; too few levels; where values are visible, [`FheError::Range`] for
/// sums above 1.
pub fn attention<S: Slots>(
    on: &S,
    x: &Acts<S::Value>,
    layer: &PackedAttention<'_, S::Value>,
) -> Result<Vec<S::Value>, FheError> {
    let PackedAttention { at, block, rows, .. } = *layer;
    let heads = heads_of(block, rows.layout())?;
    let (found, count) = (layer.choice.heads.len(), block.heads.count);
    same(at, "heads of the calibration", found, count)?;
    let softmax = PackedSoftmax::new(on, &heads, &layer.columns, rows, layer.choice)?;
    let x0 = x.columns.first().ok_or(PackingError::Mismatch)?;
    enough(on, at, on.limbs(x0), layer)?;
    on.at(at.part("query_key"));
    let maps = on.map(at.part("query_key"), || inputs(on, x, layer, &softmax))?;
    let [q, k, v] = projected(on, x, layer, &maps)?;
    on.at(at.part("scores"));
    let argument = argument_scale(on, below(on, on.limbs(x0), SCORES)?)?;
    let of_vector = |(q, k)| scores(on, &heads, q, k, argument);
    let scores = q.into_iter().zip(k).map(of_vector);
    let scores = scores.collect::<Result<Vec<_>, FheError>>()?;
    let PackedWeights { exponentials, sums } = softmax.weights(on, at, scores, layer.statistics)?;
    on.at(at.part("attend"));
    let all = exponentials.iter().flatten().chain(&v);
    let limbs = all.map(|x| on.limbs(x)).min().unwrap_or(on.floor());
    // Copies, then the product that is multiplied by 1/Σe, after its mask. The result is at the scale of x.
    let (copied, met) = (below(on, limbs, 1)?, below(on, limbs, 2)?);
    let mut attended = Vec::with_capacity(v.len());
    for ((e, v), sum) in exponentials.into_iter().zip(v).zip(&sums) {
        let scale = softmax.weight_scale(on)?.times(on.scale(&v)).value() / divisor(on, copied)?;
        let target = scale_of(on.scale(x0).value() * divisor(on, met)? / scale)?;
        let inverse = softmax.second_inverse(on, sum, target)?;
        let inverse = on.drop_to(&inverse, copied.min(on.limbs(&inverse)))?;
        let masked = |here: &Firsts<'_>| {
            let scale = on.scale(&inverse);
            rows.times(on, &inverse, (layer.kept, here), scale)
        };
        attended.push(attend_times(on, &heads, e, v, masked)?);
    }
    let site = at.part("output");
    on.at(site);
    let output = on.map(site, || {
        let value = folded(on, at.part("value"), x, &block.value)?;
        let through = value.bias.unwrap_or_default();
        centred_output(on, site, &block.output, layer.norm.scale, &through)
    })?;
    summed(on, x, layer, (&attended, &output))
}

/// Levels from the exponentials, or from the first inverse, to the output: y, e, copies, P·V, × 1/Σe, output.
const AFTER_EXPONENTIALS: usize = 6;

/// Refuses operands with `limbs` primes, or statistics, that would end below the level of a refresh: primes are left
/// there, and scales would fit no chain.
fn enough<S: Slots>(on: &S, step: StepId, limbs: usize, layer: &PackedAttention<'_, S::Value>) -> Result<(), FheError> {
    let levels = |mut limbs: usize| {
        let mut count = 0_usize;
        while limbs > on.floor() {
            limbs -= on.level_primes(limbs).max(1).min(limbs);
            count += 1;
        }
        count
    };
    let exponentials = SCORES + activation::levels(layer.choice.degree);
    let below = levels(limbs).saturating_sub(exponentials);
    let inverse = levels(layer.statistics).saturating_sub(layer.choice.first_steps);
    match below.min(inverse) {
        available if available < AFTER_EXPONENTIALS => {
            Err(FheError::Levels { step, needed: AFTER_EXPONENTIALS, available })
        }
        _ => Ok(()),
    }
}

/// The stacked maps of Q, of the conjugates of K, and of V. K has no bias, as it would not change the softmax, and that
/// of V goes through the output map, as weights sum to 1.
fn inputs<S: Slots>(
    on: &S,
    x: &Acts<S::Value>,
    layer: &PackedAttention<'_, S::Value>,
    softmax: &PackedSoftmax<'_, S::Value>,
) -> Result<LinearMap, FheError> {
    let PackedAttention { at, block, .. } = *layer;
    let mut query = folded(on, at.part("query"), x, &block.query)?;
    let mut key = folded(on, at.part("key"), x, &block.key)?;
    let mut value = folded(on, at.part("value"), x, &block.value)?;
    for map in [&query, &key, &value] {
        same(at, "columns of all heads", map.rows, x.gain.len())?;
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

/// Q, the conjugate of K, and V, laid out like x.
fn projected<S: Slots>(
    on: &S,
    x: &Acts<S::Value>,
    layer: &PackedAttention<'_, S::Value>,
    maps: &LinearMap,
) -> Result<[Vec<S::Value>; 3], FheError> {
    let columns = layer.columns;
    let term = Term { places: columns, vectors: &x.columns, map: maps };
    let bias = (maps.bias.as_deref().unwrap_or_default(), Kept::All);
    let out = columns.repeated(3)?;
    let mut q = linear(on, layer.rows, &out, &[term], bias, on.default_scale())?;
    let mut k = q.split_off(columns.vectors());
    let v = k.split_off(columns.vectors());
    Ok([q, k, v])
}

/// The output of `y` plus the residual of `x`, in rows that are kept.
fn summed<S: Slots>(
    on: &S,
    x: &Acts<S::Value>,
    layer: &PackedAttention<'_, S::Value>,
    (y, output): (&[S::Value], &LinearMap),
) -> Result<Vec<S::Value>, FheError> {
    let (rest, columns) = (residual(on, x, layer.norm.scale), layer.columns);
    let limbs = y.iter().map(|y| on.limbs(y)).min().unwrap_or(on.floor());
    let mut vectors = x.columns.clone();
    if layer.kept == Kept::Later {
        // A first row may be far outside the norm's range. Rows of padding are 0.
        let mask = layer.rows.numbers(on, |text, row, _| f64::from(u8::from(layer.rows.holds(layer.kept, text, row))));
        let high = above(on, limbs)?;
        for v in &mut vectors {
            let short = on.drop_to(v, high)?;
            *v = on.mul_vector(&short, &mask, on.scale(v))?;
        }
    }
    let terms =
        [Term { places: columns, vectors: y, map: output }, Term { places: columns, vectors: &vectors, map: &rest }];
    let bias = biases(output, &rest);
    let target = scale_of(on.default_scale().value() / 2.0)?;
    let bias = (&bias[..], layer.kept);
    linear(on, layer.rows, &columns, &terms, bias, target)
}
