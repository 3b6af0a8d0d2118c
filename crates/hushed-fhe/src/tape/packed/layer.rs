//! Norms and the feed-forward block in packed rows.
//!
//! The variance of a row is the sum of the squares of its centred columns over places, spread over the row: v = Σ c² in
//! rows that are kept and 1 in others, x̂/bound = c·(√d/bound)·v^{−1/2}, 0 in rows that are not kept. If only an
//! encrypted vector says which rows are kept, v is the least of its range in the others: adding 1 there through that
//! vector would add the error of its refresh everywhere; adding the least v adds little of it.
//!
//! Columns that have no level left are refreshed before their norm, with enough levels for variance and root; the root,
//! which is then low, is refreshed. Of columns with levels only the variance is.
//!
//! An RMSNorm is the same of columns x. All rows are kept: in padding rows x is 0 and the root is bounded, so the
//! result is 0.

use std::sync::Arc;

use hushed_ckks::poly::SlotPolynomial;
use hushed_model::{Activation, FeedForward, Linear, Norm, StepId, same};
use rayon::prelude::*;

use super::attention::Read;
use super::{After, Packed, refreshed as refreshed_pairs};
use crate::choices::{ActivationChoice, NormChoice};
use crate::error::FheError;
use crate::ops::activation::{any_column, unit_map};
use crate::ops::acts::{centred, reading};
use crate::ops::folded::Polynomials;
use crate::ops::norm::inverse_root;
use crate::ops::packed::rows::Kept;
use crate::packing::{Layout, Spread};
use crate::slots::Slots;
use crate::tape::NodeId;
use crate::tape::attention::refreshed;
use crate::tape::causal::sums::Last;
use crate::tape::feed_forward::merged as merged_map;
use crate::tape::functions::SlotFunction;
use crate::tape::norm::{ROOT, largest_root};
use crate::tape::record::Recorder;

/// x̂ divided by the bound of its choice, from κ·(x − mean of x) in pairs, or κ·x. `low`: the root is refreshed, as the
/// columns have no level left, or a block reads the result; `fresh`: the columns were refreshed for it.
///
/// # Errors
/// A range without a fit.
pub(crate) fn norm<S: Slots>(
    t: &mut Recorder,
    on: &S,
    p: &Packed,
    (at, norm, choice): (StepId, &Norm, &NormChoice),
    (mut c, kept, (low, fresh)): (NodeId, Kept, (bool, bool)),
) -> Result<NodeId, FheError> {
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
        let most = largest_root(norm, choice);
        let root = p.times(t, root, kept, vec![move |_| 1.0 / most]);
        let root = refreshed(t, at, ROOT, &[root], 1.0);
        t.read_as(root[0], most * factor)
    } else {
        p.times(t, root, kept, vec![move |_| factor])
    };
    let y = t.dot(c, root);
    Ok(t.turn(y))
}

/// The sum of the squares of all columns of a row, in all its places, in rows `kept`, 0 in others. Two levels.
pub(crate) fn squares(t: &mut Recorder, p: &Packed, c: NodeId, kept: Kept) -> NodeId {
    let conjugates = t.conjugate(c);
    let (left, right) = (t.turn(c), t.turn(conjugates));
    let sum = t.dot(left, right);
    // Taking real parts doubles the scale and removes the imaginary part of the errors.
    let sum = t.real(sum);
    let first = |place| f64::from(u8::from(place == 0));
    let length = p.rows.layout().columns();
    p.over_places(t, sum, length, |t, sum| p.times(t, sum, kept, vec![first]))
}

fn variance(t: &mut Recorder, p: &Packed, (norm, choice): (&Norm, &NormChoice), (c, kept): (NodeId, Kept)) -> NodeId {
    let v = squares(t, p, c, kept);
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

/// κ·(y + x − mean) in pairs for y = down(f(up(x))).
///
/// # Errors
/// As [`hidden`].
pub(crate) fn feed_forward<S: Slots>(
    t: &mut Recorder,
    on: &S,
    p: &Packed,
    (at, block, choice): (StepId, &FeedForward, &ActivationChoice),
    (x, columns): Read<'_>,
    After { kept, kappa, beside, rest }: After,
) -> Result<NodeId, FheError> {
    let (places, y) = hidden(t, on, p, (at, block, choice), ((x, columns), kept))?;
    let (at, spread) = (at.part("down"), p.places.columns);
    t.at(at);
    let down = on.map(at, || centred(on, at, &block.down, kappa))?;
    p.linear(t, spread, &[(places, y, &down), (spread, beside, &Arc::new(rest))], kept)
}

/// A decoder's block: down(f(up(x))), or down(f(gate(x)) ∘ up(x)), in pairs, divided by `bound`.
///
/// # Errors
/// As [`hidden`].
pub(crate) fn causal_feed_forward<S: Slots>(
    t: &mut Recorder,
    on: &S,
    p: &Packed,
    (at, block, choice): (StepId, &FeedForward, &ActivationChoice),
    x: Read<'_>,
    bound: f64,
) -> Result<NodeId, FheError> {
    let (places, y) = hidden(t, on, p, (at, block, choice), (x, Kept::All))?;
    let at = at.part("down");
    t.at(at);
    let down = Last::divided(on, at, &block.down, (bound, None), None)?.map;
    p.linear(t, p.places.columns, &[(places, y, &down)], Kept::All)
}

/// f(up(x)), or f(gate(x)) ∘ up(x), in pairs, and their places: hidden columns lie side by side, each with the
/// polynomial of its interval in the coefficients of its place. A gate takes one level more, for its product with the
/// result of `up`, which is computed at that level.
///
/// # Errors
/// Shapes that differ, layers without numbers, functions without a fit.
fn hidden<S: Slots>(
    t: &mut Recorder,
    on: &S,
    p: &Packed,
    (at, block, choice): (StepId, &FeedForward, &ActivationChoice),
    ((x, columns), kept): (Read<'_>, Kept),
) -> Result<(Spread, NodeId), FheError> {
    let (hidden, spread) = (block.up.outputs, p.places.columns);
    same(at, "intervals", choice.columns.len(), hidden)?;
    same(at, "hidden columns", block.down.inputs, hidden)?;
    let places = p.rows.layout().spread(hidden, 1)?;
    let up = at.part("up");
    let unit = |at, w| on.map(at, || unit_map(reading(on, at, w, columns)?, &choice.columns));
    let (argument, factor) = match &block.gate {
        None => (unit(up, &block.up)?, None),
        Some(gate) => {
            same(at, "columns of the gate", gate.outputs, hidden)?;
            let factor = on.map(up, || reading(on, up, &block.up, columns))?;
            (unit(at.part("gate"), gate)?, Some(factor))
        }
    };
    t.at(up);
    let arguments = p.linear(t, places, &[(spread, x, &argument)], kept)?;
    t.at(at.part("activation"));
    let parts = t.parts(arguments, 2 * places.vectors());
    t.within(parts, 1.0);
    let polynomials = on.polynomials();
    let what = (block.activation, choice, &*polynomials);
    let polynomial = |i: usize| of_places(on, p.rows.layout(), what, (&places, i / 2, i % 2));
    let all = (0..2 * places.vectors()).map(polynomial).collect::<Result<_, FheError>>()?;
    let function = t.function(SlotFunction::Places(Arc::new(all)));
    let mut y = t.apply(function, parts);
    if let Some(factor) = factor {
        t.at(up);
        let factors = p.linear(t, places, &[(spread, x, &factor)], kept)?;
        let factors = t.parts(factors, 2 * places.vectors());
        t.at(at.part("product"));
        y = t.mul(y, factors);
    }
    Ok((places, t.pair(y, false)))
}

/// The polynomial of each place, for one part of the pairs of a vector; 0 in places without a column.
///
/// # Errors
/// Functions without a fit.
fn of_places<S: Slots>(
    on: &S,
    layout: Layout,
    (f, choice, polynomials): (Activation, &ActivationChoice, &Polynomials),
    (places, vector, part): (&Spread, usize, usize),
) -> Result<SlotPolynomial, FheError> {
    let (columns, degree) = (&choice.columns, choice.degree);
    if any_column(on, f, columns, degree, polynomials)?.is_some() {
        return Ok(SlotPolynomial::new(degree, &[])?);
    }
    let of = |place: usize| {
        let column = places.columns_at(vector, place).and_then(|both| columns.get(both[part]));
        column.map(|&column| polynomials.get(f, column, degree)).transpose()
    };
    let fitted = (0..layout.columns()).into_par_iter().map(of);
    let fitted = fitted.collect::<Result<Vec<_>, FheError>>()?;
    Ok(SlotPolynomial::new(degree, &fitted.iter().map(Option::as_deref).collect::<Vec<_>>())?)
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
