//! A decoder's attention in packed rows: all heads at once, with a sigmoid, in the frames of the giant steps
//! ([`crate::packing::heads`]).
//!
//! Columns i and i + d'/2 of a head share a place, as arranged by the map of Q and K, so the rotary turn is one product
//! of pairs. It also carries the causal mask. Masked scores are exactly 0; a plaintext vector moves them to −1, where
//! the polynomial is 0 ([`crate::ops::sigmoid`]). Heads that share keys have a copy each, made by the map.

use hushed_ckks::Complex64;
use hushed_ckks::poly::{SlotPolynomial, evaluate_slots};
use hushed_lower::LinearMap;
use hushed_model::{Attention, StepId, Weigh, same};
use rayon::prelude::*;

use super::heads_of;
use super::linear::{Term, folded, linear, over};
use super::rows::PackedRows;
use crate::choices::{Interval, SigmoidChoice, fits};
use crate::error::FheError;
use crate::ledger::MAP;
use crate::ops::activation::argument_scale;
use crate::ops::acts::Acts;
use crate::ops::levels::{below, scale_of};
use crate::ops::sigmoid::causal;
use crate::packing::heads::{Heads, Turned, attend, causal_scores};
use crate::packing::{PackingError, Spread};
use crate::slots::Slots;

/// Levels from the columns to the scores: maps, copies, turns, products, sums.
const SCORES: usize = MAP + 4;

/// A decoder's attention in packed rows.
pub struct PackedCausal<'a> {
    /// The step that plans, counters and progress name it by.
    pub at: StepId,
    /// Weights and shapes of the model.
    pub block: &'a Attention,
    /// The intervals and the degree.
    pub choice: &'a SigmoidChoice,
    /// The bound of the sum that reads it.
    pub bound: f64,
    /// The texts; the last row of each is row R − 1.
    pub rows: &'a PackedRows<()>,
    /// The places of the columns, with heads whole.
    pub columns: Spread,
}

impl PackedCausal<'_> {
    /// The attention's output divided by the bound, in pairs at half of [`Slots::default_scale`].
    ///
    /// # Errors
    /// [`FheError::Packing`] for heads that do not fit; [`FheError::Unsupported`] for anything but a causal sigmoid;
    /// shapes that differ; too few levels.
    pub fn run<S: Slots>(&self, on: &S, x: &Acts<S::Value>) -> Result<Vec<S::Value>, FheError> {
        let heads = heads_of(self.block, self.rows.layout())?.causal();
        let (found, count) = (self.choice.heads.len(), self.block.heads.count);
        same(self.at, "heads of the calibration", found, count)?;
        let sigmoids = self.sigmoids(on, &heads)?;
        let first = x.columns.first().ok_or(PackingError::Mismatch)?;
        let argument = argument_scale(on, below(on, on.limbs(first), SCORES)?)?;
        on.at(self.at.part("query_key"));
        let [q, k, v] = self.projected(on, x)?;
        let turns = Turns::new(self.block, &heads);
        let mut attended = Vec::with_capacity(v.len());
        for (vector, ((q, k), v)) in q.into_iter().zip(k).zip(v).enumerate() {
            on.at(self.at.part("scores"));
            let turn = |which, v: &S::Value| {
                let pairs = self.rows.pairs(on, |_, row, place| {
                    let source = heads.source(which, row, place);
                    source.map_or(Complex64::ZERO, |at| turns.of(which, at))
                });
                on.mul_pairs(v, &pairs, on.scale(v))
            };
            let scores = causal_scores(on, &heads, q, k, turn, argument)?;
            on.at(self.at.part("sigmoid"));
            let polynomial = sigmoids.get(vector).ok_or(PackingError::Mismatch)?;
            let weights = scores.into_par_iter().enumerate().map(|(number, s)| {
                let shift = self.shift(on, &heads, vector, number);
                let t = on.within(on.add_vector(s, &shift)?, 1.0);
                evaluate_slots(on, &t, polynomial, on.default_scale())
            });
            let weights = weights.collect::<Result<Vec<_>, FheError>>()?;
            on.at(self.at.part("attend"));
            attended.push(attend(on, &heads, weights, v, on.default_scale())?);
        }
        let at = self.at.part("output");
        on.at(at);
        let output = on.map(at, || over(on, at, &self.block.output, self.bound))?;
        let term = Term { places: self.columns, vectors: &attended, map: &output };
        let target = scale_of(on.default_scale().value() / 2.0)?;
        linear(on, self.rows, &self.columns, &[term], &[], target)
    }

    /// Q in pairs that turn together, the conjugates of K likewise, and V, all laid out like x. The map of the scores'
    /// interval to [−1, 1] is folded into Q and K, half in each.
    fn projected<S: Slots>(&self, on: &S, x: &Acts<S::Value>) -> Result<[Vec<S::Value>; 3], FheError> {
        let Attention { heads, rope, .. } = self.block;
        let width = heads.width;
        // The row of the layer's map, in its head `head`, that becomes row `row` of the grid's map.
        let turning = |head: usize, row: usize| {
            let (first, second) = match rope {
                Some(rope) => rope.pair(row % width / 2, width),
                None => (row % width / 2 * 2, row % width / 2 * 2 + 1),
            };
            head * width + if row.is_multiple_of(2) { first } else { second }
        };
        let shared = |row: usize| row / width / heads.shared().max(1);
        let half = |row: usize| {
            let interval = fits::masked(self.interval(row / width));
            (heads.scale / interval.half()).sqrt()
        };
        // a − i·b: the second of each pair of rows is negative.
        let conjugate = |row: usize| {
            if row.is_multiple_of(2) { half(row) } else { -half(row) }
        };
        let count = heads.query_columns();
        let folded = |part, w| folded(on, self.at.part(part), x, w);
        let map = on.map(self.at.part("query_key"), || {
            let maps = vec![
                arranged(&folded("query", &self.block.query)?, count, |row| (turning(row / width, row), half(row)))?,
                arranged(&folded("key", &self.block.key)?, count, |row| (turning(shared(row), row), conjugate(row)))?,
                arranged(&folded("value", &self.block.value)?, count, |row| (shared(row) * width + row % width, 1.0))?,
            ];
            Ok(LinearMap::stacked(maps))
        })?;
        let (columns, out) = (self.columns, self.columns.repeated(3)?);
        let term = Term { places: columns, vectors: &x.columns, map: &map };
        let mut q = linear(on, self.rows, &out, &[term], &[], on.default_scale())?;
        let mut k = q.split_off(columns.vectors());
        let v = k.split_off(columns.vectors());
        Ok([q, k, v])
    }

    /// The interval of a head's scores, extended to include 0.
    fn interval(&self, head: usize) -> Interval {
        let found = self.choice.heads.get(head);
        let (low, high) = found.map_or((-1.0, 1.0), |i| (i.low, i.high));
        Interval { low: low.min(0.0), high: high.max(0.0) }
    }

    /// The head at a place of vector `vector` of the columns, if there is one.
    fn head(&self, heads: &Heads, vector: usize, place: usize) -> Option<usize> {
        let each = self.columns.used() / heads.pairs();
        let head = vector * each + place / heads.pairs();
        (place < self.columns.used() && head < self.block.heads.count).then_some(head)
    }

    /// The sigmoids, by vector of columns.
    fn sigmoids<S: Slots>(&self, on: &S, heads: &Heads) -> Result<Vec<SlotPolynomial>, FheError> {
        let (bias, degree) = (sigmoid_bias(self.at, self.block)?, self.choice.degree);
        let vectors = self.columns.vectors();
        let fit = || -> Result<Vec<_>, FheError> {
            let fit = |head| fits::sigmoid(self.interval(head), bias, degree);
            let fitted = (0..self.block.heads.count).into_par_iter().map(fit);
            let fitted = fitted.collect::<Result<Vec<_>, _>>()?;
            let of = |vector| {
                let places = 0..heads.layout().columns();
                let at = places.map(|place| fitted.get(self.head(heads, vector, place)?));
                Ok(SlotPolynomial::new(degree, &at.collect::<Vec<_>>())?)
            };
            (0..vectors).map(of).collect()
        };
        on.fitted(fit, || Ok(vec![SlotPolynomial::new(degree, &[])?; vectors]))
    }

    /// The shift added to vector `number` of the scores of a vector of columns.
    fn shift<S: Slots>(&self, on: &S, heads: &Heads, vector: usize, number: usize) -> Vec<f64> {
        self.rows.numbers(on, |_, row, place| match self.head(heads, vector, place) {
            Some(head) if heads.sees(number, row, place) => {
                let interval = fits::masked(self.interval(head));
                -interval.middle() / interval.half()
            }
            _ => -1.0,
        })
    }
}

/// The bias of a causal sigmoid. A softmax would take three more levels, and degree 15 already takes all fourteen.
///
/// # Errors
/// [`FheError::Unsupported`] for other weights and masks.
pub fn sigmoid_bias(at: StepId, block: &Attention) -> Result<f64, FheError> {
    causal(at, block)?;
    match block.weigh {
        Weigh::Sigmoid { bias } => Ok(bias),
        Weigh::Softmax => Err(FheError::Unsupported {
            what: format!("{at}: softmax attention of a decoder, in packed rows"),
            remedy: "omit --texts to plan a batch",
        }),
    }
}

/// e^{itθ} for every row and pair.
struct Turns {
    pairs: usize,
    all: Vec<Complex64>,
}

impl Turns {
    fn new(block: &Attention, heads: &Heads) -> Turns {
        let (rows, pairs) = (heads.layout().rows(), heads.pairs());
        let turns = |row: usize| -> Vec<Complex64> {
            match &block.rope {
                Some(rope) => {
                    let angles = rope.angles(row, block.heads.width);
                    angles.map(Complex64::cis).collect()
                }
                None => vec![Complex64::ONE; pairs],
            }
        };
        Turns { pairs, all: (0..rows).flat_map(turns).collect() }
    }

    /// As it is for queries, conjugated for conjugate keys.
    fn of(&self, which: Turned, (row, pair): (usize, usize)) -> Complex64 {
        let turn = self.all.get(row * self.pairs + pair);
        let turn = turn.copied().unwrap_or(Complex64::ZERO);
        match which {
            Turned::Query { .. } => turn,
            Turned::Key { .. } => turn.conj(),
        }
    }
}

/// A map with `rows` rows, each a row of `map` times a factor, as given by `of`.
fn arranged(map: &LinearMap, rows: usize, of: impl Fn(usize) -> (usize, f64)) -> Result<LinearMap, FheError> {
    if map.weights.is_empty() {
        return Ok(LinearMap::shape(rows, map.columns));
    }
    let mut weights = Vec::with_capacity(rows * map.columns);
    for row in 0..rows {
        let (from, factor) = of(row);
        let from = map.weights.chunks_exact(map.columns.max(1)).nth(from);
        let from = from.ok_or(PackingError::Mismatch)?;
        weights.extend(from.iter().map(|w| w * factor));
    }
    Ok(LinearMap { rows, columns: map.columns, bound: crate::bound_of(&weights), weights, bias: None })
}
