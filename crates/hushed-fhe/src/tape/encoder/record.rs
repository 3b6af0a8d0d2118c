//! Records the steps of a layer, one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;

use hushed_model::{Block, Norm, Pool, Program, Step, StepId, same};

use super::norms::{begins_with_norm, choice_of_norm, kappa_after};
use crate::choices::{Choices, LayerChoice, NormChoice};
use crate::error::FheError;
use crate::ops::acts::{Acts, centred};
use crate::ops::attention::Maps;
use crate::ops::norm::{frozen, has_means};
use crate::ops::packed::rows::{Kept as PackedKept, PackedRows};
use crate::plan::placement::Placement;
use crate::plan::public_plan::AnswerRows;
use crate::slots::Slots;
use crate::tape::attention::{AttentionBlock, attention};
use crate::tape::causal::paired::Vectors;
use crate::tape::causal::sums::{Last, Sums};
use crate::tape::feed_forward::{FeedForwardBlock, feed_forward, merged};
use crate::tape::layout::Columns;
use crate::tape::norm::{NormBlock, norm, residual};
use crate::tape::packed::{self, Packed, Places};
use crate::tape::record::Recorder;
use crate::tape::{Kept, NodeId, Texts};

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
    /// What a decoder is answered with.
    pub answer: AnswerRows,
}

/// How texts lie in slots.
#[derive(Clone)]
pub(crate) enum InSlots {
    /// A vector for each column.
    Batch(Arc<Texts>),
    Packed(Arc<PackedRows<()>>, Places),
}

/// What a vector of columns stands for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Stands {
    /// With a gain and an offset of each column.
    Columns { gain: Vec<f64>, offset: Vec<f64> },
    /// κ·(y − mean of y), for this κ.
    Centred(f64),
}

/// A value between two steps.
#[derive(Clone)]
pub(super) enum Value {
    Columns(Acts<NodeId>, NodeId),
    /// κ·(y − mean of y), and κ.
    Centred(NodeId, f64),
}

/// A norm's place in its program.
struct Place<'a> {
    choice: &'a NormChoice,
    /// The constant first row of its layer.
    frozen_row: Option<&'a [f64]>,
    /// Whether it ends its layer.
    ends: bool,
    /// Whether nothing but first rows is read of its result.
    only_first: bool,
    /// Whether its result is refreshed.
    refreshed: bool,
}

/// A layer, or an answer, that is being recorded.
pub(super) struct Record<'a, 'e, S: Slots> {
    pub of: &'a Encoder<'e, S>,
    /// By the number of the step that made them.
    pub values: BTreeMap<usize, Value>,
    pub shown: Vec<(StepId, Stands)>,
}

impl<'e, S: Slots> Record<'_, 'e, S> {
    pub(super) fn value(&self, step: &Step, operand: usize) -> Result<&Value, FheError> {
        let edge = step.operands.get(operand);
        let found = edge.and_then(|edge| self.values.get(&edge.from));
        found.ok_or_else(|| FheError::shape(step.id))
    }

    pub(super) fn columns(&self, step: &Step) -> Result<(&Acts<NodeId>, NodeId), FheError> {
        match self.value(step, 0)? {
            Value::Columns(x, node) => Ok((x, *node)),
            Value::Centred(..) => Err(FheError::shape(step.id)),
        }
    }

    fn choice(&self, id: StepId) -> Result<&LayerChoice, FheError> {
        let layer = id.layer().and_then(|i| self.of.choices.layers.get(i));
        layer.ok_or_else(|| FheError::absent(id))
    }

    /// κ of the norm that reads what a step adds to.
    fn kappa(&self, number: usize) -> Result<f64, FheError> {
        kappa_after(self.of.program, self.of.choices, number)
    }

    pub fn step(
        &mut self,
        t: &mut Recorder,
        layout: &Columns,
        (number, step): (usize, &Step),
    ) -> Result<Value, FheError> {
        if let Block::Norm(n) = &step.block {
            let Value::Centred(centred, _) = *self.value(step, 0)? else {
                return Err(FheError::shape(step.id));
            };
            return self.norm(t, layout, (number, step), centred, n);
        }
        let kappa = self.kappa(number)?;
        let mut made = self.block(t, layout, step, kappa)?;
        if matches!(step.block, Block::Add) && begins_with_norm(self.of.program) {
            t.at(step.id.part("refresh"));
            made = t.mark(made, 1.0);
        }
        t.show(made);
        self.shown.push((step.id, Stands::Centred(kappa)));
        Ok(Value::Centred(made, kappa))
    }

    /// As [`Record::step`] in packed rows, where the residual sum is part of the block before it.
    pub fn packed_step(&self, t: &mut Recorder, p: &Packed, (number, step): (usize, &Step)) -> Result<Value, FheError> {
        let (of, at) = (self.of, step.id);
        if let Block::Add = step.block {
            return match self.value(step, 1)? {
                Value::Centred(made, kappa) if begins_with_norm(of.program) => {
                    Ok(Value::Centred(packed::refreshed(t, at.part("refresh"), *made), *kappa))
                }
                made => Ok(made.clone()),
            };
        }
        if let Block::Norm(n) = &step.block {
            let Value::Centred(centred, _) = *self.value(step, 0)? else {
                return Err(FheError::shape(at));
            };
            return self.packed_norm(t, p, (number, step), centred, n);
        }
        let (layer, kappa) = (self.choice(at)?, self.kappa(number)?);
        let kept = match layer.frozen_row {
            Some(_) => PackedKept::Later,
            None => PackedKept::Tokens,
        };
        let (x, node) = self.columns(step)?;
        let x = (node, (x.gain.as_slice(), x.offset.as_slice()));
        let sum = of.program.steps().get(number + 1).ok_or_else(|| FheError::shape(at))?;
        let (beside, rest) = match self.value(sum, 0)? {
            Value::Columns(x, node) => (*node, packed::residual(of.on, (&x.gain, &x.offset), kappa)),
            Value::Centred(node, before) => (*node, packed::scaled(of.on, of.program.width(), kappa / before)),
        };
        let after = packed::After { kept, kappa, beside, rest };
        let made = match &step.block {
            Block::Attention(block) => {
                packed::attention::attention(t, of.on, p, (at, block, &layer.attention), x, after)?
            }
            Block::FeedForward(block) if block.gate.is_none() && block.sub_norm.is_none() => {
                packed::layer::feed_forward(t, of.on, p, (at, block, &layer.activation), x, after)?
            }
            Block::Linear(w) => packed::layer::merged(t, of.on, p, (at, w), x, after)?,
            _ => return Err(FheError::shape(at)),
        };
        Ok(Value::Centred(made, kappa))
    }

    fn block(&self, t: &mut Recorder, layout: &Columns, step: &Step, kappa: f64) -> Result<NodeId, FheError> {
        let (on, at) = (self.of.on, step.id);
        if let Block::Add = step.block {
            let Value::Centred(block, _) = *self.value(step, 1)? else {
                return Err(FheError::shape(at));
            };
            t.at(at);
            return Ok(match self.value(step, 0)? {
                Value::Columns(x, node) => residual(t, layout, x, *node, block, kappa),
                Value::Centred(node, before) => {
                    let x = t.scaled(*node, vec![kappa / before; self.of.program.width()]);
                    t.add(x, block)
                }
            });
        }
        let (x, node) = self.columns(step)?;
        let columns = (x.gain.as_slice(), x.offset.as_slice());
        let layer = self.choice(at)?;
        match &step.block {
            Block::Attention(block) => {
                let choice = &layer.attention;
                same(at, "heads of the calibration", choice.heads.len(), block.heads.count)?;
                let maps = Maps::new(on, at, columns, block, kappa)?;
                t.region(node);
                let together = self.of.split.heads_together;
                attention(t, on, layout, node, &AttentionBlock { at, block, choice, maps, together })
            }
            Block::FeedForward(block) if block.gate.is_none() && block.sub_norm.is_none() => {
                let (choice, down) = (&layer.activation, at.part("down"));
                let block = FeedForwardBlock { at, block, choice, hidden: self.of.split.hidden_block };
                t.region(node);
                let down = Last::scalar(on.map(down, || centred(on, down, &block.block.down, kappa))?);
                let sums = Sums::new(t, down, None);
                feed_forward(t, on, (Vectors { node, paired: false }, columns), &block, sums)
            }
            Block::Linear(w) => {
                t.at(at);
                let map = on.map(at, || merged(on, at, w, columns, kappa))?;
                let map = t.map(map);
                Ok(t.linear(map, 0..w.outputs, node))
            }
            _ => Err(FheError::shape(at)),
        }
    }

    /// Where the norm of a step is.
    ///
    /// # Errors
    /// As [`choice_of_norm`].
    fn place(&self, number: usize, step: &Step) -> Result<Place<'e>, FheError> {
        let (program, choices) = (self.of.program, self.of.choices);
        let layers = program.layers();
        let ends = layers.iter().any(|steps| number + 1 == steps.end);
        let after = layers.last().map_or(0, |steps| steps.end);
        let last = number + 1 >= after;
        // A classifier reads first rows alone, and packs columns that are 0 in the others.
        let pools = |step: &Step| matches!(step.block, Block::Pool(Pool::First));
        let pooled = number >= after && program.steps().iter().skip(after).any(pools);
        let layer = step.id.layer().and_then(|i| choices.layers.get(i));
        Ok(Place {
            choice: choice_of_norm(program, choices, number)?,
            frozen_row: layer.and_then(|layer| layer.frozen_row.as_deref()),
            ends,
            only_first: last && (pooled || program.classes().is_some()),
            refreshed: !last && !begins_with_norm(program),
        })
    }

    pub fn norm(
        &mut self,
        t: &mut Recorder,
        layout: &Columns,
        (number, step): (usize, &Step),
        centred: NodeId,
        n: &Norm,
    ) -> Result<Value, FheError> {
        let (of, at) = (self.of, step.id);
        let Place { choice, frozen_row, ends, only_first, refreshed } = self.place(number, step)?;
        let first = layout.mask(Kept::First(0));
        let constants = frozen_row.filter(|_| ends);
        let constants = constants.map(|row| Ok::<_, FheError>((frozen(at, row, n, choice.bound)?, first)));
        let rows = match frozen_row {
            _ if only_first => first,
            Some(_) => layout.mask(Kept::Later),
            None => layout.mask(Kept::All),
        };
        let block = NormBlock {
            at,
            norm: n,
            choice,
            rows: &rows,
            read: begins_with_norm(of.program),
            frozen: constants.transpose()?,
        };
        let mut node = norm(t, of.on, layout, centred, block)?;
        if refreshed {
            t.at(at.part("refresh"));
            node = t.mark(node, 1.0);
        }
        let x = Acts::normed(at, vec![node], n, choice)?;
        t.show(node);
        self.shown.push((at, Stands::Columns { gain: x.gain.clone(), offset: x.offset.clone() }));
        Ok(Value::Columns(x, node))
    }

    pub fn packed_norm(
        &self,
        t: &mut Recorder,
        p: &Packed,
        (number, step): (usize, &Step),
        centred: NodeId,
        n: &Norm,
    ) -> Result<Value, FheError> {
        let (of, at) = (self.of, step.id);
        has_means(at, n)?;
        let Place { choice, frozen_row, ends, only_first, refreshed } = self.place(number, step)?;
        let kept = match frozen_row {
            _ if only_first => PackedKept::First,
            Some(_) => PackedKept::Later,
            None => PackedKept::Tokens,
        };
        let fresh = begins_with_norm(of.program);
        let low = (!ends, fresh);
        let mut node = packed::layer::norm(t, of.on, p, (at, n, choice), (centred, kept, low))?;
        if let Some(row) = frozen_row.filter(|_| ends) {
            let row = frozen(at, row, n, choice.bound)?.into();
            node = p.plus(t, node, (p.places.columns, PackedKept::First), &row);
        }
        // Attention takes all the levels there are.
        let attended = of.program.steps().get(number + 1).is_some_and(|step| matches!(step.block, Block::Attention(_)));
        if ends && refreshed || fresh && attended {
            node = packed::refreshed(t, at.part("refresh"), node);
        }
        Ok(Value::Columns(Acts::normed(at, vec![node], n, choice)?, node))
    }
}
