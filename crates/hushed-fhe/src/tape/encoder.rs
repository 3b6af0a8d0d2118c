//! Records an encoder, over a batch of texts or in packed rows: what is before its layers, a layer, the answer.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hushed_model::{Block, Norm, Program, Step, StepId, same};

use super::answer::{head, pool};
use super::attention::{AttentionBlock, attention};
use super::feed_forward::{FeedForwardBlock, feed_forward, merged};
use super::layout::{Columns, hidden};
use super::norm::{NormBlock, norm, residual};
use super::packed::{self, Packed, Places};
use super::record::Recorder;
use super::{Kept, NodeId, Tape, Texts};
use crate::choices::{Choices, LayerChoice, NormChoice};
use crate::error::FheError;
use crate::ops::activation::{any_column, unit_map};
use crate::ops::acts::{Acts, centred, reading};
use crate::ops::attention::Maps;
use crate::ops::head::supported;
use crate::ops::norm::frozen;
use crate::ops::packed::rows::{Kept as PackedKept, PackedRows};
use crate::ops::pool::{Factor, factor};
use crate::packing::PackingError;
use crate::plan::placement::Placement;
use crate::slots::Slots;

/// The name of the columns that are read.
pub(crate) const COLUMNS: &str = "input";

/// A model, and what its circuit depends on beside it.
pub(crate) struct Encoder<'a, S: Slots> {
    /// Folds and fits.
    pub on: &'a S,
    pub program: &'a Program,
    pub choices: &'a Choices,
    /// How much is held at once; its levels are not read.
    pub split: &'a Placement,
    pub texts: InSlots,
    /// Whether lengths are known to the client alone.
    pub hidden: bool,
}

/// How texts lie in slots.
#[derive(Clone)]
pub(crate) enum InSlots {
    /// A vector for each column.
    Batch(Arc<Texts>),
    Packed(Arc<PackedRows<()>>, Places),
}

/// The same, with the inputs of a tape.
enum Circuits {
    Batch(Columns),
    Packed(Packed),
}

/// What a vector of columns stands for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stands {
    /// With a gain and an offset of each column.
    Columns { gain: Vec<f64>, offset: Vec<f64> },
    /// κ·(y − mean of y), for this κ.
    Centred(f64),
}

/// A recorded layer.
pub(crate) struct Layer {
    pub tape: Tape,
    /// What the nodes that the tape shows stand for.
    pub shown: Vec<(StepId, Stands)>,
}

/// A value between two steps.
#[derive(Clone)]
enum Value {
    Columns(Acts<NodeId>, NodeId),
    /// κ·(y − mean of y).
    Centred(NodeId),
}

impl<S: Slots> Encoder<'_, S> {
    /// The masks that all layers read, from the client's.
    ///
    /// # Errors
    /// None for a layout.
    pub fn masks(&self) -> Result<Tape, FheError> {
        let mut t = Recorder::new();
        match &self.texts {
            InSlots::Batch(texts) => hidden(&mut t, texts.layout)?,
            InSlots::Packed(..) => packed::hidden(&mut t),
        }
        Ok(t.finish())
    }

    /// The client's columns, as the first layer reads them. In packed rows it sent half of each part.
    pub fn start(&self) -> Tape {
        let (mut t, at) = (Recorder::new(), StepId::outside("input.refresh"));
        t.at(StepId::outside(COLUMNS));
        let sent = t.input(COLUMNS, self.vectors());
        let columns = match self.texts {
            InSlots::Packed(..) => {
                let pairs = t.read_as(sent, 2.0);
                packed::refreshed(&mut t, at, pairs)
            }
            InSlots::Batch(_) => {
                t.at(at);
                t.mark(sent, 1.0)
            }
        };
        t.output(columns);
        t.finish()
    }

    /// The vectors of the columns between two layers.
    pub fn vectors(&self) -> usize {
        match &self.texts {
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
        let circuits = self.circuits(&mut t);
        let mut record = Record { of: self, values: BTreeMap::new(), shown: Vec::new() };
        t.at(StepId::outside(COLUMNS));
        let node = t.input(COLUMNS, self.vectors());
        let x = Acts { columns: vec![node], gain: gain.to_vec(), offset: offset.to_vec() };
        let before = steps.start.checked_sub(1).ok_or_else(|| FheError::shape(StepId::outside("layer")))?;
        record.values.insert(before, Value::Columns(x, node));
        let mut last = Err(FheError::shape(StepId::outside("layer")));
        for number in steps {
            let step = self.program.steps().get(number).ok_or(PackingError::Mismatch)?;
            let made = match &circuits {
                Circuits::Batch(layout) => record.step(&mut t, layout, (number, step)),
                Circuits::Packed(p) => record.packed_step(&mut t, p, (number, step)),
            };
            let made = made.map_err(|error| error.at_step(step.id))?;
            last = match &made {
                Value::Columns(_, node) => Ok(*node),
                Value::Centred(_) => Err(FheError::shape(step.id)),
            };
            record.values.insert(number, made);
        }
        t.output(last?);
        let shown = record.shown;
        Ok(Layer { tape: t.finish(), shown })
    }

    /// The answer, from columns with this gain and offset: its circuit, the numbers of a text, and what they depend on.
    ///
    /// # Errors
    /// As [`Encoder::layer`].
    pub fn answer(&self, gain: &[f64], offset: &[f64]) -> Result<(Tape, usize, Factor), FheError> {
        let last = self.program.steps().last();
        let step = last.ok_or_else(|| FheError::shape(StepId::outside("answer")))?;
        let (mut t, at) = (Recorder::new(), step.id);
        let circuits = self.circuits(&mut t);
        t.at(at);
        let node = t.input(COLUMNS, self.vectors());
        let layout = match &circuits {
            Circuits::Batch(layout) => layout,
            Circuits::Packed(p) => {
                let (made, width) = self.packed_answer(&mut t, p, step, (node, (gain, offset)))?;
                t.output(made);
                return Ok((t.finish(), width, Factor::One));
            }
        };
        let x = Acts { columns: vec![node], gain: gain.to_vec(), offset: offset.to_vec() };
        let (vectors, width, factor) = match &step.block {
            Block::Pool(how) => {
                let factor = factor(*how, !self.hidden)?;
                (pool(&mut t, layout, at, &x, node, *how), x.width(), factor)
            }
            Block::Head(c) => {
                supported(at, c)?;
                let choice = self.choices.classifier.as_ref().ok_or_else(|| FheError::absent(at))?;
                let dense = self.on.map(at.part("dense"), || {
                    let mut map = reading(self.on, at.part("dense"), &c.dense, (gain, offset))?;
                    let numbers = map.weights.iter_mut().chain(map.bias.iter_mut().flatten());
                    numbers.for_each(|number| *number /= choice.reach);
                    Ok(map.bounded())
                })?;
                {
                    let logits = head(&mut t, layout, (at, c, choice), &dense, node);
                    (logits.map_err(|error| error.at_step(at))?, c.classes.outputs, Factor::One)
                }
            }
            _ => return Err(FheError::shape(at)),
        };
        for v in vectors {
            t.output(v);
        }
        Ok((t.finish(), width, factor))
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
                let logits = packed::answer::head(t, self.on, p, (step.id, c, choice), x);
                Ok((logits.map_err(|error| error.at_step(step.id))?, c.classes.outputs))
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
        let Circuits::Batch(layout) = self.circuits(&mut t) else {
            return Err(FheError::shape(step.id));
        };
        t.at(step.id);
        let centred = t.input(COLUMNS, n.width);
        let record = Record { of: self, values: BTreeMap::new(), shown: Vec::new() };
        let (_, node) = record.norm(&mut t, &layout, (number, step), centred, n)?;
        t.output(node);
        Ok(t.finish())
    }

    fn circuits(&self, t: &mut Recorder) -> Circuits {
        match &self.texts {
            InSlots::Batch(texts) => {
                let baby = [self.split.scores_baby, self.split.attend_baby];
                Circuits::Batch(Columns::new(t, texts, self.hidden, baby))
            }
            InSlots::Packed(rows, places) => Circuits::Packed(Packed::new(t, rows, *places, self.hidden)),
        }
    }

    fn choice(&self, id: StepId) -> Result<&LayerChoice, FheError> {
        let layer = id.layer().and_then(|i| self.choices.layers.get(i));
        layer.ok_or_else(|| FheError::absent(id))
    }

    /// The choice of the norm that a step of a post-norm layer is before, and whether it is the second of the layer.
    ///
    /// # Errors
    /// A program of another shape, choices of another model.
    pub fn norm_of(&self, number: usize) -> Result<(bool, &NormChoice), FheError> {
        let steps = self.program.steps();
        let mut at = number;
        // Through the sum back to the block.
        while let Some(Step { block: block @ (Block::Norm(_) | Block::Add), operands, .. }) = steps.get(at) {
            let operand = operands.get(usize::from(matches!(block, Block::Add)));
            at = operand.map_or(usize::MAX, |edge| edge.from);
        }
        let id = steps.get(number).map_or(StepId::outside("layer"), |step| step.id);
        let layer = self.choice(id)?;
        match steps.get(at).map(|step| &step.block) {
            Some(Block::Attention(_)) => Ok((false, &layer.attention_norm)),
            Some(Block::FeedForward(_) | Block::Linear(_)) => Ok((true, &layer.feed_forward_norm)),
            _ => Err(FheError::shape(id)),
        }
    }
}

/// A layer that is being recorded.
struct Record<'a, 'e, S: Slots> {
    of: &'a Encoder<'e, S>,
    /// By the number of the step that made them.
    values: BTreeMap<usize, Value>,
    shown: Vec<(StepId, Stands)>,
}

impl<S: Slots> Record<'_, '_, S> {
    fn value(&self, step: &Step, operand: usize) -> Result<&Value, FheError> {
        let edge = step.operands.get(operand);
        let found = edge.and_then(|edge| self.values.get(&edge.from));
        found.ok_or_else(|| FheError::shape(step.id))
    }

    fn columns(&self, step: &Step) -> Result<(&Acts<NodeId>, NodeId), FheError> {
        match self.value(step, 0)? {
            Value::Columns(x, node) => Ok((x, *node)),
            Value::Centred(_) => Err(FheError::shape(step.id)),
        }
    }

    fn step(&mut self, t: &mut Recorder, layout: &Columns, (number, step): (usize, &Step)) -> Result<Value, FheError> {
        if let Block::Norm(n) = &step.block {
            let Value::Centred(centred) = *self.value(step, 0)? else {
                return Err(FheError::shape(step.id));
            };
            let (x, node) = self.norm(t, layout, (number, step), centred, n)?;
            let stands = Stands::Columns { gain: x.gain.clone(), offset: x.offset.clone() };
            t.show(node);
            self.shown.push((step.id, stands));
            return Ok(Value::Columns(x, node));
        }
        let (_, choice) = self.of.norm_of(number)?;
        let made = self.block(t, layout, step, choice)?;
        t.show(made);
        self.shown.push((step.id, Stands::Centred(choice.scale)));
        Ok(Value::Centred(made))
    }

    /// As [`Record::step`] in packed rows, where the residual sum is part of the block before it.
    fn packed_step(&self, t: &mut Recorder, p: &Packed, (number, step): (usize, &Step)) -> Result<Value, FheError> {
        let (of, at) = (self.of, step.id);
        let (layer, (second, choice)) = (of.choice(at)?, of.norm_of(number)?);
        let mut kept = match layer.frozen_row {
            Some(_) => PackedKept::Later,
            None => PackedKept::Tokens,
        };
        if let Block::Add = step.block {
            return self.value(step, 1).cloned();
        }
        if let Block::Norm(n) = &step.block {
            let Value::Centred(centred) = *self.value(step, 0)? else {
                return Err(FheError::shape(at));
            };
            let last = second && of.program.layers().last().is_some_and(|steps| number + 1 == steps.end);
            if last && of.choices.classifier.is_some() {
                // A head reads first rows only: others may be outside its range.
                kept = PackedKept::First;
            }
            let mut node = packed::layer::norm(t, of.on, p, (at, n, choice), (centred, kept, !second))?;
            if let Some(row) = layer.frozen_row.as_deref().filter(|_| second) {
                let row = frozen(at, row, n, choice.bound)?.into();
                node = p.plus(t, node, (p.places.columns, PackedKept::First), &row);
            }
            if second && !last {
                node = packed::refreshed(t, at.part("refresh"), node);
            }
            return Ok(Value::Columns(Acts::normed(at, vec![node], n, choice)?, node));
        }
        let (x, node) = self.columns(step)?;
        let x = (node, (x.gain.as_slice(), x.offset.as_slice()));
        let after = (kept, choice.scale);
        Ok(Value::Centred(match &step.block {
            Block::Attention(block) => {
                packed::attention::attention(t, of.on, p, (at, block, &layer.attention), x, after)?
            }
            Block::FeedForward(block) if block.gate.is_none() && block.sub_norm.is_none() => {
                packed::layer::feed_forward(t, of.on, p, (at, block, &layer.activation), x, after)?
            }
            Block::Linear(w) => packed::layer::merged(t, of.on, p, (at, w), x, after)?,
            _ => return Err(FheError::shape(at)),
        }))
    }

    fn block(&self, t: &mut Recorder, layout: &Columns, step: &Step, after: &NormChoice) -> Result<NodeId, FheError> {
        let (on, at) = (self.of.on, step.id);
        let (x, node) = self.columns(step)?;
        let columns = (x.gain.as_slice(), x.offset.as_slice());
        let layer = self.of.choice(at)?;
        match &step.block {
            Block::Attention(block) => {
                let choice = &layer.attention;
                same(at, "heads of the calibration", choice.heads.len(), block.heads.count)?;
                let maps = Maps::new(on, at, columns, block, after.scale)?;
                t.region(node);
                let together = self.of.split.heads_together;
                attention(t, on, layout, node, &AttentionBlock { at, block, choice, maps, together })
            }
            Block::FeedForward(block) if block.gate.is_none() && block.sub_norm.is_none() => {
                let choice = &layer.activation;
                same(at, "intervals", choice.columns.len(), block.up.outputs)?;
                same(at, "hidden columns", block.down.inputs, block.up.outputs)?;
                let (up, down, polynomials) = (at.part("up"), at.part("down"), on.polynomials());
                // A fit that is refused is refused for the step.
                any_column(on, block.activation, &choice.columns, choice.degree, &polynomials)?;
                let made = FeedForwardBlock {
                    at,
                    block,
                    choice,
                    up: on.map(up, || unit_map(reading(on, up, &block.up, columns)?, &choice.columns))?,
                    down: on.map(down, || centred(on, down, &block.down, after.scale))?,
                    hidden: self.of.split.hidden_block,
                    polynomials,
                };
                t.region(node);
                Ok(feed_forward(t, node, &made).ok_or(PackingError::Mismatch)?)
            }
            Block::Linear(w) => {
                t.at(at);
                let map = on.map(at, || merged(on, at, w, columns, after.scale))?;
                let map = t.map(map);
                Ok(t.linear(map, 0..w.outputs, node))
            }
            Block::Add => {
                let Value::Centred(block) = *self.value(step, 1)? else {
                    return Err(FheError::shape(at));
                };
                t.at(at);
                Ok(residual(t, layout, x, node, block, after.scale))
            }
            _ => Err(FheError::shape(at)),
        }
    }

    fn norm(
        &self,
        t: &mut Recorder,
        layout: &Columns,
        (number, step): (usize, &Step),
        centred: NodeId,
        n: &Norm,
    ) -> Result<(Acts<NodeId>, NodeId), FheError> {
        let (of, at) = (self.of, step.id);
        let (layer, (second, choice)) = (of.choice(at)?, of.norm_of(number)?);
        let last = second && of.program.layers().last().is_some_and(|steps| number + 1 == steps.end);
        let row = layer.frozen_row.as_deref().filter(|_| second);
        let first = layout.mask(Kept::First(0));
        let frozen = row.map(|row| Ok::<_, FheError>((frozen(at, row, n, choice.bound)?, first)));
        let rows = match layer.frozen_row {
            // A classifier reads first rows alone, and packs columns that are 0 in the others.
            _ if last && of.choices.classifier.is_some() => first,
            Some(_) => layout.mask(Kept::Later),
            None => layout.mask(Kept::All),
        };
        let block = NormBlock { at, norm: n, choice, rows: &rows, frozen: frozen.transpose()? };
        let mut node = norm(t, of.on, layout, centred, block)?;
        if !last {
            t.at(at.part("refresh"));
            node = t.mark(node, 1.0);
        }
        Ok((Acts::normed(at, vec![node], n, choice)?, node))
    }
}
