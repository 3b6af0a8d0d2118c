//! The two products of attention for all heads of a text at once ([`crate::packing::heads`] has the derivation), from
//! queries and values in pairs a + i·b, and keys in pairs a − i·b, in their own places.

use std::sync::Arc;

use hushed_model::StepId;

use super::HIDDEN;
use crate::error::FheError;
use crate::ops::mask::REAL_ROWS;
use crate::packing::heads::{Heads, Turned};
use crate::slots::Slots;
use crate::tape::record::Recorder;
use crate::tape::run::{Inputs, alone};
use crate::tape::{Grid, NodeId, Plain, SplitGrid};

/// A grid of the maps of heads.
fn grid(heads: &Heads, make: impl Fn(&Heads) -> SplitGrid + Send + Sync + 'static) -> Grid {
    let heads = *heads;
    Grid { conjugates: false, make: Arc::new(move || make(&heads)) }
}

/// Q·Kᵀ of all heads: [`Heads::vectors`] real vectors, laid out as in [`Heads::score`]. Three levels. Places of unused
/// heads hold whatever these operands give there.
pub(crate) fn scores(t: &mut Recorder, heads: &Heads, q: NodeId, k: NodeId) -> NodeId {
    let (queries, keys) = operands(t, heads, q, k);
    summed(t, heads, queries, keys)
}

/// Q·Kᵀ of causal heads. `turn` gives the factors of a copy in a step of the sums, which mask it as in
/// [`Heads::source`]: the scores are 0 where [`Heads::sees`] is false. Four levels.
pub(crate) fn causal_scores(
    t: &mut Recorder,
    heads: &Heads,
    (q, k): (NodeId, NodeId),
    turn: impl Fn(Turned) -> Plain,
) -> NodeId {
    let (queries, keys) = operands(t, heads, q, k);
    let turns = |steps: usize, which: fn(usize, usize) -> Turned| {
        let all = (0..heads.copies()).flat_map(|copy| (0..steps).map(move |step| which(copy, step)));
        all.map(&turn).collect::<Vec<Plain>>()
    };
    let of_queries = turns(heads.giants(), |copy, giant| Turned::Query { copy, giant });
    let of_keys = turns(heads.baby(), |copy, baby| Turned::Key { copy, baby });
    let (queries, keys) = (t.mul_vectors(queries, of_queries), t.mul_vectors(keys, of_keys));
    summed(t, heads, queries, keys)
}

/// The copies of Q by giant step, and those of K by baby step.
fn operands(t: &mut Recorder, heads: &Heads, q: NodeId, k: NodeId) -> (NodeId, NodeId) {
    let (copies, slots) = (heads.copies(), heads.layout().slots());
    let queries = t.maps(grid(heads, |heads| heads.copied(false)), copies, &[q]);
    let keys = t.maps(grid(heads, |heads| heads.copied(true)), copies, &[k]);
    let keys = t.rotations(keys, heads.babies());
    let back = (0..heads.giants()).map(|giant| (slots - heads.turn(giant)) % slots).collect();
    (t.rotations(queries, back), keys)
}

/// Sums products of copies, gathers the sums and takes their real parts.
fn summed(t: &mut Recorder, heads: &Heads, queries: NodeId, keys: NodeId) -> NodeId {
    let sums = t.dot(queries, keys);
    let mut done = Vec::with_capacity(heads.vectors());
    for giant in 0..heads.giants() {
        let (row, home) = (t.row(sums, giant), heads.home(giant));
        for first in (0..heads.baby()).step_by(heads.inner()) {
            let some = t.cut(row, first..first + heads.inner());
            done.push(t.maps(grid(heads, move |heads| heads.gathered(home)), 1, &[some]));
        }
    }
    let gathered = t.join(&done);
    t.real(gathered)
}

/// P·V of all heads, with `p` laid out as by [`scores`]. Three levels.
pub(crate) fn attend(t: &mut Recorder, heads: &Heads, p: NodeId, v: NodeId) -> NodeId {
    let sums = by_copy(t, heads, p, v);
    let sums = t.join(&sums);
    t.maps(grid(heads, Heads::summed), 1, &[sums])
}

/// P·V of all heads times a factor that is the same in all places of a head. `masked` gives the factor times the mask
/// of the places of each copy: this product takes the place of a mask, so the factor costs no level.
pub(super) fn attend_scaled(
    t: &mut Recorder,
    heads: &Heads,
    (p, v): (NodeId, NodeId),
    masked: impl FnOnce(&mut Recorder, Vec<Box<dyn Fn(usize) -> f64 + Send + Sync>>) -> NodeId,
) -> NodeId {
    let (copies, slots) = (heads.copies(), heads.layout().slots());
    let mut totals = Vec::with_capacity(copies);
    for (a, sum) in by_copy(t, heads, p, v).into_iter().enumerate() {
        // Summed over the places (·, e), correct at place (a, e).
        let by = |j: usize| (slots + heads.inner() * j - heads.inner() * a) % slots;
        let turned = t.rotations(sum, (0..copies).map(by).collect());
        totals.push(t.total(&[turned]));
    }
    let totals = t.join(&totals);
    let here = |a: usize| -> Box<dyn Fn(usize) -> f64 + Send + Sync> {
        let heads = *heads;
        Box::new(move |place| f64::from(u8::from(place % heads.pairs() / heads.inner() == a)))
    };
    let factors = masked(t, (0..copies).map(here).collect());
    let (totals, factors) = (t.turn(totals), t.turn(factors));
    t.dot(totals, factors)
}

/// For each copy of V, its products with P, before they are summed over the places (·, e).
fn by_copy(t: &mut Recorder, heads: &Heads, p: NodeId, v: NodeId) -> Vec<NodeId> {
    let copies = heads.copies();
    let values = t.maps(grid(heads, |heads| heads.copied(true)), copies, &[v]);
    let values = t.rotations(values, heads.babies());
    let mut expanded = Vec::with_capacity(heads.vectors());
    for vector in 0..heads.vectors() {
        let home = heads.home(vector * heads.inner() / heads.baby());
        let one = t.cut(p, vector..vector + 1);
        expanded.push(t.maps(grid(heads, move |heads| heads.expanded(home)), heads.inner(), &[one]));
    }
    let weights = t.join(&expanded);
    let weights = t.split(weights, heads.baby());
    let (weights, values) = (t.turn(weights), t.turn(values));
    // By giant step, then by copy.
    let sums = t.dot(weights, values);
    let sums = t.rotate_rows(sums, (0..heads.giants()).map(|giant| heads.turn(giant)).collect());
    let sums = t.turn(sums);
    let total = |a: usize| {
        let row = t.row(sums, a);
        t.total(&[row])
    };
    (0..copies).map(total).collect()
}

/// [`scores`] of heads that see all rows, run by themselves.
///
/// # Errors
/// Too few levels, and those of the arithmetic.
pub fn run_scores<S: Slots>(on: &S, heads: &Heads, q: S::Value, k: S::Value) -> Result<Vec<S::Value>, FheError> {
    alone(on, Inputs::<S>::from([("queries", vec![q]), ("keys", vec![k])]), |t| {
        let [q, k]: [NodeId; 2] = ["queries", "keys"].map(|name| t.input(name, 1));
        scores(t, heads, q, k)
    })
}

/// [`attend`], run by itself.
///
/// # Errors
/// As [`run_scores`].
pub fn run_attend<S: Slots>(on: &S, heads: &Heads, p: Vec<S::Value>, v: S::Value) -> Result<Vec<S::Value>, FheError> {
    alone(on, Inputs::<S>::from([("weights", p), ("values", vec![v])]), |t| {
        let (p, v) = (t.input("weights", heads.vectors()), t.input("values", 1));
        attend(t, heads, p, v)
    })
}

/// For each vector of scores, 1 where the key of a slot is a token: from the tokens, which are the same in all places
/// of a row.
pub(crate) fn keys(t: &mut Recorder, heads: &Heads) -> NodeId {
    t.at(StepId::outside(REAL_ROWS));
    let tokens = t.input(HIDDEN[0], 1);
    let copies = t.rotations(tokens, (0..heads.copies()).map(|j| heads.rotation(j)).collect());
    // The first vector: diagonal J·e + j at place (j, e). Masks of places are the same in every row.
    let mut parts = Vec::with_capacity(heads.inner());
    for e in 0..heads.inner() {
        let mask = |j: usize| {
            let heads = *heads;
            Plain::Numbers(Arc::new(move || {
                let row = heads.mask(|place, within| (place, within) == (j, e));
                row.iter().map(|z| z.re).cycle().take(heads.layout().slots()).collect()
            }))
        };
        let part = t.combine_vectors(copies, (0..heads.copies()).map(mask).collect());
        parts.push(t.rotate(part, heads.rotation(heads.copies() * e)));
    }
    let first = t.total(&parts);
    // Vector v: p·v rows on, by the steps that products use.
    let babies = heads.babies().into_iter().step_by(heads.inner()).collect();
    let near = t.rotations(first, babies);
    let giants = (0..heads.giants()).map(|giant| heads.turn(giant)).collect();
    let far = t.rotations(near, giants);
    t.turn(far)
}
