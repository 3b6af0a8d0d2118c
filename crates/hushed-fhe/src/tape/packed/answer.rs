//! The answers of packed rows: pooled rows, or the logits of a classifier, are in the first row of each text, a pair of
//! numbers per place; a decoder's hidden states are in its last row or in all rows. Everything else is 0 before noise
//! is added.

use std::sync::Arc;

use hushed_lower::LinearMap;
use hushed_model::{Classifier, Linear, Pool, StepId};

use super::attention::Read;
use super::{Packed, Term};
use crate::choices::ClassifierChoice;
use crate::error::FheError;
use crate::ops::acts::reading;
use crate::ops::head::HeadActivation;
use crate::ops::packed::rows::Kept;
use crate::slots::Slots;
use crate::tape::functions::SlotFunction;
use crate::tape::record::Recorder;
use crate::tape::{NodeId, Plain};

/// The pooled rows, as vectors of pairs laid out like the columns.
pub(crate) fn pool(t: &mut Recorder, p: &Packed, at: StepId, (x, columns): Read<'_>, how: Pool) -> NodeId {
    t.at(at);
    if how != Pool::Mean {
        return rows(t, p, at, (x, columns), Kept::First);
    }
    let [gain, offset] = [columns.0, columns.1].map(Arc::<[f64]>::from);
    let out = p.places.columns;
    let sums = p.over_rows(t, x);
    let parts = t.parts(sums, 2 * out.vectors());
    // Gains are divided by known numbers or multiplied by hidden shares. Offsets are the server's weights: they must
    // not show without a token, or with invalid shares.
    let gains = parts_of(p, &gain, Kept::First, p.hidden.is_none());
    let Some(hidden) = p.hidden else {
        let means = t.mul_vectors(parts, gains);
        let answer = t.pair(means, false);
        return p.plus(t, answer, (out, Kept::First), &offset);
    };
    let gains = t.mul_vectors(hidden.shares, gains);
    let means = t.mul(parts, gains);
    let answer = t.pair(means, false);
    let counted = p.over_rows(t, hidden.tokens);
    let ones = t.mul(counted, hidden.shares);
    let offsets = (0..out.vectors()).map(|vector| p.pairs(out, vector, Kept::First, &offset)).collect();
    let added = t.mul_vectors(ones, offsets);
    t.add(answer, added)
}

/// Some rows, as vectors of pairs laid out like the columns, with gains and offsets; 0 in all other rows.
pub(crate) fn rows(t: &mut Recorder, p: &Packed, at: StepId, (x, columns): Read<'_>, kept: Kept) -> NodeId {
    t.at(at);
    let [gain, offset] = [columns.0, columns.1].map(Arc::<[f64]>::from);
    let parts = t.parts(x, 2 * p.places.columns.vectors());
    let gained = t.mul_vectors(parts, parts_of(p, &gain, kept, false));
    let answer = t.pair(gained, false);
    p.plus(t, answer, (p.places.columns, kept), &offset)
}

/// A number per column in rows `kept`, for each part of the pairs of each vector, divided by the rows of the text if
/// `shared`.
fn parts_of(p: &Packed, numbers: &Arc<[f64]>, kept: Kept, shared: bool) -> Vec<Plain> {
    let columns = p.places.columns;
    let part = |i: usize| {
        let numbers = Arc::clone(numbers);
        p.numbers(move |rows, text, row, place| {
            let column = columns.columns_at(i / 2, place).map(|both| both[i % 2]);
            let number = column.filter(|_| rows.holds(kept, text, row)).and_then(|c| numbers.get(c));
            number.copied().unwrap_or(0.0) / if shared { rows.length(text).max(1) as f64 } else { 1.0 }
        })
    };
    (0..2 * columns.vectors()).map(part).collect()
}

/// The logits of each text in its first row, two per place: tanh of a linear map of the first row, then one number per
/// class ([`crate::ops::head`]). The columns are 0 in other rows, and next to each other already, so nothing is packed.
///
/// # Errors
/// Layers without numbers, functions without a fit.
pub(crate) fn head<S: Slots>(
    t: &mut Recorder,
    on: &S,
    p: &Packed,
    (at, c, choice): (StepId, &Classifier, &ClassifierChoice),
    (x, columns): Read<'_>,
) -> Result<NodeId, FheError> {
    let (layout, site) = (p.rows.layout(), at.part("dense"));
    t.at(site);
    let dense = on.map(site, || Ok(reading(on, site, &c.dense, columns)?.times(1.0 / choice.reach)))?;
    let inner = layout.spread(c.dense.outputs, 1)?;
    let arguments = p.linear(t, inner, &[(p.places.columns, x, &dense)], Kept::First)?;
    let parts = t.parts(arguments, 2 * inner.vectors());
    t.within(parts, 1.0);
    t.at(at.part("refresh"));
    let refreshed = t.mark(parts, 1.0);
    t.at(at.part("activation"));
    let tanh = t.function(SlotFunction::Head(Arc::new(HeadActivation::new(c.activation, choice)?)));
    let pooled = t.apply(tanh, refreshed);
    let pooled = t.pair(pooled, false);
    let site = at.part("classes");
    t.at(site);
    let map = Arc::new(match on.only_shapes() {
        true => LinearMap::shape(c.classes.outputs, c.classes.inputs),
        false => LinearMap::of(site, &c.classes)?,
    });
    logits(t, p, (inner, pooled, &map))
}

/// A map of the first row of each text, in its first row, from columns that are 0 in all other rows.
///
/// # Errors
/// Layers without numbers.
pub(crate) fn classes<S: Slots>(
    t: &mut Recorder,
    on: &S,
    p: &Packed,
    (at, w): (StepId, &Linear),
    (x, columns): Read<'_>,
) -> Result<NodeId, FheError> {
    t.at(at);
    let map = on.map(at, || reading(on, at, w, columns))?;
    logits(t, p, (p.places.columns, x, &map))
}

/// Two numbers per place, in first rows alone.
fn logits(t: &mut Recorder, p: &Packed, term: Term<'_>) -> Result<NodeId, FheError> {
    let out = p.rows.layout().spread(term.2.rows, 1)?;
    let logits = p.linear(t, out, &[term], Kept::First)?;
    let mask = |vector: usize| {
        p.in_rows(Kept::First, move |place| f64::from(u8::from(out.columns_at(vector, place).is_some())))
    };
    Ok(t.mul_vectors(logits, (0..out.vectors()).map(mask).collect()))
}
