//! A decoder's feed-forward block in packed rows: hidden columns lie side by side, each with the polynomial of its
//! interval in the coefficients of its place. With a gate the activation is of the gate, and one more level goes to its
//! product with the result of `up`, which is computed at that level.

use hushed_ckks::poly::{SlotPolynomial, evaluate_slots};
use hushed_model::{Activation, FeedForward, Linear, StepId, same};
use rayon::prelude::*;

use super::joined;
use super::linear::{Term, folded, linear, over};
use super::rows::PackedRows;
use crate::choices::ActivationChoice;
use crate::error::FheError;
use crate::ops::activation::{any_column, argument_scale, unit_map};
use crate::ops::acts::Acts;
use crate::ops::folded::Polynomials;
use crate::ops::levels::{above, below, scale_of};
use crate::ops::norm::product;
use crate::packing::{Layout, PackingError, Spread};
use crate::slots::Slots;

/// A feed-forward block in packed rows.
pub struct PackedFeedForward<'a> {
    /// The step that plans, counters and progress show.
    pub at: StepId,
    /// Weights and shapes of the model.
    pub block: &'a FeedForward,
    /// The degree of the activation and the interval of each hidden column.
    pub choice: &'a ActivationChoice,
    /// The bound of the sum that reads its result.
    pub bound: f64,
    /// The texts.
    pub rows: &'a PackedRows<()>,
    /// The places of the columns of x.
    pub columns: Spread,
    /// Fits shared by all layers.
    pub polynomials: &'a Polynomials,
}

impl PackedFeedForward<'_> {
    /// down(f(up(x))) or down(f(gate(x)) ∘ up(x)), divided by the bound. In pairs at half of [`Slots::default_scale`].
    ///
    /// # Errors
    /// Shapes that differ, layers without numbers, too few levels, and what the arithmetic refuses.
    pub fn run<S: Slots>(&self, on: &S, x: &Acts<S::Value>) -> Result<Vec<S::Value>, FheError> {
        let hidden = self.block.up.outputs;
        same(self.at, "intervals", self.choice.columns.len(), hidden)?;
        same(self.at, "hidden columns", self.block.down.inputs, hidden)?;
        let places = self.rows.layout().spread(hidden, 1)?;
        let hidden = match &self.block.gate {
            None => self.activated(on, x, ("up", &self.block.up), &places)?,
            Some(gate) => {
                let gate = self.activated(on, x, ("gate", gate), &places)?;
                self.gated(on, x, gate, &places)?
            }
        };
        let hidden = joined(on, hidden)?;
        let at = self.at.part("down");
        on.at(at);
        let down = on.map(at, || over(on, at, &self.block.down, self.bound))?;
        let term = Term { places, vectors: &hidden, map: &down };
        let bias = down.bias.as_deref().unwrap_or_default();
        let target = scale_of(on.default_scale().value() / 2.0)?;
        linear(on, self.rows, &self.columns, &[term], bias, target)
    }

    /// The activation of the result of `w`, part `part` of the block, as both parts of each vector of pairs.
    fn activated<S: Slots>(
        &self,
        on: &S,
        x: &Acts<S::Value>,
        (part, w): (&'static str, &Linear),
        places: &Spread,
    ) -> Result<Vec<S::Value>, FheError> {
        let first = x.columns.first().ok_or(PackingError::Mismatch)?;
        let up = self.at.part("up");
        on.at(up);
        let map = on.map(self.at.part(part), || unit_map(folded(on, up, x, w)?, &self.choice.columns))?;
        let term = Term { places: self.columns, vectors: &x.columns, map: &map };
        let bias = map.bias.as_deref().unwrap_or_default();
        // Parts have twice the scale of a pair.
        let argument = argument_scale(on, below(on, on.limbs(first), 1)?)?;
        let target = scale_of(argument.value() / 2.0)?;
        let arguments = linear(on, self.rows, places, &[term], bias, target)?;
        on.at(self.at.part("activation"));
        let mut parts = Vec::with_capacity(2 * arguments.len());
        for (vector, pair) in arguments.iter().enumerate() {
            let both = on.parts(pair)?;
            parts.extend(both.into_iter().enumerate().map(|(part, t)| (vector, part, t)));
        }
        let activation = |(vector, part, t): (usize, usize, S::Value)| {
            let what = (self.block.activation, self.choice, self.polynomials);
            let polynomial = of_places(on, self.rows.layout(), what, (places, vector, part))?;
            let t = on.within(t, 1.0);
            evaluate_slots(on, &t, &polynomial, on.default_scale())
        };
        parts.into_par_iter().map(activation).collect()
    }

    /// The products of a gate's parts with the result of `up`, one level below.
    fn gated<S: Slots>(
        &self,
        on: &S,
        x: &Acts<S::Value>,
        gate: Vec<S::Value>,
        places: &Spread,
    ) -> Result<Vec<S::Value>, FheError> {
        let up = self.at.part("up");
        on.at(up);
        let first = gate.first().ok_or(PackingError::Mismatch)?;
        let from = above(on, on.limbs(first))?;
        let low = x.columns.iter().map(|v| on.drop_to(v, from));
        let low = low.collect::<Result<Vec<_>, FheError>>()?;
        let map = on.map(up, || folded(on, up, x, &self.block.up))?;
        same(up, "columns of the gate", map.rows, places.width())?;
        let term = Term { places: self.columns, vectors: &low, map: &map };
        let bias = map.bias.as_deref().unwrap_or_default();
        let target = scale_of(on.default_scale().value() / 2.0)?;
        let mut factors = Vec::with_capacity(gate.len());
        for pair in linear(on, self.rows, places, &[term], bias, target)? {
            factors.extend(on.parts(&pair)?);
        }
        on.at(self.at.part("product"));
        let both = gate.into_par_iter().zip(factors);
        both.map(|(gate, factor)| product(on, &gate, &factor)).collect()
    }
}

/// The polynomial of each place, for one part of the pairs of a vector; 0 in places without a column.
///
/// # Errors
/// Functions without a fit.
pub(crate) fn of_places<S: Slots>(
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
