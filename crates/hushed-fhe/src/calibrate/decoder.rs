//! The intervals of a decoder, measured in the clear: every quantity that an encrypted run bounds also occurs in the
//! published model, so the clear model itself is observed. With LayerNorm two things differ in an encrypted run: keys
//! have no constant part, and rows of padding are not zeros but what biases and offsets make of them.
//!
//! | what | margin |
//! |---|---|
//! | scores of a sigmoid, including 0 (of padding) | a tenth of their width on each side |
//! | scores and sums of a softmax | as for encoders |
//! | residual stream after each half of a layer | a half |
//! | mean squares of norms, x̂, arguments of activations | as for encoders ([`super::margins`]) |

use std::collections::HashMap;

use hushed_lower::LinearMap;
use hushed_model::plain::{self, Moment, PlainActs, PlainScores, Seen, What};
use hushed_model::{Block, Item, Linear, Mask, Norm, NormKind, Program, Step, StepId, Weigh, here};

use super::margins;
use super::measure::{ColumnSeen, HeadSeen, NormSeen, Span};
use crate::choices::{DecoderChoice, DecoderLayerChoice, ScoresChoice, SigmoidChoice};
use crate::ops::norm::row_of;
use crate::tape::encoder::has_rms_norms;
use crate::{ActivationChoice, FheError, Interval, NormChoice};

/// Margin of scores, as a fraction of their width.
const SCORES: f64 = 0.1;
/// Factor on the largest number of the residual stream.
const RESIDUAL: f64 = 1.5;

/// Measurements of a decoder.
#[derive(Clone, Default)]
pub(crate) struct DecoderSeen {
    norms: HashMap<StepId, NormSeen>,
    /// The largest number after each sum.
    sums: HashMap<StepId, f64>,
    scores: HashMap<StepId, Vec<HeadSeen>>,
    arguments: HashMap<StepId, Vec<ColumnSeen>>,
}

/// Degrees of a decoder's polynomials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Degrees {
    /// Degree for the sigmoid or the exponential of scores.
    pub scores: usize,
    /// Degree for the gate's activation.
    pub activation: usize,
}

/// Runs texts in the clear. Intervals cover all texts; mean and deviation are those of `ordinary` texts.
pub(crate) fn measure<T: Clone + Into<Item>>(
    program: &Program,
    ordinary: &[T],
    more: &[T],
) -> Result<DecoderSeen, FheError> {
    let mut seen = DecoderSeen::default();
    let program = &match has_rms_norms(program) {
        true => program.clone(),
        false => keys_without_constants(program)?,
    };
    let norms: HashMap<StepId, &Norm> = program.norms().collect();
    let sums: Vec<StepId> =
        program.steps().iter().filter(|step| matches!(step.block, Block::Add)).map(|step| step.id).collect();
    let texts = ordinary.iter().map(|text| (text, true));
    for (text, ordinary) in texts.chain(more.iter().map(|text| (text, false))) {
        plain::run_parts(program, vec![text.clone()], |id, what, moment, value| match (what, moment, value) {
            (What::Norm(_), Moment::Input, Seen::Acts(x)) => {
                if let Some(norm) = norms.get(&id) {
                    seen.norm(id, norm, x);
                }
            }
            (What::Weigh(_, mask), Moment::Input, Seen::Scores(s)) => seen.scores(id, mask, s),
            (What::Activation, Moment::Input, Seen::Acts(x)) => seen.activation(id, x, ordinary),
            (What::Values, Moment::Output, Seen::Acts(x)) if sums.contains(&id) => {
                let largest = seen.sums.entry(id).or_default();
                *largest = x.values.data().iter().fold(*largest, |m, v| m.max(v.abs()));
            }
            _ => {}
        })?;
    }
    if !has_rms_norms(program) {
        seen.padding(program)?;
    }
    Ok(seen)
}

/// The same model with keys that an offset of the norm before them does not move: this changes no softmax.
fn keys_without_constants(program: &Program) -> Result<Program, FheError> {
    let mut offset = Vec::new();
    program.clone().changed(|step| {
        match &mut step.block {
            Block::Norm(n) => offset = offset_of(step.id, n)?,
            Block::Attention(a) => {
                let key = Linear { bias: Some(vec![0.0; a.key.outputs].into()), ..a.key.clone() };
                let constant = applied(step.id, &key, &offset)?;
                a.key.bias = Some(constant.iter().map(|&v| -v as f32).collect());
            }
            _ => {}
        }
        Ok(())
    })
}

fn offset_of(at: StepId, norm: &Norm) -> Result<Vec<f64>, FheError> {
    Ok(here(at, &norm.offset)?.iter().map(|&v| f64::from(v)).collect())
}

/// W·x + b.
fn applied(at: StepId, w: &Linear, x: &[f64]) -> Result<Vec<f64>, FheError> {
    let map = LinearMap::of(at, w)?;
    let rows = map.weights.chunks_exact(map.columns.max(1));
    let bias = map.bias.iter().flatten().copied().chain(std::iter::repeat(0.0));
    Ok(rows.zip(bias).map(|(row, b)| b + row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>()).collect())
}

impl DecoderSeen {
    fn norm(&mut self, id: StepId, norm: &Norm, x: &PlainActs) {
        let seen = self.norms.entry(id).or_default();
        for row in x.values.data().chunks_exact(norm.width) {
            let mean = match norm.kind {
                NormKind::LayerNorm => row.iter().sum::<f64>() / norm.width as f64,
                NormKind::RmsNorm => 0.0,
            };
            let row: Vec<f64> = row.iter().map(|v| v - mean).collect();
            let (square, largest) = row_of(&row, norm.epsilon);
            seen.later.add(square);
            seen.largest = seen.largest.max(largest);
        }
    }

    /// A row of padding through the circuit: a norm gives it its offset, whatever the row is, and attention biases
    /// alone, as it sees no key.
    fn padding(&mut self, program: &Program) -> Result<(), FheError> {
        let (mut x, mut y, mut offset) = (vec![0.0; program.width()], Vec::new(), Vec::new());
        for step in program.steps().get(program.before_layers().end..).unwrap_or_default() {
            let at = step.id;
            match &step.block {
                Block::Norm(n) => {
                    let mean = x.iter().sum::<f64>() / n.width as f64;
                    let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n.width as f64;
                    self.norms.entry(at).or_default().masked.add(variance);
                    offset = offset_of(at, n)?;
                }
                Block::Attention(a) => y = applied(at, &a.output, &applied(at, &a.value, &offset)?)?,
                Block::FeedForward(f) => {
                    let mut hidden = applied(at, &f.up, &offset)?;
                    let columns = self.arguments.entry(at.part("activation")).or_default();
                    columns.iter_mut().zip(&hidden).for_each(|(column, &v)| column.add(v, false));
                    hidden.iter_mut().for_each(|v| *v = plain::activation(f.activation, *v));
                    y = applied(at, &f.down, &hidden)?;
                }
                Block::Linear(w) => y = applied(at, w, &offset)?,
                Block::Add => x.iter_mut().zip(&y).for_each(|(x, y)| *x += y),
                _ => {}
            }
        }
        Ok(())
    }

    fn scores(&mut self, id: StepId, mask: Mask, s: &PlainScores) {
        for (heads, rows) in s.texts.iter().zip(s.rows.texts()) {
            let seen = self.scores.entry(id).or_default();
            seen.resize(heads.len(), HeadSeen::default());
            for (head, scores) in seen.iter_mut().zip(heads) {
                for i in 0..rows.real {
                    let row = scores.row(i).get(mask.keys(i, rows.real));
                    head.row(row.unwrap_or_default());
                }
            }
        }
    }

    fn activation(&mut self, id: StepId, x: &PlainActs, ordinary: bool) {
        let columns = self.arguments.entry(id).or_default();
        columns.resize(x.values.cols(), ColumnSeen::default());
        // Rows before a text, and places without a text, have the argument 0.
        columns.iter_mut().for_each(|column| column.span.add(0.0));
        for row in x.values.data().chunks_exact(x.values.cols().max(1)) {
            for (column, &v) in columns.iter_mut().zip(row) {
                column.add(v, ordinary);
            }
        }
    }

    /// Choices from the measurements. `sizes`: rows per text, and levels of a chain after a refresh.
    ///
    /// # Errors
    /// Fails if a program was not measured, or a fit is refused.
    pub(crate) fn choice(
        &self,
        program: &Program,
        degrees: Degrees,
        sizes: (usize, usize),
    ) -> Result<DecoderChoice, FheError> {
        let unmeasured = |id: StepId| {
            let what = format!("nothing was measured at {id}");
            FheError::from(crate::ChoicesError::Unusable { what })
        };
        let mut layers: Vec<DecoderLayerChoice> = Vec::new();
        let (mut norms, mut sums) = (Vec::new(), Vec::new());
        let (mut scores, mut arguments) = (Vec::new(), Vec::new());
        let norm = |step: &Step| -> Result<Option<NormChoice>, FheError> {
            let Some((id, n)) = step.norms().next() else {
                return Ok(None);
            };
            let seen = self.norms.get(&id).ok_or_else(|| unmeasured(id))?;
            let masked = if has_rms_norms(program) { margins::MASKED } else { margins::REFRESHED };
            Ok(Some(margins::norm(seen, n.width, 0.0, masked)?))
        };
        for step in program.steps() {
            match &step.block {
                Block::Norm(_) => norms.extend(norm(step)?),
                Block::Add => {
                    let largest = self.sums.get(&step.id).ok_or_else(|| unmeasured(step.id))?;
                    sums.push(margins::up(RESIDUAL * largest));
                }
                Block::Attention(a) => {
                    let id = step.id.part("weigh");
                    let seen = self.scores.get(&id).ok_or_else(|| unmeasured(id))?;
                    let choice = match a.weigh {
                        Weigh::Sigmoid { .. } => ScoresChoice::Sigmoid(SigmoidChoice {
                            degree: degrees.scores,
                            heads: seen.iter().map(|head| interval(head.scores)).collect(),
                        }),
                        Weigh::Softmax => ScoresChoice::Softmax(margins::softmax(seen, degrees.scores, sizes)?),
                    };
                    scores.push((choice, norm(step)?));
                }
                Block::FeedForward(_) => {
                    let id = step.id.part("activation");
                    let seen = self.arguments.get(&id).ok_or_else(|| unmeasured(id))?;
                    let choice = ActivationChoice {
                        degree: degrees.activation,
                        columns: seen.iter().map(margins::argument).collect(),
                    };
                    arguments.push((choice, norm(step)?));
                }
                Block::Linear(_) if step.id.layer().is_some() => {
                    let choice = ActivationChoice { degree: degrees.activation, columns: Vec::new() };
                    arguments.push((choice, None));
                }
                _ => {}
            }
        }
        let mut norms = norms.into_iter();
        let halves = sums.chunks_exact(2).zip(scores.into_iter().zip(arguments));
        for (bounds, (scores, activation)) in halves {
            let id = StepId::outside("layer");
            layers.push(DecoderLayerChoice {
                attention_norm: norms.next().ok_or_else(|| unmeasured(id))?,
                scores: scores.0,
                attention_sub_norm: scores.1,
                attention_bound: bounds[0],
                feed_forward_norm: norms.next().ok_or_else(|| unmeasured(id))?,
                activation: activation.0,
                feed_forward_sub_norm: activation.1,
                feed_forward_bound: bounds[1],
            });
        }
        let last = norms.next().ok_or_else(|| unmeasured(StepId::outside("norm")))?;
        Ok(DecoderChoice { layers, norm: last })
    }
}

/// Scores including 0, with their margin, rounded outwards to eighths.
fn interval(mut seen: Span) -> Interval {
    seen.add(0.0);
    let margin = SCORES * (seen.greatest - seen.least) + 0.125;
    Interval { low: ((seen.least - margin) * 8.0).floor() / 8.0, high: ((seen.greatest + margin) * 8.0).ceil() / 8.0 }
}
