//! LayerNorm and the feed-forward block in packed rows.
//!
//! The variance of a row is the sum of the squares of its centred columns over places, spread over the row: v = Σ c² in
//! rows that are kept and 1 in others, x̂/bound = c·(√d/bound)·v^{−1/2}, 0 in rows that are not kept. If only an
//! encrypted vector says which rows are kept, v is the least of its range in the others: adding 1 there through that
//! vector would add the error of its refresh everywhere; adding the least v adds little of it.
//!
//! Columns that have no level left are refreshed before their norm, with enough levels for variance and root; the root,
//! which is then low, is refreshed. Of columns with levels only the variance is.

use std::sync::Arc;

use hushed_model::{FeedForward, Linear, Norm, StepId, same};

use super::attention::Read;
use super::{After, Packed, refreshed as refreshed_pairs};
use crate::choices::{ActivationChoice, NormChoice};
use crate::error::FheError;
use crate::ops::activation::unit_map;
use crate::ops::acts::{centred, reading};
use crate::ops::norm::{has_means, inverse_root};
use crate::ops::packed::feed_forward::of_places;
use crate::ops::packed::rows::Kept;
use crate::slots::Slots;
use crate::tape::NodeId;
use crate::tape::attention::refreshed;
use crate::tape::feed_forward::merged as merged_map;
use crate::tape::functions::SlotFunction;
use crate::tape::norm::{ROOM, ROOT};
use crate::tape::record::Recorder;

/// x̂ divided by the bound of its choice, from κ·(x − mean of x) in pairs. `low`: the root is refreshed, as the columns
/// have no level left, or a block reads the result; `fresh`: the columns were refreshed for it.
///
/// # Errors
/// A norm without means, a range without a fit.
pub(crate) fn norm<S: Slots>(
    t: &mut Recorder,
    on: &S,
    p: &Packed,
    (at, norm, choice): (StepId, &Norm, &NormChoice),
    (mut c, kept, (low, fresh)): (NodeId, Kept, (bool, bool)),
) -> Result<NodeId, FheError> {
    has_means(at, norm)?;
    if low && !fresh {
        c = refreshed_pairs(t, at.part("refresh"), c);
    }
    t.at(at);
    let v = variance(t, p, (norm, choice), (c, kept));
    t.at(at.part("variance"));
    let v = if low { t.spare(v) } else { t.statistic(v, None, None) };
    t.at(at);
    let function = t.function(SlotFunction::Root(Arc::new(inverse_root(on, choice)?)));
    let root = t.apply(function, v);
    let factor = (norm.width as f64).sqrt() / choice.bound;
    let root = if low {
        // The largest root, and so the message of the refresh, is below 1.
        let most = ROOM / choice.low.sqrt();
        let root = p.times(t, root, kept, vec![move |_| 1.0 / most]);
        let root = refreshed(t, at, ROOT, &[root], 1.0);
        t.read_as(root[0], most * factor)
    } else {
        p.times(t, root, kept, vec![move |_| factor])
    };
    let y = t.dot(c, root);
    Ok(t.turn(y))
}

fn variance(t: &mut Recorder, p: &Packed, (norm, choice): (&Norm, &NormChoice), (c, kept): (NodeId, Kept)) -> NodeId {
    let conjugates = t.conjugate(c);
    let (left, right) = (t.turn(c), t.turn(conjugates));
    let sum = t.dot(left, right);
    // Taking real parts doubles the scale and removes the imaginary part of the errors.
    let sum = t.real(sum);
    let first = |place| f64::from(u8::from(place == 0));
    let length = p.rows.layout().columns();
    let v = p.over_places(t, sum, length, |t, sum| p.times(t, sum, kept, vec![first]));
    let epsilon = choice.scale.powi(2) * norm.width as f64 * norm.epsilon;
    let tokens = p.tokens(kept);
    // Both in rows that may be padding; then the second is subtracted where they are tokens.
    let low = if tokens.is_some() { choice.low } else { 0.0 };
    let added = p.numbers(move |rows, text, row, _| if rows.holds(kept, text, row) { epsilon + low } else { 1.0 });
    let mut v = t.add_vectors(v, vec![added]);
    if let Some(tokens) = tokens {
        let taken = t.mul_vectors(tokens, vec![p.in_rows(kept, move |_| low)]);
        v = t.sub(v, taken);
    }
    t.within(v, 1.0)
}

/// κ·(y + x − mean) in pairs for y = down(f(up(x))): hidden columns lie side by side, each with the polynomial of its
/// interval in the coefficients of its place.
///
/// # Errors
/// Shapes that differ, layers without numbers, functions without a fit.
pub(crate) fn feed_forward<S: Slots>(
    t: &mut Recorder,
    on: &S,
    p: &Packed,
    (at, block, choice): (StepId, &FeedForward, &ActivationChoice),
    (x, columns): Read<'_>,
    After { kept, kappa, beside, rest }: After,
) -> Result<NodeId, FheError> {
    let (hidden, spread) = (block.up.outputs, p.places.columns);
    same(at, "intervals", choice.columns.len(), hidden)?;
    same(at, "hidden columns", block.down.inputs, hidden)?;
    let places = p.rows.layout().spread(hidden, 1)?;
    let up = at.part("up");
    t.at(up);
    let map = on.map(up, || unit_map(reading(on, up, &block.up, columns)?, &choice.columns))?;
    let arguments = p.linear(t, places, &[(spread, x, &map)], kept)?;
    t.at(at.part("activation"));
    let parts = t.parts(arguments, 2 * places.vectors());
    t.within(parts, 1.0);
    let polynomials = on.polynomials();
    let what = (block.activation, choice, &*polynomials);
    let polynomial = |i: usize| of_places(on, p.rows.layout(), what, (&places, i / 2, i % 2));
    let all = (0..2 * places.vectors()).map(polynomial).collect::<Result<_, FheError>>()?;
    let function = t.function(SlotFunction::Places(Arc::new(all)));
    let y = t.apply(function, parts);
    let y = t.pair(y, false);
    let at = at.part("down");
    t.at(at);
    let down = on.map(at, || centred(on, at, &block.down, kappa))?;
    p.linear(t, spread, &[(places, y, &down), (spread, beside, &Arc::new(rest))], kept)
}

/// κ·(y + x − mean) in pairs for y = W·x + b: a feed-forward block merged into one map (the
/// Orion kernels paper, §III-D).
///
/// # Errors
/// Shapes that differ, layers without numbers.
pub(crate) fn merged<S: Slots>(
    t: &mut Recorder,
    on: &S,
    p: &Packed,
    (at, w): (StepId, &Linear),
    (x, columns): Read<'_>,
    After { kept, kappa, beside, rest }: After,
) -> Result<NodeId, FheError> {
    t.at(at);
    let spread = p.places.columns;
    if beside == x {
        let map = on.map(at, || Ok(merged_map(on, at, w, columns, kappa)?.plus(&rest)))?;
        return p.linear(t, spread, &[(spread, x, &map)], kept);
    }
    let map = on.map(at, || merged_map(on, at, w, columns, kappa))?;
    p.linear(t, spread, &[(spread, x, &map), (spread, beside, &Arc::new(rest))], kept)
}
