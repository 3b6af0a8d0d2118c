//! Records an encoder over a batch of texts.

use std::sync::Arc;

use hushed_lower::LinearMap;
use hushed_model::{Block, Norm, Program, Step, StepId, same};

use super::attention::{AttentionBlock, attention};
use super::feed_forward::{FeedForwardBlock, feed_forward};
use super::layout::Columns;
use super::norm::{Frozen, NormBlock, norm, residual};
use super::pool::pool;
use super::record::Recorder;
use super::{NodeId, RowMask, Tape};
use crate::choices::{Choices, LayerChoice, NormChoice};
use crate::error::FheError;
use crate::ops::activation::unit_map;
use crate::ops::acts::{Acts, centred, reading};
use crate::ops::attention::Maps;
use crate::packing::{Interleave, PackingError};
use crate::pass::frozen;
use crate::plan::placement::Placement;
use crate::simulate::Simulator;
use crate::slots::Slots;

/// The name of the client's columns.
pub(crate) const COLUMNS: &str = "input";

/// A model, and what its circuit depends on beside it.
pub(crate) struct Encoder<'a> {
    /// Folds and fits.
    pub on: &'a Simulator,
    pub program: &'a Program,
    pub choices: &'a Choices,
    /// How much is held at once; its levels are not read.
    pub split: &'a Placement,
    pub layout: Interleave,
    /// Of each text, if the server knows them.
    pub lengths: Option<Vec<usize>>,
    /// The bound on the client's numbers.
    pub bound: f64,
}

/// A value between two steps.
#[derive(Clone)]
enum Value {
    /// Columns, and where they may be refreshed until they are.
    Columns { x: Acts<NodeId>, node: NodeId, mark: Option<StepId> },
    /// κ·(y − mean of y).
    Centred(NodeId),
}

impl Encoder<'_> {
    /// The circuit of the whole model.
    ///
    /// # Errors
    /// Programs and choices without a circuit, functions without a fit.
    pub fn record(&self) -> Result<Tape, FheError> {
        let (mut t, baby) = (Recorder::new(), [self.split.scores_baby, self.split.attend_baby]);
        let layout = match &self.lengths {
            Some(lengths) => Columns::public(self.layout, lengths.clone(), baby),
            None => Columns::private(&mut t, self.layout, baby),
        };
        t.at(StepId::outside(COLUMNS));
        let (width, first) = (self.program.width(), self.program.before_layers().end);
        let node = t.input(COLUMNS, width);
        let x = Acts::over(vec![node], width, self.bound);
        let mut values: Vec<Option<Value>> = vec![None; first.max(1)];
        if let Some(last) = values.last_mut() {
            *last = Some(Value::Columns { x, node, mark: Some(StepId::outside("input.refresh")) });
        }
        for (number, step) in self.program.steps().iter().enumerate().skip(first) {
            if let Block::Pool(how) = step.block {
                let Value::Columns { x, node, .. } = value(&values, step, 0)? else {
                    return Err(no_circuit(step.id));
                };
                for packed in pool(&mut t, &layout, step.id, &x, node, how)? {
                    t.output(packed);
                }
                return Ok(t.finish());
            }
            let made = self.step(&mut t, &layout, &mut values, (number, step))?;
            values.push(Some(made));
        }
        Err(no_circuit(StepId::outside("answer")))
    }

    fn step(
        &self,
        t: &mut Recorder,
        layout: &Columns,
        values: &mut [Option<Value>],
        (number, step): (usize, &Step),
    ) -> Result<Value, FheError> {
        let (on, at) = (self.on, step.id);
        if let Block::Norm(n) = &step.block {
            let Value::Centred(centred) = value(values, step, 0)? else {
                return Err(no_circuit(at));
            };
            return self.norm(t, layout, (number, step), centred, n);
        }
        let (_, choice) = self.after(number)?;
        if matches!(step.block, Block::Add) {
            let (Value::Columns { x, node, .. }, Value::Centred(block)) =
                (value(values, step, 0)?, value(values, step, 1)?)
            else {
                return Err(no_circuit(at));
            };
            t.at(at);
            return Ok(Value::Centred(residual(t, layout, &x, node, block, choice.scale)));
        }
        let (x, node) = refreshable(t, values, step)?;
        let columns = (x.gain.as_slice(), x.offset.as_slice());
        let layer = self.layer(at)?;
        let made = match &step.block {
            Block::Attention(block) => {
                let choice = &layer.attention;
                same(at, "heads of the calibration", choice.heads.len(), block.heads.count)?;
                let maps = Maps::new(on, at, columns, block, layer.attention_norm.scale)?;
                let together = self.split.heads_together;
                attention(t, on, layout, node, &AttentionBlock { at, block, choice, maps, together })?
            }
            Block::FeedForward(block) if block.gate.is_none() && block.sub_norm.is_none() => {
                let up = unit_map(reading(on, at.part("up"), &block.up, columns)?, &layer.activation.columns)?;
                let down = centred(on, at.part("down"), &block.down, choice.scale)?;
                let made = FeedForwardBlock {
                    at,
                    block,
                    choice: &layer.activation,
                    up: Arc::new(up),
                    down: Arc::new(down),
                    hidden: self.split.hidden_block,
                    polynomials: on.polynomials(),
                };
                feed_forward(t, node, &made).ok_or(PackingError::Mismatch)?
            }
            Block::Linear(w) => {
                t.at(at);
                let map = LinearMap::of(at, w)?.reading(columns.0, columns.1);
                let map = t.map(map.centred().times(choice.scale).bounded());
                t.linear(map, 0..w.outputs, node)
            }
            _ => return Err(no_circuit(at)),
        };
        Ok(Value::Centred(made))
    }

    fn norm(
        &self,
        t: &mut Recorder,
        layout: &Columns,
        (number, step): (usize, &Step),
        centred: NodeId,
        n: &Norm,
    ) -> Result<Value, FheError> {
        let (layer, (second, choice)) = (self.layer(step.id)?, self.after(number)?);
        let frozen_row = layer.frozen_row.as_deref().filter(|_| second);
        let constant = match frozen_row {
            Some(_) if self.lengths.is_none() => return Err(no_circuit(step.id)),
            Some(row) => {
                let numbers = frozen(step.id, row, n, choice.bound)?;
                match layout.tokens(t, Some(&|row| row == 0)) {
                    RowMask::Public(rows) => Some(Frozen { numbers, rows }),
                    RowMask::Private(_) => None,
                }
            }
            None => None,
        };
        let later: &dyn Fn(usize) -> bool = &|row| row > 0;
        let rows = layout.tokens(t, layer.frozen_row.is_some().then_some(later));
        let node = norm(
            t,
            self.on,
            layout,
            centred,
            NormBlock { at: step.id, norm: n, choice, rows: &rows, frozen: constant },
        )?;
        let x = Acts::normed(step.id, vec![node], n, choice)?;
        Ok(Value::Columns { x, node, mark: Some(step.id.part("refresh")) })
    }

    fn layer(&self, id: StepId) -> Result<&LayerChoice, FheError> {
        let layer = id.layer().and_then(|i| self.choices.layers.get(i));
        layer.ok_or_else(|| no_circuit(id))
    }

    /// The choice of the norm that a step of a post-norm layer is before, and whether it is the second of the layer.
    fn after(&self, number: usize) -> Result<(bool, &NormChoice), FheError> {
        let steps = self.program.steps();
        let mut at = number;
        // Through the sum back to the block.
        while let Some(Step { block: block @ (Block::Norm(_) | Block::Add), operands, .. }) = steps.get(at) {
            let operand = operands.get(usize::from(matches!(block, Block::Add)));
            at = operand.map_or(usize::MAX, |edge| edge.from);
        }
        let id = steps.get(number).map_or(StepId::outside("layer"), |step| step.id);
        let layer = self.layer(id)?;
        match steps.get(at).map(|step| &step.block) {
            Some(Block::Attention(_)) => Ok((false, &layer.attention_norm)),
            Some(Block::FeedForward(_) | Block::Linear(_)) => Ok((true, &layer.feed_forward_norm)),
            _ => Err(no_circuit(id)),
        }
    }
}

fn value(values: &[Option<Value>], step: &Step, operand: usize) -> Result<Value, FheError> {
    let edge = step.operands.get(operand);
    let found = edge.and_then(|edge| values.get(edge.from).cloned().flatten());
    found.ok_or_else(|| no_circuit(step.id))
}

/// The columns that a block reads, where they may be refreshed; whoever reads them later reads the same.
fn refreshable(
    t: &mut Recorder,
    values: &mut [Option<Value>],
    step: &Step,
) -> Result<(Acts<NodeId>, NodeId), FheError> {
    let edge = step.operands.first().map(|edge| edge.from);
    let found = edge.and_then(|from| values.get_mut(from)).and_then(Option::as_mut);
    let Some(Value::Columns { x, node, mark }) = found else {
        return Err(no_circuit(step.id));
    };
    if let Some(mark) = mark.take() {
        t.at(mark);
        *node = t.mark(*node, 1.0);
    }
    Ok((x.clone(), *node))
}

fn no_circuit(at: StepId) -> FheError {
    FheError::Unsupported { what: format!("{at}: a program of this shape"), remedy: "record what has a circuit" }
}
