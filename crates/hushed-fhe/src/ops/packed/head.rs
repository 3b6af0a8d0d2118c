//! The head of a classifier in packed rows: tanh of a linear map of the first row, then one number per class
//! ([`crate::ops::head`]). All columns are next to each other already, so nothing is packed.
//!
//! | step | levels |
//! |---|---|
//! | the last norm, masked to first rows: every other row is 0 | 0 |
//! | `dense`: 1/reach folded into its weights and biases | 1 |
//! | `refresh`: two real vectors per vector of pairs | |
//! | `activation`, on each part | 4 + ⌈log2(degree + 1)⌉ |
//! | `classes`: two per place | 1 |
//! | times a mask of first rows and of places with a class | 1 |

use hushed_lower::LinearMap;
use hushed_model::{Classifier, StepId};
use rayon::prelude::*;

use super::joined;
use super::linear::{Term, folded, linear};
use super::rows::{Kept, PackedRows};
use crate::choices::ClassifierChoice;
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::head::{HeadActivation, refreshed_limbs, supported};
use crate::ops::levels::{above, scale_of};
use crate::packing::Spread;
use crate::slots::Slots;

/// The logits of each text in its first row, two per place. The columns have a level, and are 0 in other rows.
///
/// # Errors
/// Layers without numbers, a function other than tanh, too few levels.
pub fn head<S: Slots>(
    on: &S,
    at: StepId,
    x: &Acts<S::Value>,
    (c, choice): (&Classifier, &ClassifierChoice),
    rows: &PackedRows<S::Value>,
    columns: &Spread,
) -> Result<Vec<S::Value>, FheError> {
    supported(at, c)?;
    let site = at.part("dense");
    on.at(site);
    let layout = rows.layout();
    let dense = on.map(site, || Ok(folded(on, site, x, &c.dense)?.times(1.0 / choice.reach)))?;
    let inner = layout.spread(c.dense.outputs, 1)?;
    let limbs = above(on, on.floor())?;
    let cut = x.columns.iter().map(|v| on.drop_to(v, limbs));
    let cut = cut.collect::<Result<Vec<_>, FheError>>()?;
    let map = |places, vectors, map| Term { places, vectors, map };
    let bias = (dense.bias.as_deref().unwrap_or_default(), Kept::First);
    // Parts have twice the scale of a pair.
    let half = scale_of(on.default_scale().value() / 2.0)?;
    let term = map(*columns, cut.as_slice(), &dense);
    let arguments = linear(on, rows, &inner, &[term], bias, half)?;
    let mut parts = Vec::with_capacity(2 * arguments.len());
    for pair in &arguments {
        parts.extend(on.parts(pair)?.map(|part| on.within(part, 1.0)));
    }
    let site = at.part("refresh");
    on.at(site);
    let parts = on.refresh(site, parts, refreshed_limbs(on, choice)?)?;
    on.at(at.part("activation"));
    let tanh = HeadActivation::new(c.activation, choice)?;
    let pooled = parts.par_iter().map(|t| tanh.evaluate(on, t));
    let pooled = joined(on, pooled.collect::<Result<Vec<_>, FheError>>()?)?;
    let site = at.part("classes");
    on.at(site);
    let classes = match on.only_shapes() {
        true => LinearMap::shape(c.classes.outputs, c.classes.inputs),
        false => LinearMap::of(site, &c.classes)?,
    };
    let out = layout.spread(c.classes.outputs, 1)?;
    let bias = (classes.bias.as_deref().unwrap_or_default(), Kept::First);
    let term = map(inner, pooled.as_slice(), &classes);
    let logits = linear(on, rows, &out, &[term], bias, on.default_scale())?;
    let masked = logits.into_iter().enumerate().map(|(vector, v)| {
        let mask = rows.numbers(on, |text, row, place| {
            let used = out.columns_at(vector, place).is_some();
            f64::from(u8::from(used && rows.holds(Kept::First, text, row)))
        });
        on.mul_vector(&v, &mask, on.default_scale())
    });
    masked.collect()
}
