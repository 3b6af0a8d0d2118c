//! The two products of attention for all heads of a text at once ([`crate::packing::heads`] has the derivation).

use std::sync::Arc;

use hushed_model::StepId;

use super::HIDDEN;
use crate::ops::mask::REAL_ROWS;
use crate::packing::heads::Heads;
use crate::tape::record::Recorder;
use crate::tape::{Grid, NodeId, Plain, SplitGrid};

/// A grid of the maps of heads.
fn grid(heads: &Heads, make: impl Fn(&Heads) -> SplitGrid + Send + Sync + 'static) -> Grid {
    let heads = *heads;
    Grid { conjugates: false, make: Arc::new(move || make(&heads)) }
}

/// Q·Kᵀ of all heads: [`Heads::vectors`] real vectors, laid out as in [`Heads::score`]. `q` holds pairs a + i·b, `k`
/// pairs a − i·b. Places of unused heads hold whatever these operands give there.
pub(crate) fn scores(t: &mut Recorder, heads: &Heads, q: NodeId, k: NodeId) -> NodeId {
    let (copies, slots) = (heads.copies(), heads.layout().slots());
    let queries = t.maps(grid(heads, |heads| heads.copied(false)), copies, &[q]);
    let keys = t.maps(grid(heads, |heads| heads.copied(true)), copies, &[k]);
    let keys = t.rotations(keys, heads.babies());
    let back = (0..heads.giants()).map(|giant| (slots - heads.turn(giant)) % slots).collect();
    let queries = t.rotations(queries, back);
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

/// P·V of all heads times a factor that is the same in all places of a head, with `p` laid out as by [`scores`], and
/// pairs `v` and the result in their own places. `masked` gives the factor times the mask of the places of each copy:
/// this product takes the place of a mask, so the factor costs no level.
pub(super) fn attend(
    t: &mut Recorder,
    heads: &Heads,
    (p, v): (NodeId, NodeId),
    masked: impl FnOnce(&mut Recorder, Vec<Box<dyn Fn(usize) -> f64 + Send + Sync>>) -> NodeId,
) -> NodeId {
    let (copies, slots) = (heads.copies(), heads.layout().slots());
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
    let mut totals = Vec::with_capacity(copies);
    for a in 0..copies {
        let row = t.row(sums, a);
        let sum = t.total(&[row]);
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

/// For each vector of scores, 1 where the key of a slot is a token: from the tokens, which are the same in all places
/// of a row.
pub(crate) fn keys(t: &mut Recorder, heads: &Heads) {
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
    let keys = t.turn(far);
    t.output(keys);
}
