//! A decoder's attention in packed rows: all heads at once, with a sigmoid, in the frames of the giant steps
//! ([`crate::packing::heads`]).
//!
//! Columns i and i + d'/2 of a head share a place, as arranged by the map of Q and K, so the rotary turn is one product
//! of pairs. It also carries the causal mask. Masked scores are exactly 0; a plaintext vector moves them to −1, where
//! the polynomial is 0 ([`crate::ops::sigmoid`]). Heads that share keys have a copy each, made by the map.

use std::sync::Arc;

use hushed_ckks::Complex64;
use hushed_ckks::poly::SlotPolynomial;
use hushed_lower::LinearMap;
use hushed_model::{Attention, StepId, Weigh, same};
use rayon::prelude::*;

use super::attention::Read;
use super::products::{attend, causal_scores};
use super::{Packed, Places};
use crate::choices::{Interval, SigmoidChoice, fits};
use crate::error::FheError;
use crate::ops::acts::reading;
use crate::ops::packed::rows::Kept;
use crate::ops::sigmoid::widest;
use crate::packing::PackingError;
use crate::packing::heads::{Heads, Turned};
use crate::slots::Slots;
use crate::tape::causal::sums::Last;
use crate::tape::functions::SlotFunction;
use crate::tape::record::Recorder;
use crate::tape::{NodeId, Plain};

/// The output of the block divided by `bound`, in pairs.
///
/// # Errors
/// Shapes that differ, layers without numbers, intervals without a fit; weights that are no sigmoids.
pub(crate) fn attention<S: Slots>(
    t: &mut Recorder,
    on: &S,
    p: &Packed,
    (at, block, choice): (StepId, &Attention, &SigmoidChoice),
    (x, columns): Read<'_>,
    bound: f64,
) -> Result<NodeId, FheError> {
    let (heads, spread) = (p.places.heads, p.places.columns);
    same(at, "heads of the calibration", choice.heads.len(), block.heads.count)?;
    // Every head has keys of its own here, and so an interval.
    let scores: Arc<[Interval]> = choice.heads.iter().map(|head| widest(std::slice::from_ref(head))).collect();
    let sigmoids = sigmoids(on, &p.places, (at, block), (&scores, choice.degree))?;
    t.at(at.part("query_key"));
    let map = on.map(at.part("query_key"), || inputs(on, (at, block), columns, &scores))?;
    let all = p.linear(t, spread.repeated(3)?, &[(spread, x, &map)], Kept::All)?;
    let turns = Arc::new(Turns::new(block, &heads));
    let count = spread.vectors();
    let mut attended = Vec::with_capacity(count);
    for (i, sigmoid) in sigmoids.into_iter().enumerate() {
        let [q, k, v] = [i, count + i, 2 * count + i].map(|i| t.cut(all, i..i + 1));
        t.at(at.part("scores"));
        let s = causal_scores(t, &heads, (q, k), |which| turns.plain(p, which));
        t.at(at.part("sigmoid"));
        let argument = t.add_vectors(s, (0..heads.vectors()).map(|number| shift(p, &scores, i, number)).collect());
        t.within(argument, 1.0);
        let function = t.function(SlotFunction::Places(Arc::new(vec![sigmoid])));
        let weights = t.apply(function, argument);
        t.at(at.part("attend"));
        attended.push(attend(t, &heads, weights, v));
    }
    let at = at.part("output");
    t.at(at);
    let output = Last::divided(on, at, &block.output, (bound, None), None)?.map;
    let y = t.join(&attended);
    p.linear(t, spread, &[(spread, y, &output)], Kept::All)
}

/// The stacked maps of Q in pairs that turn together, of the conjugates of K likewise, and of V, all laid out like x.
/// The map of the scores' interval to [−1, 1] is folded into Q and K, half in each.
fn inputs<S: Slots>(
    on: &S,
    (at, block): (StepId, &Attention),
    columns: (&[f64], &[f64]),
    scores: &[Interval],
) -> Result<LinearMap, FheError> {
    let Attention { heads, rope, .. } = block;
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
        let half = scores.get(row / width).map_or(1.0, |&scores| fits::masked(scores).half());
        (heads.scale / half).sqrt()
    };
    // a − i·b: the second of each pair of rows is negative.
    let conjugate = |row: usize| {
        if row.is_multiple_of(2) { half(row) } else { -half(row) }
    };
    let count = heads.query_columns();
    let read = |part, w| reading(on, at.part(part), w, columns);
    Ok(LinearMap::stacked(vec![
        arranged(&read("query", &block.query)?, count, |row| (turning(row / width, row), half(row)))?,
        arranged(&read("key", &block.key)?, count, |row| (turning(shared(row), row), conjugate(row)))?,
        arranged(&read("value", &block.value)?, count, |row| (shared(row) * width + row % width, 1.0))?,
    ]))
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

/// The head at a place of vector `vector` of the columns, of `count` heads, if there is one.
fn head_at(places: &Places, count: usize, vector: usize, place: usize) -> Option<usize> {
    let (pairs, used) = (places.heads.pairs(), places.columns.used());
    let head = vector * (used / pairs) + place / pairs;
    (place < used && head < count).then_some(head)
}

/// The sigmoids of the heads with these intervals of scores, by vector of columns.
fn sigmoids<S: Slots>(
    on: &S,
    places: &Places,
    (at, block): (StepId, &Attention),
    (scores, degree): (&[Interval], usize),
) -> Result<Vec<SlotPolynomial>, FheError> {
    let Weigh::Sigmoid { bias } = block.weigh else { return Err(FheError::shape(at)) };
    let vectors = places.columns.vectors();
    let fit = || -> Result<Vec<_>, FheError> {
        let fitted = scores.par_iter().map(|&scores| fits::sigmoid(scores, bias, degree));
        let fitted = fitted.collect::<Result<Vec<_>, _>>()?;
        let of = |vector| {
            let at = |place| fitted.get(head_at(places, scores.len(), vector, place)?);
            let at = (0..places.heads.layout().columns()).map(at);
            Ok(SlotPolynomial::new(degree, &at.collect::<Vec<_>>())?)
        };
        (0..vectors).map(of).collect()
    };
    on.fitted(fit, || Ok(vec![SlotPolynomial::new(degree, &[])?; vectors]))
}

/// What is added to vector `number` of the scores of vector `vector` of columns.
fn shift(p: &Packed, scores: &Arc<[Interval]>, vector: usize, number: usize) -> Plain {
    let (scores, places) = (Arc::clone(scores), p.places);
    p.numbers(move |_, _, row, place| {
        let head = head_at(&places, scores.len(), vector, place).and_then(|head| scores.get(head));
        match head {
            Some(&scores) if places.heads.sees(number, row, place) => {
                let interval = fits::masked(scores);
                -interval.middle() / interval.half()
            }
            _ => -1.0,
        }
    })
}

/// e^{itθ} for every row and pair.
struct Turns {
    heads: Heads,
    all: Vec<Complex64>,
}

impl Turns {
    fn new(block: &Attention, heads: &Heads) -> Turns {
        let turns = |row: usize| -> Vec<Complex64> {
            match &block.rope {
                Some(rope) => rope.angles(row, block.heads.width).map(Complex64::cis).collect(),
                None => vec![Complex64::ONE; heads.pairs()],
            }
        };
        Turns { heads: *heads, all: (0..heads.layout().rows()).flat_map(turns).collect() }
    }

    /// The factors of a copy: as they are for queries, conjugated for conjugate keys.
    fn plain(self: &Arc<Self>, p: &Packed, which: Turned) -> Plain {
        let (turns, rows) = (Arc::clone(self), Arc::clone(&p.rows));
        let at = move |_: usize, row: usize, place: usize| {
            let source = turns.heads.source(which, row, place);
            let turn = source.and_then(|(row, pair)| turns.all.get(row * turns.heads.pairs() + pair));
            let turn = turn.copied().unwrap_or(Complex64::ZERO);
            match which {
                Turned::Query { .. } => turn,
                Turned::Key { .. } => turn.conj(),
            }
        };
        Plain::Pairs(Arc::new(move || rows.each(&at)))
    }
}
