//! Packed rows ([`crate::packing::Layout`]), for one text or a few; docs/one-text.md has the reasons and the levels.
//!
//! Statistics (Σp, Σe, v, 1/√v) are spread over the places that need them before they are refreshed, with all slots:
//! docs/one-text.md says why not with few. Masks of rows and of keys are folded into masks that are needed anyway. An
//! encoder's residual is a term of the last map of each block; a decoder's takes a number alone and is added later.
//!
//! A layer of a decoder with RMSNorm, between refreshes of the residual stream x/bound, with k the levels of a
//! polynomial:
//!
//! ```text
//! attention                             levels          feed-forward                     levels
//! RMSNorm, 1/√v refreshed                    1          RMSNorm, the same                     1
//! Q, K, V: one grid of maps                  1          gate                                  1
//! copies                                     1          activation, a polynomial a slot       k
//! turns by places, and the causal mask       1          × up, made at that level              1
//! Q·Kᵀ: products, sums                       2          down                                  1
//! σ, a polynomial a slot                     k          sum                                   0
//! P·V: copies, products, sums                3
//! output                                     1          after the last layer: norm,
//! sum                                        0          of 2 levels, and rows                 2
//! ```
//!
//! Attention takes 10 + k: fourteen levels with degree 15.

pub(crate) mod answer;
pub(crate) mod attention;
pub(crate) mod causal;
pub(crate) mod layer;
pub(crate) mod products;
pub(crate) mod softmax;

use std::sync::Arc;

use hushed_ckks::Complex64;
use hushed_ckks::maps::GridSplit;
use hushed_lower::LinearMap;
use hushed_model::StepId;

use super::record::Recorder;
use super::{Grid, NodeId, Plain, SplitGrid};
use crate::error::FheError;
use crate::ops::mask::REAL_ROWS;
use crate::ops::packed::rows::{Kept, PackedRows};
use crate::packing::heads::Heads;
use crate::packing::{Layout, PackingError, Spread, Weight};
use crate::slots::Slots;

/// Where heads and columns lie.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    pub heads: Heads,
    pub columns: Spread,
}

/// What is made of the client's two vectors if lengths are private: 1 in token rows, and 1 over their number in all
/// places of a text; for each vector of scores, 1 where the key is a token.
#[derive(Clone, Copy)]
pub(crate) struct HiddenRows {
    pub tokens: NodeId,
    pub shares: NodeId,
    pub keys: NodeId,
}

/// The names of [`HiddenRows`].
pub(crate) const HIDDEN: [&str; 3] = [REAL_ROWS, "input.shares", "input.keys"];

/// Packed rows, as the circuits see them.
pub(crate) struct Packed {
    /// If lengths are private, those of texts that fill all rows.
    pub rows: Arc<PackedRows<()>>,
    pub places: Places,
    pub hidden: Option<HiddenRows>,
}

/// A matrix in packed rows: its places, its vectors, and the map applied to it.
pub(crate) type Term<'a> = (Spread, NodeId, &'a Arc<LinearMap>);

impl Packed {
    pub fn new(t: &mut Recorder, rows: &Arc<PackedRows<()>>, places: Places, hidden: bool) -> Packed {
        let hidden = hidden.then(|| {
            let [tokens, shares] = [HIDDEN[0], HIDDEN[1]].map(|name| t.input(name, 1));
            HiddenRows { tokens, shares, keys: t.input(HIDDEN[2], places.heads.vectors()) }
        });
        Packed { rows: Arc::clone(rows), places, hidden }
    }

    /// `entry(rows, text, row, place)` in every slot.
    pub fn numbers(
        &self,
        entry: impl Fn(&PackedRows<()>, usize, usize, usize) -> f64 + Send + Sync + 'static,
    ) -> Plain {
        let rows = Arc::clone(&self.rows);
        Plain::Numbers(Arc::new(move || rows.each(&|text, row, place| entry(&rows, text, row, place))))
    }

    /// The number of each column in the place of vector `vector` of `out` that holds it, in rows `kept`.
    fn pairs(&self, out: Spread, vector: usize, kept: Kept, numbers: &Arc<[f64]>) -> Plain {
        let (rows, numbers) = (Arc::clone(&self.rows), Arc::clone(numbers));
        let pair = move |text: usize, row: usize, place: usize| match out.columns_at(vector, place) {
            Some(columns) if rows.holds(kept, text, row) => {
                let [a, b] = columns.map(|column| numbers.get(column).copied().unwrap_or(0.0));
                Complex64::new(a, b)
            }
            _ => Complex64::ZERO,
        };
        let rows = Arc::clone(&self.rows);
        Plain::Pairs(Arc::new(move || rows.each(&pair)))
    }

    /// 1 in token rows, if an encrypted vector alone says which rows these are.
    fn tokens(&self, kept: Kept) -> Option<NodeId> {
        self.hidden.filter(|_| matches!(kept, Kept::Tokens | Kept::Later)).map(|hidden| hidden.tokens)
    }

    /// A vector times each of these, by place, in rows `kept`, 0 in others.
    pub fn times(
        &self,
        t: &mut Recorder,
        x: NodeId,
        kept: Kept,
        numbers: Vec<impl Fn(usize) -> f64 + Send + Sync + 'static>,
    ) -> NodeId {
        let mask = |number: _| self.in_rows(kept, number);
        let masks = numbers.into_iter().map(mask).collect();
        match self.tokens(kept) {
            None => t.mul_vectors(x, masks),
            Some(tokens) => {
                let masks = t.mul_vectors(tokens, masks);
                t.mul(masks, x)
            }
        }
    }

    /// A number for each place in rows `kept`, 0 in others.
    fn in_rows(&self, kept: Kept, number: impl Fn(usize) -> f64 + Send + Sync + 'static) -> Plain {
        self.numbers(move |rows, text, row, place| if rows.holds(kept, text, row) { number(place) } else { 0.0 })
    }

    /// Pairs plus the numbers of each column in rows `kept`.
    pub fn plus(&self, t: &mut Recorder, x: NodeId, (out, kept): (Spread, Kept), numbers: &Arc<[f64]>) -> NodeId {
        let pairs = (0..out.vectors()).map(|vector| self.pairs(out, vector, kept, numbers)).collect();
        match self.tokens(kept) {
            None => t.add_vectors(x, pairs),
            Some(tokens) => {
                let added = t.mul_vectors(tokens, pairs);
                t.add(x, added)
            }
        }
    }

    /// A map of columns.
    ///
    /// # Errors
    /// A map of another shape.
    pub fn mapped(&self, t: &mut Recorder, x: NodeId, map: LinearMap) -> Result<NodeId, FheError> {
        let columns = self.places.columns;
        self.linear(t, columns, &[(columns, x, &Arc::new(map))], Kept::All)
    }

    /// The sum of the terms, plus the biases of their maps in rows `kept`.
    ///
    /// # Errors
    /// Maps of other shapes.
    fn linear(&self, t: &mut Recorder, out: Spread, terms: &[Term<'_>], kept: Kept) -> Result<NodeId, FheError> {
        let layout = self.rows.layout();
        for (places, x, map) in terms {
            let shape = map.columns == places.width() && map.rows == out.width();
            if t.count(*x) != places.vectors() || !shape {
                return Err(PackingError::Mismatch.into());
            }
        }
        let bias: Arc<[f64]> = biases(terms.iter().map(|term| &**term.2)).into();
        let maps: Vec<(Spread, Arc<LinearMap>)> =
            terms.iter().map(|(places, _, map)| (*places, Arc::clone(map))).collect();
        let make = move || grid(layout, &out, &maps);
        let inputs: Vec<NodeId> = terms.iter().map(|term| term.1).collect();
        let sums = t.maps(Grid { conjugates: true, make: Arc::new(make) }, out.vectors(), &inputs);
        Ok(self.plus(t, sums, (out, kept), &bias))
    }

    /// Sums each aligned block of `length` places into all places of the block: `masked` multiplies the sums by the
    /// mask of the first places, where they are correct.
    pub fn over_places(
        &self,
        t: &mut Recorder,
        x: NodeId,
        length: usize,
        masked: impl FnOnce(&mut Recorder, NodeId) -> NodeId,
    ) -> NodeId {
        let (slots, steps) = (self.rows.layout().slots(), (0..length.ilog2()).map(|k| 1_usize << k));
        let sum = doubled(t, x, steps.clone());
        let masked = masked(t, sum);
        doubled(t, masked, steps.map(|step| slots - step))
    }

    /// Sums all rows of a text into each of them.
    fn over_rows(&self, t: &mut Recorder, x: NodeId) -> NodeId {
        let layout = self.rows.layout();
        doubled(t, x, (0..layout.rows().ilog2()).map(|k| layout.rotation(1 << k)))
    }
}

/// The sum of maps of matrices in these places and of their conjugates, and how its rotations are split.
fn grid(layout: Layout, out: &Spread, terms: &[(Spread, Arc<LinearMap>)]) -> SplitGrid {
    // Zeros if only shapes count.
    let weights: Vec<_> = terms
        .iter()
        .map(|(_, map)| {
            move |row: usize, column: usize| map.weights.get(row * map.columns + column).copied().unwrap_or(0.0)
        })
        .collect();
    let maps: Vec<(Spread, &Weight<'_>)> =
        terms.iter().zip(&weights).map(|((places, _), weight)| (*places, weight as &Weight<'_>)).collect();
    let grid = layout.sum_of_maps(out, &maps)?;
    let split = GridSplit::balanced(&grid)?;
    Ok((grid, split))
}

/// Pairs that may be refreshed here, as separate parts, two per bootstrap.
pub(super) fn refreshed(t: &mut Recorder, at: StepId, pairs: NodeId) -> NodeId {
    t.at(at);
    let parts = t.parts(pairs, 2 * t.count(pairs));
    let marked = t.mark(parts, 1.0);
    t.pair(marked, false)
}

/// What is made of the result of a block: the residual sum, as the norm after it reads it.
pub(crate) struct After {
    /// The rows that get a result.
    pub kept: Kept,
    /// κ of the norm.
    pub kappa: f64,
    /// What is added, and κ·(x − mean of x) as a map of it.
    pub beside: NodeId,
    pub rest: LinearMap,
}

/// `factor` times `width` columns.
pub(crate) fn scaled<S: Slots>(on: &S, width: usize, factor: f64) -> LinearMap {
    match on.only_shapes() {
        true => LinearMap::shape(width, width),
        false => LinearMap::identity(width).times(factor),
    }
}

/// κ·(x − mean of x) of columns with this gain and offset, as a map: the residual of a block that a norm follows.
pub(crate) fn residual<S: Slots>(on: &S, (gain, offset): (&[f64], &[f64]), kappa: f64) -> LinearMap {
    match on.only_shapes() {
        true => LinearMap::shape(gain.len(), gain.len()),
        false => LinearMap::identity(gain.len()).reading(gain, offset).centred().times(kappa),
    }
}

/// The sum of the biases of maps with the same rows.
fn biases<'a>(mut maps: impl Iterator<Item = &'a LinearMap>) -> Vec<f64> {
    let first = maps.next().and_then(|map| map.bias.clone()).unwrap_or_default();
    maps.filter_map(|map| map.bias.as_ref()).fold(first, |mut sum, bias| {
        sum.resize(sum.len().max(bias.len()), 0.0);
        sum.iter_mut().zip(bias).for_each(|(sum, b)| *sum += b);
        sum
    })
}

/// x plus its rotation by the first step, then that plus its rotation by the next step, and so on.
fn doubled(t: &mut Recorder, mut x: NodeId, steps: impl Iterator<Item = usize>) -> NodeId {
    for step in steps {
        let turned = t.rotate(x, step);
        x = t.add(x, turned);
    }
    x
}

/// Makes what [`Packed`] reads of hidden lengths from the client's two vectors, half of each, as one of pairs: all but
/// the keys.
pub(crate) fn hidden(t: &mut Recorder) {
    t.at(StepId::outside(REAL_ROWS));
    let sent = t.input(REAL_ROWS, 1);
    let whole = t.read_as(sent, 2.0);
    let parts = t.parts(whole, 2);
    let both = t.mark(parts, 1.0);
    for i in 0..2 {
        let one = t.cut(both, i..i + 1);
        t.output(one);
    }
}
