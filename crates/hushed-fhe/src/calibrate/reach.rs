//! How much of a calibration's intervals other texts use: the sample says nothing about texts outside it. Measured with
//! exact functions, text by text.

use std::fmt;
use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_model::{Item, Model, Program};
use serde::Serialize;

use super::clear::Clear;
use super::embed::check_rows;
use super::measure::{Seen, Span, Structure, hats, second_norm};
use crate::{Choices, FheError, HeadChoice, LayerChoice};

/// A quantity with an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Quantity {
    /// Scores of a head.
    Scores,
    /// Σ e^{s/2} of a row.
    FirstSum,
    /// Σ (p/Σp)² of a row.
    SecondSum,
    /// The variance of a row before its norm.
    Variance,
    /// The largest |x̂| after a norm.
    Normed,
    /// The argument of an activation.
    Argument,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Quantity::Scores => "scores",
            Quantity::FirstSum => "first sum",
            Quantity::SecondSum => "second sum",
            Quantity::Variance => "variance",
            Quantity::Normed => "normed rows",
            Quantity::Argument => "arguments of the activation",
        })
    }
}

/// The farthest point of a text in one quantity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reach {
    /// The quantity.
    pub quantity: Quantity,
    /// Layer.
    pub layer: usize,
    /// Head, hidden column, or which norm of the layer.
    pub index: usize,
    /// Distance from the middle of the interval divided by half its width, so that 1 is an end. For sums and variances,
    /// whose margins are factors: the factor by which they pass the nearer end, below 1 inside.
    pub reach: f64,
}

/// The reach of each text in every [`Quantity`].
///
/// # Errors
/// Fails if the choices belong to another model, or texts are longer than their rows.
pub fn reaches<T: Clone + Into<Item>>(
    model: &Model,
    choices: &Choices,
    texts: &[T],
    params: &Arc<CkksParams>,
) -> Result<Vec<Vec<Reach>>, FheError> {
    let program = model.program_of_all_rows();
    choices.check(&program)?;
    let texts: Vec<Item> = texts.iter().cloned().map(T::into).collect();
    check_rows(&texts, choices.rows)?;
    let structure = structure(&program, choices)?;
    let clear = Clear { model, params, rows: choices.rows };
    let width = program.width();
    let seen = clear.measured_each(&structure, &texts)?;
    let far = |seen: &Seen| farthest(seen, choices, width);
    Ok(seen.iter().map(far).collect())
}

/// The replacements of a calibration.
fn structure(program: &Program, choices: &Choices) -> Result<Structure, FheError> {
    let frozen = choices.layers.iter().enumerate().map_while(|(i, choice)| {
        let row = choice.frozen_row.as_ref()?;
        Some(hats(row, second_norm(program, i)?))
    });
    let fixed = |layer: &LayerChoice| {
        let heads = layer.attention.heads.iter();
        heads.map(|h| matches!(h, HeadChoice::Previous)).collect()
    };
    Ok(Structure { frozen: frozen.collect::<Result<_, _>>()?, fixed: choices.layers.iter().map(fixed).collect() })
}

fn farthest(seen: &Seen, choices: &Choices, width: usize) -> Vec<Reach> {
    let mut all: Vec<Reach> = Vec::new();
    let mut note = |quantity, layer, index, reach: f64| {
        let found = Reach { quantity, layer, index, reach };
        match all.iter_mut().find(|r| r.quantity == quantity) {
            Some(known) if known.reach < reach => *known = found,
            Some(_) => (),
            None => all.push(found),
        }
    };
    for (layer, (seen, choice)) in seen.layers.iter().zip(&choices.layers).enumerate() {
        for (h, (head, choice)) in seen.heads.iter().zip(&choice.attention.heads).enumerate() {
            let HeadChoice::Softmax { scores, first, second, .. } = choice else {
                continue;
            };
            let t = |s: f64| ((s - scores.middle()) / scores.half()).abs();
            let far = t(head.scores.least).max(t(head.scores.greatest));
            note(Quantity::Scores, layer, h, far);
            let sum = |ln: f64| (ln - scores.high / 2.0).exp();
            let sums = Span { least: sum(head.first.least), greatest: sum(head.first.greatest) };
            note(Quantity::FirstSum, layer, h, past(sums, first.low, first.high));
            note(Quantity::SecondSum, layer, h, past(head.second, second.low, second.high));
        }
        for (j, (seen, column)) in seen.columns.iter().zip(&choice.activation.columns).enumerate() {
            let interval = column.interval();
            let t = |x: f64| ((x - interval.middle()) / interval.half()).abs();
            let far = t(seen.span.least).max(t(seen.span.greatest));
            note(Quantity::Argument, layer, j, far);
        }
    }
    let layers = seen.layers.iter().zip(&choices.layers).enumerate();
    let inside = layers.flat_map(|(i, (seen, choice))| {
        let [first, second] = &seen.norms;
        [(i, 0, first, &choice.attention_norm), (i, 1, second, &choice.feed_forward_norm)]
    });
    let after = choices.norm.iter().map(|norm| (seen.layers.len(), 0, &seen.norm, norm));
    for (layer, n, seen, norm) in inside.chain(after) {
        // v = κ²·d·variance, within [low, 1].
        let v = |variance: f64| norm.scale.powi(2) * width as f64 * variance;
        for span in [seen.first, seen.later] {
            if span.least <= span.greatest {
                let span = Span { least: v(span.least), greatest: v(span.greatest) };
                note(Quantity::Variance, layer, n, past(span, norm.low, 1.0));
            }
        }
        note(Quantity::Normed, layer, n, seen.largest / norm.bound);
    }
    all.sort_by_key(|r| r.quantity);
    all
}

/// The factor by which a span passes the nearer end of [low, high].
fn past(span: Span, low: f64, high: f64) -> f64 {
    (span.greatest / high).max(low / span.least)
}
