//! Choices from measurements: intervals with margins, rounded, and the steps that the required precision needs.
//!
//! | what | margin |
//! |---|---|
//! | scores | 2 on each side |
//! | Σ e^{s/2} | a factor of e below and of e^{3/2} above |
//! | Σe | a factor of e^{1/2}, not below 1/rows (the exact minimum), and the square of the first inverse's error |
//! | variances of norms | a factor of 2 on each side |
//! | x̂ | a quarter |
//! | arguments of activations | 0.75 and 15 % of the width on each side, then half of that again; rounded to quarters |
//!
//! The margin of Σ e^{s/2} is wider above, as a longer text of similar scores has larger sums, and an inverse soon
//! diverges there. In the second margin of activations the polynomial is only bounded ([`fits`]); they round outwards.

use hushed_ckks::poly::{Inverse, InverseSqrt, PolyError};
use hushed_model::Norm;

use super::measure::{ColumnSeen, HeadSeen, LayerSeen, NormSeen, values};
use crate::ledger::{self, AFTER_EXPONENTIALS, AFTER_SQUARES, NORM};
use crate::{ActivationChoice, AttentionChoice, Column, FheError, HeadChoice, Interval, LayerChoice, NormChoice, fits};

/// The degrees that a search varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Degrees {
    pub exponential: usize,
    pub activation: usize,
}

impl Degrees {
    /// The highest degrees, enough for every model.
    pub const AMPLE: Degrees = Degrees { exponential: 31, activation: 31 };

    /// The next degree of one function: of the one that costs fewer levels, or of the activation, which has one of
    /// `activations`, if both cost the same.
    pub fn next(self, activations: &[usize]) -> Option<Degrees> {
        let after = |all: &[usize], degree| all.iter().copied().find(|&next| next > degree);
        let activation = after(activations, self.activation);
        let activation = activation.map(|activation| Degrees { activation, ..self });
        let exponential = after(&DEGREES, self.exponential).map(|exponential| Degrees { exponential, ..self });
        let both = activation.into_iter().chain(exponential);
        // The first in case of a tie.
        both.min_by_key(|degrees| {
            let (attention, feed_forward) = degrees.levels();
            attention + feed_forward
        })
    }

    /// Levels of the two halves of a layer.
    pub fn levels(self) -> (usize, usize) {
        let feed_forward = ledger::feed_forward(self.activation, false) + NORM;
        (ledger::attention(self.exponential), feed_forward)
    }
}

/// Degrees to try: 3, 4, 4, 5, 5, 6 and 6 levels, and 4, 5, 7, 8, 10, 11 and 15 relinearisations
/// ([`hushed_ckks::poly::Schedule`]). The last few degrees before a power of two cost the most for what they add: 12
/// and 28 save what 15 and 31 spend there.
pub(super) const DEGREES: [usize; 7] = [7, 12, 15, 28, 31, 44, 63];

/// Margin in nats on each side of the scores.
const SCORES: f64 = 2.0;

/// Factor of the margin on each side of a norm's variances.
const VARIANCES: f64 = 2.0;

/// Where variances alone are refreshed: slots may then hold up to about 2^7 times the bound, with a margin here.
pub(super) const MASKED: f64 = 32.0;
/// Where the columns that a norm reads are refreshed.
pub(super) const REFRESHED: f64 = 1.0;

/// The error of the first inverse multiplies all quotients of a row, and the second inverse cancels it.
const FIRST_ERROR: f64 = 0.1;
const SECOND_ERROR: f64 = 1.0 / 4096.0;
const ROOT_SEED: usize = 15;
const ROOT_STEPS: usize = 2;

/// The choice of a layer whose second norm is this, from its fixed heads and x̂ of its frozen row, if any. `sizes`:
/// rows per text, and levels of a chain after a refresh; `masked` as in [`norm`].
pub(super) fn layer(
    second: &Norm,
    seen: &LayerSeen,
    (fixed, frozen): (&[bool], Option<&[f64]>),
    degrees: Degrees,
    (sizes, masked): ((usize, usize), f64),
) -> Result<LayerChoice, FheError> {
    let [attention_norm, feed_forward_norm] = &seen.norms;
    let frozen_row = frozen.map(|row| values(row, second));
    let largest = frozen.unwrap_or(&[]).iter().fold(0.0, |m: f64, v| m.max(v.abs()));
    Ok(LayerChoice {
        attention: attention(&seen.heads, fixed, degrees.exponential, sizes)?,
        attention_norm: norm(attention_norm, second.width, 0.0, masked)?,
        activation: ActivationChoice {
            degree: degrees.activation,
            columns: seen.columns.iter().map(argument).collect(),
        },
        feed_forward_norm: norm(feed_forward_norm, second.width, largest, masked)?,
        frozen_row: frozen_row.transpose()?.map(|row| rounded_row(&row)),
    })
}

/// The softmaxes of a decoder's layer. `sizes`: rows per text, and levels of a chain after a refresh.
pub(super) fn softmax(seen: &[HeadSeen], degree: usize, sizes: (usize, usize)) -> Result<AttentionChoice, FheError> {
    attention(seen, &vec![false; seen.len()], degree, sizes)
}

fn attention(
    seen: &[HeadSeen],
    fixed: &[bool],
    degree: usize,
    (rows, levels): (usize, usize),
) -> Result<AttentionChoice, FheError> {
    let rows = rows as f64;
    // Scores, minimum of the row maxima, Σp.
    let parts: Vec<Option<(Interval, f64, Interval)>> =
        seen.iter().zip(fixed).map(|(head, fixed)| (!fixed).then(|| first(head))).collect();
    let steps = |most: usize, error: f64, ratios: &[f64]| -> Result<usize, PolyError> {
        let mut steps = 1;
        for &ratio in ratios {
            steps = steps.max(Inverse::new(ratio, 1.0, error)?.steps());
        }
        Ok(steps.min(most))
    };
    let ratios: Vec<f64> = parts.iter().flatten().map(|p| p.2.low / p.2.high).collect();
    let most = levels.saturating_sub(AFTER_EXPONENTIALS).max(1);
    let first_steps = steps(most, FIRST_ERROR, &ratios)?;
    let mut heads = Vec::with_capacity(seen.len());
    let mut ratios = Vec::with_capacity(seen.len());
    for (head, part) in seen.iter().zip(parts) {
        let Some((scores, least_maximum, first)) = part else {
            heads.push(HeadChoice::Previous);
            continue;
        };
        let inverse = Inverse::with_steps(first.low / first.high, 1.0, first_steps)?;
        let error = inverse.report().error;
        let least = (head.second.least * (-0.5f64).exp()).max(0.98 / rows);
        let second = Interval { low: down(least * (1.0 - error).powi(2)), high: up(1.02 * (1.0 + error).powi(2)) };
        ratios.push(second.low / second.high);
        heads.push(HeadChoice::Softmax { scores, least_maximum, first, second });
    }
    let most = levels.saturating_sub(AFTER_SQUARES).max(1);
    Ok(AttentionChoice { degree, first_steps, second_steps: steps(most, SECOND_ERROR, &ratios)?, heads })
}

fn first(head: &HeadSeen) -> (Interval, f64, Interval) {
    let least_maximum = ((head.maxima.least - 1.0) * 16.0).floor() / 16.0;
    let scores = Interval { low: (head.scores.least - SCORES).floor(), high: (head.scores.greatest + SCORES).ceil() };
    let sum = |ln: f64| (ln - scores.high / 2.0).exp();
    let first = Interval { low: down(sum(head.first.least - 1.0)), high: up(sum(head.first.greatest + 1.5)) };
    (scores, least_maximum, first)
}

/// A norm's choice; `frozen` is the largest |x̂| of its frozen row, and `masked` how many times the greatest variance
/// that of a row may be whose result is not used: [`MASKED`] or [`REFRESHED`].
pub(super) fn norm(seen: &NormSeen, width: usize, frozen: f64, masked: f64) -> Result<NormChoice, FheError> {
    let d = width as f64;
    let least = seen.later.least.min(seen.first.least) / VARIANCES;
    let greatest = seen.later.greatest.max(seen.first.greatest) * VARIANCES;
    let greatest = greatest.max(seen.masked.greatest / masked);
    let low = down(least / greatest);
    let root = |steps: usize| InverseSqrt::with_steps(low, 1.0, ROOT_SEED, steps);
    let mut steps = 0;
    while steps < ROOT_STEPS && root(steps)?.report().error > fits::ROOT_ERROR {
        steps += 1;
    }
    let bound = (1.25 * seen.largest).max(1.02 * frozen).min(d.sqrt());
    Ok(NormChoice { scale: down(1.0 / (d * greatest).sqrt()), low, bound: up(bound), seed: ROOT_SEED, steps })
}

pub(super) fn argument(seen: &ColumnSeen) -> Column {
    let (span, (mean, deviation)) = (seen.span, seen.bell());
    let width = span.greatest - span.least;
    let margin = 0.75 + width * 0.15;
    let margin = margin + (fits::OUTER - 1.0) * (width / 2.0 + margin);
    Column {
        low: ((span.least - margin) * 4.0).floor() / 4.0,
        high: ((span.greatest + margin) * 4.0).ceil() / 4.0,
        mean: (mean * 4.0).round() / 4.0,
        deviation: (deviation * 4.0).ceil().max(1.0) / 4.0,
    }
}

/// Rounds to three significant digits, towards 0.
fn down(x: f64) -> f64 {
    digits(x, 3, f64::floor)
}

/// Rounds to three significant digits, away from 0.
pub(super) fn up(x: f64) -> f64 {
    digits(x, 3, f64::ceil)
}

fn digits(x: f64, count: i32, round: fn(f64) -> f64) -> f64 {
    if x <= 0.0 || !x.is_finite() {
        return x;
    }
    // Dividing by an exact power of ten gives the number nearest to the decimal one, which prints short.
    let places = count - 1 - x.log10().floor() as i32;
    if places >= 0 {
        round(x * 10f64.powi(places)) / 10f64.powi(places)
    } else {
        round(x / 10f64.powi(-places)) * 10f64.powi(-places)
    }
}

/// Numbers of a row with deviation 1, rounded to four places.
pub(super) fn rounded_row(row: &[f64]) -> Vec<f64> {
    row.iter().map(|v| (v * 1e4).round() / 1e4).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_degrees_cost_a_level_only_where_they_must() {
        let mut degrees = Degrees { exponential: 12, activation: 28 };
        let mut seen = Vec::new();
        while let Some(next) = degrees.next(&DEGREES) {
            seen.push((next.exponential, next.activation));
            degrees = next;
        }
        let ample = [(12, 31), (15, 31), (15, 44), (15, 63)];
        assert_eq!(seen[..4], ample);
        assert_eq!(seen.last(), Some(&(63, 63)));
    }
}
