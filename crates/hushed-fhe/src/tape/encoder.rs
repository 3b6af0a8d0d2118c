//! Records a model, over a batch of texts or in packed rows: what is before its layers, a layer, the answer.
//!
//! With norms after the blocks, the columns between two layers are those of a norm. With norms before them
//! ([`begins_with_norm`]) they are the residual stream as the next norm reads it, κ·(x − mean of x): nothing else reads
//! it, and a norm ignores the mean. So either way a half of a layer is a norm and a block between two refreshes. An
//! RMSNorm ignores no mean: before it they are x/bound ([`super::causal`], and [`super::packed`] for packed rows).

mod decoder;
mod norms;
mod record;

use std::collections::BTreeMap;
use std::ops::Range;

use hushed_model::{Block, Pool, Step, StepId};

use super::answer::{classes, head, last_rows, logits, pool, rows};
use super::causal::Frames;
use super::causal::paired::Vectors;
use super::layout::{Columns, Layout, hidden};
use super::packed::{self, Packed};
use super::record::Recorder;
use super::{NodeId, Tape};
use crate::error::FheError;
use crate::ops::acts::{Acts, reading};
use crate::ops::head::supported;
use crate::ops::packed::rows::Kept as PackedKept;
use crate::ops::pool::{Factor, factor};
use crate::packing::PackingError;
use crate::plan::placement::Placement;
use crate::plan::public_plan::AnswerRows;
use crate::slots::Slots;
pub(crate) use norms::{begins_with_norm, bound_after, choice_of_norm, has_rms_norms, kappa_after, least_upload};
pub(crate) use record::{Encoder, InSlots, Stands};
use record::{Record, Value};

/// The name of the columns that are read.
pub(crate) const COLUMNS: &str = "input";

/// How texts lie in slots, with the inputs of a tape.
enum Circuits {
    Batch(Columns),
    Causal(Frames),
    Packed(Packed),
}

/// A recorded layer, or what is after the last one.
pub(crate) struct Layer {
    pub tape: Tape,
    /// What the nodes that the tape shows stand for.
    pub shown: Vec<(StepId, Stands)>,
}

/// A recorded answer.
pub(crate) struct Answer {
    pub circuit: Layer,
    /// Numbers of a text.
    pub width: usize,
    /// What they depend on.
    pub factor: Factor,
}

impl<S: Slots> Encoder<'_, S> {
    /// The masks that all layers read, from the client's.
    ///
    /// # Errors
    /// None for a layout.
    pub fn masks(&self) -> Result<Tape, FheError> {
        let mut t = Recorder::new();
        match &self.texts {
            InSlots::Batch(texts) => hidden(&mut t, texts.layout, self.program.vocabulary().is_some())?,
            InSlots::Packed(..) => packed::hidden(&mut t),
        }
        Ok(t.finish())
    }

    /// The client's columns, divided by `bound`, as the first layer reads them. In packed rows it sent half of each
    /// part.
    ///
    /// # Errors
    /// Choices of another model.
    pub fn start(&self, bound: f64) -> Result<Tape, FheError> {
        let (mut t, at) = (Recorder::new(), StepId::outside("input.refresh"));
        t.at(StepId::outside(COLUMNS));
        let width = self.program.width();
        let sent = match &self.texts {
            InSlots::Batch(_) => t.input(COLUMNS, width),
            InSlots::Packed(..) => t.input(COLUMNS, self.vectors()),
        };
        let centred = match begins_with_norm(self.program) {
            true => Some(kappa_after(self.program, self.choices, self.program.before_layers().end)? * bound),
            false => None,
        };
        let columns = match &self.texts {
            InSlots::Packed(rows, places) => {
                let mut pairs = t.read_as(sent, 2.0);
                if let Some(kappa) = centred {
                    let map = packed::residual(self.on, (&vec![1.0; width], &vec![0.0; width]), kappa);
                    let p = Packed::new(&mut t, rows, *places, false);
                    pairs = p.mapped(&mut t, pairs, map)?;
                }
                packed::refreshed(&mut t, at, pairs)
            }
            InSlots::Batch(texts) => {
                let columns = match centred {
                    Some(kappa) => Columns::bare(texts).centred(&mut t, sent, &vec![kappa; width]),
                    None => sent,
                };
                t.at(at);
                Vectors::marked(&mut t, columns, self.split.pairs).node
            }
        };
        t.output(columns);
        Ok(t.finish())
    }

    /// The vectors of the columns between two layers.
    pub fn vectors(&self) -> usize {
        match &self.texts {
            InSlots::Batch(_) if self.split.pairs => self.program.width() / 2,
            InSlots::Batch(_) => self.program.width(),
            InSlots::Packed(_, places) => places.columns.vectors(),
        }
    }

    /// The steps of a layer, from columns with this gain and offset.
    ///
    /// # Errors
    /// Programs and choices without a circuit, functions without a fit.
    pub fn layer(&self, steps: Range<usize>, (gain, offset): (&[f64], &[f64])) -> Result<Layer, FheError> {
        let mut t = Recorder::new();
        let circuits = self.circuits(&mut t, true);
        let mut record = Record { of: self, values: BTreeMap::new(), shown: Vec::new() };
        t.at(StepId::outside(COLUMNS));
        let before = steps.start.checked_sub(1).ok_or_else(|| FheError::shape(StepId::outside("layer")))?;
        record.values.insert(before, self.read(&mut t, before, (gain, offset))?);
        let mut last = Err(FheError::shape(StepId::outside("layer")));
        for number in steps {
            let step = self.program.steps().get(number).ok_or(PackingError::Mismatch)?;
            let made = match &circuits {
                Circuits::Batch(layout) => record.step(&mut t, layout, (number, step)),
                Circuits::Causal(f) => record.causal_step(&mut t, f, (number, step)),
                Circuits::Packed(p) if has_rms_norms(self.program) => {
                    record.packed_causal_step(&mut t, p, (number, step))
                }
                Circuits::Packed(p) => record.packed_step(&mut t, p, (number, step)),
            };
            let made = made.map_err(|error| error.at_step(step.id))?;
            last = match &made {
                Value::Columns(_, node) | Value::Centred(node, _) => Ok(*node),
            };
            record.values.insert(number, made);
        }
        t.output(last?);
        let shown = record.shown;
        Ok(Layer { tape: t.finish(), shown })
    }

    /// The columns that a layer or the answer reads: the result of step `before`.
    fn read(&self, t: &mut Recorder, before: usize, (gain, offset): (&[f64], &[f64])) -> Result<Value, FheError> {
        let node = t.input(COLUMNS, self.vectors());
        Ok(match begins_with_norm(self.program) {
            true => Value::Centred(node, kappa_after(self.program, self.choices, before + 1)?),
            false if has_rms_norms(self.program) => Value::Centred(node, gain.first().copied().unwrap_or(1.0).recip()),
            false => Value::Columns(Acts { columns: vec![node], gain: gain.to_vec(), offset: offset.to_vec() }, node),
        })
    }

    /// The answer, from columns with this gain and offset: its circuit, the numbers of a text, and what they depend on.
    ///
    /// # Errors
    /// As [`Encoder::layer`].
    pub fn answer(&self, gain: &[f64], offset: &[f64]) -> Result<Answer, FheError> {
        let refused = || FheError::shape(StepId::outside("answer"));
        let after = self.program.layers().last().map_or(0, |steps| steps.end);
        let steps = self.program.steps();
        let last = steps.last().ok_or_else(refused)?;
        let mut t = Recorder::new();
        let circuits = self.circuits(&mut t, false);
        t.at(last.id);
        let mut record = Record { of: self, values: BTreeMap::new(), shown: Vec::new() };
        let mut x = self.read(&mut t, after.checked_sub(1).ok_or_else(refused)?, (gain, offset))?;
        for (number, step) in steps.iter().enumerate().take(steps.len() - 1).skip(after) {
            let made = match (&step.block, &x) {
                // A norm keeps the rows that are read afterwards.
                (Block::Pool(Pool::First | Pool::Last), _) => continue,
                (Block::Norm(n), &Value::Centred(centred, factor)) => match &circuits {
                    Circuits::Batch(layout) => record.norm(&mut t, layout, (number, step), centred, n),
                    Circuits::Causal(f) => record.causal_norm(&mut t, f, (number, step, n), (centred, factor)),
                    Circuits::Packed(p) if has_rms_norms(self.program) => {
                        record.packed_causal_norm(&mut t, p, (number, step, n), (centred, factor))
                    }
                    Circuits::Packed(p) => record.packed_norm(&mut t, p, (number, step), centred, n),
                },
                _ => Err(FheError::shape(step.id)),
            };
            x = made.map_err(|error| error.at_step(step.id))?;
        }
        let Value::Columns(x, node) = x else { return Err(refused()) };
        let (vectors, width, factor) = match &circuits {
            Circuits::Batch(layout) => self.batch_answer(&mut t, layout, last, &x, node),
            Circuits::Causal(f) => self.causal_answer(&mut t, f, last, &x, node),
            Circuits::Packed(p) => {
                let made = self.packed_answer(&mut t, p, last, (node, (&x.gain, &x.offset)));
                made.map(|(made, width)| (vec![made], width, Factor::One))
            }
        }
        .map_err(|error| error.at_step(last.id))?;
        for v in vectors {
            t.output(v);
        }
        let shown = record.shown;
        Ok(Answer { circuit: Layer { tape: t.finish(), shown }, width, factor })
    }

    pub(super) fn batch_answer(
        &self,
        t: &mut Recorder,
        layout: &Columns,
        step: &Step,
        x: &Acts<NodeId>,
        node: NodeId,
    ) -> Result<(Vec<NodeId>, usize, Factor), FheError> {
        let (at, columns) = (step.id, (x.gain.as_slice(), x.offset.as_slice()));
        match &step.block {
            Block::Pool(how) => {
                let factor = factor(*how, !self.hidden)?;
                Ok((pool(t, layout, at, x, node, *how), x.width(), factor))
            }
            Block::Head(c) => {
                supported(at, c)?;
                let choice = self.choices.classifier.as_ref().ok_or_else(|| FheError::absent(at))?;
                let dense = self.on.map(at.part("dense"), || {
                    let mut map = reading(self.on, at.part("dense"), &c.dense, columns)?;
                    let numbers = map.weights.iter_mut().chain(map.bias.iter_mut().flatten());
                    numbers.for_each(|number| *number /= choice.reach);
                    Ok(map.bounded())
                })?;
                Ok((head(t, layout, (at, c, choice), &dense, node)?, c.classes.outputs, Factor::One))
            }
            Block::Classes(w) => {
                let map = self.on.map(at, || reading(self.on, at, w, columns))?;
                Ok((classes(t, layout, at, &map, node), w.outputs, Factor::One))
            }
            Block::Vocabulary(w) => {
                let (answer, width) = match self.answer {
                    AnswerRows::Last => (last_rows(t, layout, at, x, node), x.width()),
                    AnswerRows::Rows => (vec![rows(t, layout, at, x, node)], x.width()),
                    AnswerRows::Logits => {
                        let map = self.on.map(at, || reading(self.on, at, w, columns))?;
                        (logits(t, layout, at, &map, node), w.outputs)
                    }
                };
                Ok((answer, width, Factor::One))
            }
            _ => Err(FheError::shape(at)),
        }
    }

    fn packed_answer(
        &self,
        t: &mut Recorder,
        p: &Packed,
        step: &Step,
        x: packed::attention::Read<'_>,
    ) -> Result<(NodeId, usize), FheError> {
        match &step.block {
            Block::Pool(how) => {
                // The server divides, by a plaintext or an encrypted number.
                factor(*how, true)?;
                Ok((packed::answer::pool(t, p, step.id, x, *how), self.program.width()))
            }
            Block::Head(c) => {
                supported(step.id, c)?;
                let choice = self.choices.classifier.as_ref().ok_or_else(|| FheError::absent(step.id))?;
                Ok((packed::answer::head(t, self.on, p, (step.id, c, choice), x)?, c.classes.outputs))
            }
            Block::Classes(w) => Ok((packed::answer::classes(t, self.on, p, (step.id, w), x)?, w.outputs)),
            Block::Vocabulary(_) => {
                let kept = match self.answer {
                    AnswerRows::Last => PackedKept::Last,
                    AnswerRows::Rows => PackedKept::All,
                    AnswerRows::Logits => return Err(FheError::shape(step.id)),
                };
                Ok((packed::answer::rows(t, p, step.id, x, kept), self.program.width()))
            }
            _ => Err(FheError::shape(step.id)),
        }
    }

    /// The norm with this number alone, from centred columns.
    #[cfg(test)]
    pub fn norm_alone(&self, number: usize) -> Result<Tape, FheError> {
        let step = &self.program.steps()[number];
        let Block::Norm(n) = &step.block else {
            return Err(FheError::shape(step.id));
        };
        let mut t = Recorder::new();
        let Circuits::Batch(layout) = self.circuits(&mut t, true) else {
            return Err(FheError::shape(step.id));
        };
        t.at(step.id);
        let centred = t.input(COLUMNS, n.width);
        let mut record = Record { of: self, values: BTreeMap::new(), shown: Vec::new() };
        let (Value::Columns(_, node) | Value::Centred(node, _)) =
            record.norm(&mut t, &layout, (number, step), centred, n)?;
        t.output(node);
        Ok(t.finish())
    }

    /// `layer`: whether a layer follows, which reads what the client sent beside its columns.
    fn circuits(&self, t: &mut Recorder, layer: bool) -> Circuits {
        match &self.texts {
            InSlots::Batch(texts) if has_rms_norms(self.program) => {
                let Placement { scores_baby, pairs, .. } = *self.split;
                Circuits::Causal(Frames::new(t, texts, (scores_baby, pairs), self.hidden && layer))
            }
            InSlots::Batch(texts) => {
                let baby = [self.split.scores_baby, self.split.attend_baby];
                Circuits::Batch(match self.program.vocabulary() {
                    Some(_) => Columns::causal(t, texts, baby),
                    None => Columns::new(t, texts, self.hidden, baby),
                })
            }
            InSlots::Packed(rows, places) => Circuits::Packed(Packed::new(t, rows, *places, self.hidden)),
        }
    }
}
