//! Records the steps of a decoder with RMSNorm, over a batch ([`crate::tape::causal`]) or in packed rows
//! ([`crate::tape::packed`]).

use hushed_model::{Block, Norm, Step, StepId};

use super::norms::{bound_after, choice_of_layer, choice_of_norm};
use super::record::{Record, Stands, Value};
use super::{Encoder, Frames};
use crate::choices::{NormChoice, ScoresChoice};
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::norm::keeps_zeros;
use crate::ops::packed::rows::Kept;
use crate::ops::pool::Factor;
use crate::plan::public_plan::AnswerRows;
use crate::slots::Slots;
use crate::tape::NodeId;
use crate::tape::causal::attention::{CausalBlock, attention};
use crate::tape::causal::norm::RmsNorm;
use crate::tape::causal::paired::Vectors;
use crate::tape::causal::sums::{Form, Last, Sums};
use crate::tape::feed_forward::{FeedForwardBlock, feed_forward};
use crate::tape::packed::{self, Packed};
use crate::tape::record::Recorder;

impl<S: Slots> Record<'_, '_, S> {
    /// As [`Record::step`]. Between steps is the residual stream divided by a bound, or what a norm makes of it.
    pub fn causal_step(
        &mut self,
        t: &mut Recorder,
        f: &Frames,
        (number, step): (usize, &Step),
    ) -> Result<Value, FheError> {
        let (of, at) = (self.of, step.id);
        if let Block::Norm(n) = &step.block {
            let from = step.operands.first().map(|edge| edge.from).ok_or_else(|| FheError::shape(at))?;
            let &Value::Centred(stream, factor) = self.value(step, 0)? else { return Err(FheError::shape(at)) };
            t.at(at);
            let kept = t.kept(stream);
            self.values.insert(from, Value::Centred(kept, factor));
            return self.causal_norm(t, f, (number, step, n), (stream, factor));
        }
        let bound = bound_after(of.program, of.choices, number)?;
        if let Block::Add = step.block {
            let last = of.program.layers().last().is_some_and(|steps| number + 1 == steps.end);
            let made = self.causal_sum(t, f, step, (bound, last))?;
            return Ok(Value::Centred(made, bound.recip()));
        }
        let (x, node) = self.columns(step)?;
        let (gain, offset) = (x.gain.as_slice(), x.offset.as_slice());
        let x = (Vectors { node, paired: f.paired }, (gain, offset));
        let choice = choice_of_layer(of.choices, at)?;
        t.region(node);
        let made = match &step.block {
            Block::Attention(block) => {
                let sub_norm = sub_norm(at, block.sub_norm.as_ref(), choice.attention_sub_norm.as_ref())?;
                let (choice, together) = (&choice.scores, of.split.heads_together);
                attention(t, of.on, f, x, &CausalBlock { at, block, choice, sub_norm, bound, together })?
            }
            Block::FeedForward(block) => {
                let norm = sub_norm(at, block.sub_norm.as_ref(), choice.feed_forward_sub_norm.as_ref())?;
                let (form, down) = (Form::down(block), at.part("down"));
                let last = Last::divided(of.on, down, &block.down, (bound, norm.as_ref()), form)?;
                let sums = Sums::new(t, last, norm);
                let (choice, hidden) = (&choice.activation, of.split.hidden_block);
                feed_forward(t, of.on, x, &FeedForwardBlock { at, block, choice, hidden }, sums)?
            }
            _ => return Err(FheError::shape(at)),
        };
        Ok(Value::Centred(made, bound.recip()))
    }

    /// As [`Record::causal_step`] in packed rows, where vectors hold pairs of columns.
    pub fn packed_causal_step(
        &self,
        t: &mut Recorder,
        p: &Packed,
        (number, step): (usize, &Step),
    ) -> Result<Value, FheError> {
        let (of, at) = (self.of, step.id);
        if let Block::Norm(n) = &step.block {
            let &Value::Centred(stream, factor) = self.value(step, 0)? else { return Err(FheError::shape(at)) };
            return self.packed_causal_norm(t, p, (number, step, n), (stream, factor));
        }
        let bound = bound_after(of.program, of.choices, number)?;
        if let Block::Add = step.block {
            let (&Value::Centred(stream, before), &Value::Centred(y, _)) = (self.value(step, 0)?, self.value(step, 1)?)
            else {
                return Err(FheError::shape(at));
            };
            t.at(at);
            let factor = (bound * before).recip();
            let x = t.mul_vectors(stream, vec![p.numbers(move |_, _, _, _| factor)]);
            let sum = t.add(x, y);
            t.within(sum, 1.0);
            let last = of.program.layers().last().is_some_and(|steps| number + 1 == steps.end);
            let made = if last { sum } else { packed::refreshed(t, at.part("refresh"), sum) };
            return Ok(Value::Centred(made, bound.recip()));
        }
        let (x, node) = self.columns(step)?;
        let x = (node, (x.gain.as_slice(), x.offset.as_slice()));
        let choice = choice_of_layer(of.choices, at)?;
        let made = match (&step.block, &choice.scores) {
            (Block::Attention(block), ScoresChoice::Sigmoid(scores)) => {
                packed::causal::attention(t, of.on, p, (at, block, scores), x, bound)?
            }
            (Block::FeedForward(block), _) => {
                packed::layer::causal_feed_forward(t, of.on, p, (at, block, &choice.activation), x, bound)?
            }
            (Block::Attention(_), _) => return Err(FheError::absent(at)),
            _ => return Err(FheError::shape(at)),
        };
        Ok(Value::Centred(made, bound.recip()))
    }

    /// As [`Record::causal_norm`] in packed rows. The columns before the norm after the last layer are low.
    pub fn packed_causal_norm(
        &self,
        t: &mut Recorder,
        p: &Packed,
        (number, step, n): (usize, &Step, &Norm),
        (stream, factor): (NodeId, f64),
    ) -> Result<Value, FheError> {
        let (of, at) = (self.of, step.id);
        keeps_zeros(at, n)?;
        let choice = choice_of_norm(of.program, of.choices, number)?;
        t.at(at);
        let c = t.read_as(stream, choice.scale / factor);
        let inside = at.layer().is_some();
        let made = packed::layer::norm(t, of.on, p, (at, n, choice), (c, Kept::All, (inside, inside)))?;
        Ok(Value::Columns(Acts::normed(at, vec![made], n, choice)?, made))
    }

    /// A norm of the residual stream, which was multiplied by a factor.
    pub fn causal_norm(
        &self,
        t: &mut Recorder,
        f: &Frames,
        (number, step, n): (usize, &Step, &Norm),
        (stream, factor): (NodeId, f64),
    ) -> Result<Value, FheError> {
        let (of, at) = (self.of, step.id);
        let choice = choice_of_norm(of.program, of.choices, number)?;
        let stream = Vectors { node: stream, paired: f.paired };
        let made = RmsNorm { at, norm: n, choice }.record(t, of.on, stream, factor.recip())?;
        Ok(Value::Columns(Acts::normed(at, vec![made], n, choice)?, made))
    }

    /// The residual sum within `bound`, refreshed unless the answer follows.
    fn causal_sum(
        &mut self,
        t: &mut Recorder,
        f: &Frames,
        step: &Step,
        (bound, last): (f64, bool),
    ) -> Result<NodeId, FheError> {
        let (at, width) = (step.id, self.of.program.width());
        let (&Value::Centred(stream, before), &Value::Centred(block, _)) = (self.value(step, 0)?, self.value(step, 1)?)
        else {
            return Err(FheError::shape(at));
        };
        t.at(at);
        let stream = Vectors { node: stream, paired: f.paired };
        // Sums take the place of the results block by block.
        let mut sums = Vec::new();
        for vectors in stream.blocks(t) {
            let columns = match f.paired {
                true => 2 * vectors.start..width.min(2 * vectors.end),
                false => vectors.clone(),
            };
            let y = t.cut(block, columns);
            let x = stream.single(t, vectors);
            let x = t.scaled(x, vec![(bound * before).recip()]);
            let sum = t.add(x, y);
            sums.push(t.within(sum, 1.0));
        }
        let sum = t.join(&sums);
        let made = match last {
            true if f.paired => t.pair(sum, false),
            true => sum,
            false => {
                t.at(at.part("refresh"));
                Vectors::marked(t, sum, f.paired).node
            }
        };
        t.show(if f.paired { sum } else { made });
        self.shown.push((at, Stands::Columns { gain: vec![bound; width], offset: vec![0.0; width] }));
        Ok(made)
    }
}

/// The norm inside block `at`, if it has one.
fn sub_norm<'a>(
    at: StepId,
    norm: Option<&'a Norm>,
    choice: Option<&'a NormChoice>,
) -> Result<Option<RmsNorm<'a>>, FheError> {
    match (norm, choice) {
        (None, None) => Ok(None),
        (Some(norm), Some(choice)) => Ok(Some(RmsNorm { at: at.part("sub_norm"), norm, choice })),
        _ => Err(FheError::absent(at)),
    }
}

impl<S: Slots> Encoder<'_, S> {
    /// The requested rows or logits of normed columns, which are split some at a time.
    pub(super) fn causal_answer(
        &self,
        t: &mut Recorder,
        f: &Frames,
        step: &Step,
        x: &Acts<NodeId>,
        node: NodeId,
    ) -> Result<(Vec<NodeId>, usize, Factor), FheError> {
        if !f.paired {
            return self.batch_answer(t, &f.columns, step, x, node);
        }
        t.at(step.id);
        let (pairs, mut answer, mut width) = (t.count(node), Vec::new(), 0);
        let together = match self.answer {
            // A logit reads all columns.
            AnswerRows::Logits => pairs,
            _ => (f.columns.rows() / 2).max(1),
        };
        for from in (0..pairs).step_by(together.max(1)) {
            let vectors = from..pairs.min(from + together);
            let columns = 2 * vectors.start..2 * vectors.end;
            let single = Vectors { node, paired: true }.single(t, vectors);
            let part = |numbers: &[f64]| numbers.get(columns.clone()).unwrap_or_default().to_vec();
            let part = Acts { columns: vec![single], gain: part(&x.gain), offset: part(&x.offset) };
            let (vectors, numbers, _) = self.batch_answer(t, &f.columns, step, &part, single)?;
            answer.extend(vectors);
            width += numbers;
        }
        Ok((answer, width, Factor::One))
    }
}
