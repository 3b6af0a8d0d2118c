//! An encoder over a batch of texts, one vector per column: each layer is recorded ([`crate::tape`]), placed and run by
//! itself, and begins and ends with refreshed columns; the last one ends above the level of the answer.
//!
//! If the placement spills vectors, a block drops the columns once it has read them, and keeps on disk the primes that
//! the residual sum needs.
//!
//! Each norm sets padding rows to 0. If a layer's first row is replaced by a constant (`frozen_row`), both of its norms
//! mask the row, and the second adds the constant. Before a classifier's head the last norm keeps only first rows.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hushed_model::{Block, Program, StepId, same};

use super::forward::{self, ForwardPass, Viewer};
use super::shape::{no_layer, supported};
use crate::choices::Choices;
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::levels::above;
use crate::ops::mask::RowsKnown;
use crate::ops::pool::Pooled;
use crate::plan::placement::Placement;
use crate::slots::Slots;
use crate::tape::encoder::{COLUMNS, Encoder, Stands};
use crate::tape::layout::Hidden;
use crate::tape::levels::{Heights, Outputs};
use crate::tape::run::{Inputs, Look, computed};
use crate::tape::{Mark, Node, Op, Tape, Texts};

/// Runs a program over vectors of slots.
pub struct Pass<'a, S: Slots> {
    on: &'a S,
    program: &'a Program,
    /// The steps of each layer.
    layers: Vec<Range<usize>>,
    choices: &'a Choices,
    placement: Placement,
    texts: Arc<Texts>,
    /// What is made of the mask of token rows, if lengths are private, in the order of [`Hidden::ALL`].
    hidden: Vec<S::Value>,
    /// Public bound on the client's columns.
    input_bound: f64,
    viewer: Option<Viewer<'a, S::Value>>,
}

impl<'a, S: Slots> Pass<'a, S> {
    /// A pass over texts with these rows. An encrypted mask is refreshed if it has fewer primes than the first
    /// attention and the statistics of norms read. The client divided its columns by `input_bound`.
    ///
    /// # Errors
    /// [`FheError::Unsupported`] for a program of another shape. A placement with too few levels for the choices is not
    /// refused here, but by the first layer that lacks them ([`FheError::Levels`]); a counting run
    /// ([`crate::plan::dry_run`]) finds it before anything is computed.
    pub fn new(
        on: &'a S,
        program: &'a Program,
        choices: &'a Choices,
        placement: Placement,
        rows: RowsKnown<S::Value>,
        input_bound: f64,
    ) -> Result<Self, FheError> {
        let layers = program.layers();
        for layer in &layers {
            supported(program, layer.clone())?;
        }
        let layout = rows.layout();
        let (lengths, real) = match rows {
            RowsKnown::Public { lengths, .. } => (lengths, None),
            RowsKnown::Private { real, .. } => (Vec::new(), Some(real)),
        };
        let texts = Arc::new(Texts { layout, lengths });
        let hidden = Vec::new();
        let mut pass = Pass { on, program, layers, choices, placement, texts, hidden, input_bound, viewer: None };
        if let Some(real) = real {
            // Norms read the mask beside statistics, and a constant row one level lower: it must limit neither.
            let limbs = pass.placement.attention.max(pass.placement.statistics + 1).min(on.top());
            let tape = pass.encoder(true).masks();
            let values = BTreeMap::from([(Hidden::Tokens.name(), vec![real])]);
            pass.hidden = pass.computed(
                tape,
                values,
                (Heights::Given(&|_, _| limbs), Outputs::AtLeast(on.floor())),
                &mut |_, _| Ok(()),
            )?;
        }
        Ok(pass)
    }

    fn encoder(&self, hidden: bool) -> Encoder<'_, S> {
        Encoder {
            on: self.on,
            program: self.program,
            choices: self.choices,
            split: &self.placement,
            texts: Arc::clone(&self.texts),
            hidden,
        }
    }

    fn recorded(&self) -> Encoder<'_, S> {
        self.encoder(!self.hidden.is_empty())
    }

    fn range(&self, i: usize) -> Result<Range<usize>, FheError> {
        let range = self.layers.get(i).cloned();
        range.ok_or_else(|| no_layer(self.layers.len(), i))
    }

    /// The columns after layer `i`.
    fn after(&self, i: usize, columns: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let last = self.range(i)?.end - 1;
        match self.program.steps().get(last).map(|step| (step.id, &step.block)) {
            Some((id, Block::Norm(n))) => {
                let encoder = self.recorded();
                Acts::from_norm(id, columns, n, encoder.norm_of(last)?.1)
            }
            _ => Err(no_layer(self.layers.len(), i)),
        }
    }

    /// The inputs of a tape, with those that all layers read.
    fn inputs(&self, columns: Vec<S::Value>) -> Inputs<S> {
        let hidden = Hidden::ALL.iter().zip(&self.hidden).map(|(which, v)| (which.name(), vec![v.clone()]));
        hidden.chain([(COLUMNS, columns)]).collect()
    }

    fn computed(
        &self,
        tape: Tape,
        inputs: Inputs<S>,
        (heights, outputs): (Heights<'_>, Outputs),
        look: Look<'_, S>,
    ) -> Result<Vec<S::Value>, FheError> {
        let spilled = vec![self.placement.spill_attention, self.placement.spill_feed_forward];
        computed(self.on, tape, inputs, (heights, outputs, spilled), look)
    }
}

impl<'a, S: Slots> ForwardPass<'a, S> for Pass<'a, S> {
    fn view(&mut self, viewer: Viewer<'a, S::Value>) {
        self.viewer = Some(viewer);
    }

    fn layers(&self) -> usize {
        self.layers.len()
    }

    fn start(&self, columns: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let width = self.program.width();
        same(StepId::outside(COLUMNS), "columns", columns.len(), width)?;
        let (tape, limbs) = (self.recorded().start(), self.placement.attention);
        let values = BTreeMap::from([(COLUMNS, columns)]);
        let columns =
            self.computed(tape, values, (Heights::Given(&|_, _| limbs), Outputs::Exactly(limbs)), &mut |_, _| Ok(()))?;
        Ok(Acts::from_client(columns, self.input_bound))
    }

    fn resume(&self, next: usize, columns: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        match next.checked_sub(1) {
            Some(i) => self.after(i, columns),
            None => self.start(columns),
        }
    }

    fn layer(&mut self, i: usize, x: Acts<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let (steps, last) = (self.range(i)?, i + 1 == self.layers.len());
        // Those of a client may be higher.
        let x = x.cut(self.on, self.placement.attention)?;
        let layer = self.recorded().layer(steps.clone(), (&x.gain, &x.offset))?;
        let Placement { attention, feed_forward, statistics, .. } = self.placement;
        let all = self.program.steps().get(steps).unwrap_or_default();
        let id = |block: fn(&Block) -> bool| all.iter().rev().find(|step| block(&step.block)).map(|step| step.id);
        let merged = id(|block| matches!(block, Block::Linear(_))).is_some();
        let end = id(|block| matches!(block, Block::Norm(_))).map(|id| id.part("refresh"));
        let weigh = id(|block| matches!(block, Block::Attention(_))).map(|id| id.part("weigh"));
        let sums = weigh.map(|weigh| [weigh.part("first_sum"), weigh.part("second_sum")]).unwrap_or_default();
        let height = |node: &Node, least: usize| match node.op {
            Op::Mark { mark: Mark::Statistic { .. } } => statistics,
            _ if sums.contains(&node.step) => statistics,
            _ if Some(node.step) == end => attention,
            _ if merged => least,
            _ if last => feed_forward.max(least),
            _ => feed_forward,
        };
        let outputs = match last {
            true => Outputs::AtLeast(above(self.on, self.on.floor())?),
            false => Outputs::Exactly(attention),
        };
        let inputs = self.inputs(x.columns);
        let mut viewer = self.viewer.take();
        let look = &mut |number: usize, columns: &[S::Value]| match (&mut viewer, layer.shown.get(number)) {
            (Some(viewer), Some((at, Stands::Columns { gain, offset }))) => {
                viewer(*at, forward::Look::Columns { columns, gain, offset })
            }
            (Some(viewer), Some((at, Stands::Centred(scale)))) => {
                viewer(*at, forward::Look::Centred { columns, scale: *scale })
            }
            _ => Ok(()),
        };
        let columns = self.computed(layer.tape, inputs, (Heights::Given(&height), outputs), look);
        self.viewer = viewer;
        self.after(i, columns?)
    }

    fn finish(&mut self, x: Acts<S::Value>) -> Result<Pooled<S::Value>, FheError> {
        let (tape, width, factor) = self.recorded().answer(&x.gain, &x.offset)?;
        let (inputs, floor) = (self.inputs(x.columns), self.on.floor());
        let vectors = self.computed(tape, inputs, (Heights::Least, Outputs::Exactly(floor)), &mut |_, _| Ok(()))?;
        Ok(Pooled { vectors, width, factor })
    }
}

#[cfg(test)]
#[path = "encoder_tests.rs"]
mod tests;
