//! A program in packed rows ([`crate::packing::Layout`]), layer by layer: one text, or a few.
//!
//! | step | result |
//! |---|---|
//! | attention with its sum | κ·(y + x − mean) in pairs, no level left |
//! | norm | x̂/bound, one level below the refresh before it |
//! | feed-forward with its sum | κ·(y + x − mean) in pairs |
//! | norm | x̂/bound, refreshed to the level at which attention begins; not after the last layer |
//! | pooling, or a classifier's head | the first row of each text |

use std::ops::Range;
use std::sync::Arc;

use hushed_ckks::Complex64;
use hushed_model::{Attention, Block, Norm, Program, Step, StepId, same};

use super::forward::ForwardPass;
use super::shape::{no_layer, supported};
use crate::choices::{Choices, LayerChoice};
use crate::error::FheError;
use crate::ledger::{MAP, NORM, PACKED_VARIANCE};
use crate::ops::acts::Acts;
use crate::ops::after::After;
use crate::ops::folded::Polynomials;
use crate::ops::levels::{above_by, below};
use crate::ops::norm::frozen;
use crate::ops::packed::attention::{PackedAttention, SCORES, attention, heads_of};
use crate::ops::packed::feed_forward::PackedFeedForward;
use crate::ops::packed::head::head;
use crate::ops::packed::lifted;
use crate::ops::packed::merged::merged;
use crate::ops::packed::norm::{PackedNorm, acts};
use crate::ops::packed::pool::pool;
use crate::ops::packed::rows::{Kept, PackedRows};
use crate::ops::pool::Pooled;
use crate::packing::{Layout, Spread};
use crate::plan::placement::Placement;
use crate::slots::Slots;

/// Runs a program over vectors of pairs in packed rows.
pub struct PackedPass<'a, S: Slots> {
    on: &'a S,
    program: &'a Program,
    layers: Vec<Range<usize>>,
    choices: &'a Choices,
    placement: Placement,
    rows: PackedRows<S::Value>,
    columns: Spread,
    answers: Spread,
    input_bound: f64,
    polynomials: Arc<Polynomials>,
}

/// The steps of a layer.
struct Layer<'a> {
    attention: (StepId, &'a Attention),
    attention_norm: (StepId, &'a Norm),
    feed_forward: (StepId, &'a Block),
    feed_forward_norm: (StepId, &'a Norm),
    choice: &'a LayerChoice,
}

impl<'a, S: Slots> PackedPass<'a, S> {
    /// A pass over texts with these rows; an encrypted mask is refreshed if it has fewer primes than statistics. The
    /// client divided its columns by `input_bound`, and by 2.
    ///
    /// # Errors
    /// [`FheError::Unsupported`] for a program of another shape, and for one whose heads do not fit the layout: if the
    /// pairs of columns per head are not a power of two, or more than rows, or vectors do not hold equally many heads.
    pub fn new(
        on: &'a S,
        program: &'a Program,
        choices: &'a Choices,
        placement: Placement,
        mut rows: PackedRows<S::Value>,
        input_bound: f64,
    ) -> Result<Self, FheError> {
        let layers = program.layers();
        let mut columns = rows.layout().spread(program.width(), 1)?;
        let mut all = None;
        for layer in &layers {
            supported(program, layer.clone())?;
            let step = program.steps().get(layer.start);
            if let Some((id, Block::Attention(a))) = step.map(|s| (s.id, &s.block)) {
                let layout = rows.layout();
                let unfit = || unfit(id, a, layout);
                let heads = heads_of(a, layout).map_err(|_| unfit())?;
                let spread = layout.spread(program.width(), heads.pairs());
                columns = spread.ok().filter(Spread::is_even).ok_or_else(unfit)?;
                // Masks of keys are made for heads of one kind.
                if *all.get_or_insert(heads) != heads {
                    return Err(unfit());
                }
            }
        }
        let heads = all.ok_or_else(|| FheError::shape(StepId::outside("attention")))?;
        let scores = below(on, placement.attention, SCORES)?;
        rows = rows.lifted(on, &heads, [placement.statistics, scores])?;
        let answers = match program.classifier() {
            Some(c) => rows.layout().spread(c.classes.outputs, 1)?,
            None => columns,
        };
        Ok(PackedPass {
            on,
            program,
            layers,
            choices,
            placement,
            rows,
            columns,
            answers,
            input_bound,
            polynomials: on.polynomials(),
        })
    }
}

impl<'a, S: Slots> ForwardPass<'a, S> for PackedPass<'a, S> {
    fn layers(&self) -> usize {
        self.layers.len()
    }

    fn start(&self, vectors: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let (on, limbs) = (self.on, self.placement.attention);
        let id = StepId::outside("input");
        same(id, "vectors", vectors.len(), self.columns.vectors())?;
        let halves = vectors.into_iter().map(|v| on.read_as(v, 2.0));
        let halves = halves.collect::<Result<Vec<_>, FheError>>()?;
        let x = Acts::over(halves, self.columns.width(), self.input_bound);
        lifted(on, id, x, limbs)
    }

    fn resume(&self, next: usize, vectors: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let Some(i) = next.checked_sub(1) else {
            return self.start(vectors);
        };
        let layer = self.steps(i)?;
        let (id, norm) = layer.feed_forward_norm;
        same(id, "vectors", vectors.len(), self.columns.vectors())?;
        acts(id, vectors, norm, &layer.choice.feed_forward_norm)
    }

    fn layer(&mut self, i: usize, x: Acts<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let (on, layer) = (self.on, self.steps(i)?);
        let statistics = self.placement.statistics;
        let kept = match layer.choice.frozen_row {
            Some(_) => Kept::Later,
            None => Kept::Tokens,
        };
        let x = x.cut(on, self.placement.attention)?;
        let (at, block) = layer.attention;
        let centred = attention(
            on,
            &x,
            &PackedAttention {
                at,
                block,
                choice: &layer.choice.attention,
                norm: &layer.choice.attention_norm,
                rows: &self.rows,
                columns: self.columns,
                kept,
                statistics,
            },
        );
        let centred = centred.map_err(|error| error.at_step(at))?;
        drop(x);
        let norm = |(at, norm): (StepId, &'a Norm), choice| PackedNorm {
            at,
            norm,
            choice,
            rows: &self.rows,
            kept,
            columns: self.columns,
            statistics,
        };
        let first = norm(layer.attention_norm, &layer.choice.attention_norm);
        let (at, block) = layer.feed_forward;
        let limbs = match block {
            Block::Linear(_) => above_by(on, on.floor(), NORM + MAP + PACKED_VARIANCE)?,
            _ => self.placement.feed_forward,
        };
        let x = first.after_refresh(on, &centred, limbs);
        let x = x.map_err(|error| error.at_step(first.at))?;
        let centred = self.feed_forward(at, block, &x, layer.choice, kept);
        let centred = centred.map_err(|error| error.at_step(at))?;
        let mut second = norm(layer.feed_forward_norm, &layer.choice.feed_forward_norm);
        if i + 1 == self.layers.len() && self.choices.classifier.is_some() {
            // A head reads first rows only: others may be outside its range.
            second.kept = Kept::First;
        }
        let x = second.at_level(on, centred);
        let x = x.map_err(|error| error.at_step(second.at))?;
        self.ended(i, &layer, x)
    }

    fn finish(&mut self, x: Acts<S::Value>) -> Result<Pooled<S::Value>, FheError> {
        let (on, rows, columns) = (self.on, &self.rows, &self.columns);
        let last = self.program.steps().last();
        let Some((id, block)) = last.map(|step| (step.id, &step.block)) else {
            return Err(FheError::shape(StepId::outside("answer")));
        };
        let answer = match block {
            Block::Pool(how) => pool(on, id, &x, *how, rows, columns),
            Block::Head(c) => {
                let choice = self.choices.classifier.as_ref();
                let choice = choice.ok_or_else(|| FheError::absent(id))?;
                head(on, id, &x, (c, choice), rows, columns)
            }
            _ => Err(FheError::shape(id)),
        };
        let vectors = answer.map_err(|error| error.at_step(id))?;
        Ok(Pooled::packed(vectors, &self.answers))
    }

    fn packed_columns(&self) -> Option<&Spread> {
        Some(&self.columns)
    }

    fn packed_answers(&self) -> Option<&Spread> {
        Some(&self.answers)
    }
}

impl<'a, S: Slots> PackedPass<'a, S> {
    fn feed_forward(
        &self,
        at: StepId,
        block: &Block,
        x: &Acts<S::Value>,
        choice: &LayerChoice,
        kept: Kept,
    ) -> Result<Vec<S::Value>, FheError> {
        let norm = &choice.feed_forward_norm;
        match block {
            Block::FeedForward(block) => PackedFeedForward {
                at,
                block,
                choice: &choice.activation,
                after: After::Norm(norm),
                rows: &self.rows,
                kept,
                columns: self.columns,
                polynomials: &self.polynomials,
            }
            .run(self.on, x),
            Block::Linear(w) => {
                let places = (&self.rows, kept, self.columns);
                merged(self.on, at, x, (w, norm), places)
            }
            _ => Err(FheError::shape(at)),
        }
    }

    /// Adds the constant row, and refreshes for the next layer.
    fn ended(&self, i: usize, layer: &Layer<'_>, mut x: Acts<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let on = self.on;
        let (at, norm) = layer.feed_forward_norm;
        if let Some(row) = &layer.choice.frozen_row {
            let row = match on.only_shapes() {
                true => Vec::new(),
                false => frozen(at, row, norm, layer.choice.feed_forward_norm.bound)?,
            };
            let vectors = x.columns.into_iter().enumerate().map(|(vector, v)| {
                let pair = |text: usize, r: usize, place: usize| {
                    let here = self.columns.columns_at(vector, place);
                    match here.filter(|_| self.rows.holds(Kept::First, text, r)) {
                        Some([a, b]) => {
                            let number = |c: usize| row.get(c).copied().unwrap_or(0.0);
                            Complex64::new(number(a), number(b))
                        }
                        None => Complex64::new(0.0, 0.0),
                    }
                };
                on.add_pairs(v, &self.rows.pairs(on, pair))
            });
            x.columns = vectors.collect::<Result<_, FheError>>()?;
        }
        match i + 1 < self.layers.len() {
            true => lifted(on, at, x, self.placement.attention),
            false => Ok(x),
        }
    }

    fn steps(&self, i: usize) -> Result<Layer<'a>, FheError> {
        let none = || no_layer(self.layers.len(), i);
        let range = self.layers.get(i).cloned().ok_or_else(none)?;
        let steps = self.program.steps().get(range).ok_or_else(none)?;
        let choice = self.choices.layers.get(i);
        // In the order checked by `supported`.
        let blocks: Vec<(StepId, &'a Block)> = steps.iter().map(|s: &Step| (s.id, &s.block)).collect();
        match blocks.as_slice() {
            [
                (a, Block::Attention(attention)),
                _,
                (b, Block::Norm(first)),
                (c, feed_forward),
                _,
                (d, Block::Norm(second)),
            ] => Ok(Layer {
                attention: (*a, attention),
                attention_norm: (*b, first),
                feed_forward: (*c, feed_forward),
                feed_forward_norm: (*d, second),
                choice: choice.ok_or_else(|| FheError::absent(*a))?,
            }),
            _ => Err(none()),
        }
    }
}

pub(super) fn unfit(at: StepId, a: &Attention, layout: Layout) -> FheError {
    FheError::Unsupported {
        what: format!(
            "{at}: {} heads of {} columns on {} rows of {} pairs",
            a.heads.count,
            a.heads.width,
            layout.rows(),
            layout.columns()
        ),
        remedy: "omit --texts to plan a batch",
    }
}

#[cfg(test)]
#[path = "packed_tests.rs"]
mod tests;
