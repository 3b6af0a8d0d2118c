//! An encoder or a decoder over a batch of texts, one vector per column, or over one text or a few in packed rows
//! ([`crate::packing::Layout`]): each layer is recorded ([`crate::tape`]), placed and run by itself, and begins and
//! ends with refreshed columns; the last one ends above the level of the answer.
//!
//! The columns between the halves of a decoder with RMSNorm are its residual stream. After the last layer they are not
//! refreshed: the last norm and the packing of the answer use the remaining levels.
//!
//! If the placement spills vectors, a block drops the columns once it has read them, and keeps on disk the primes that
//! the residual sum needs.
//!
//! Each norm sets padding rows to 0. If a layer's first row is replaced by a constant (`frozen_row`), both of its norms
//! mask the row, and the second adds the constant. Before a classifier's head the last norm keeps only first rows.

mod packed;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hushed_ckks::Scale;
use hushed_model::{Block, Program, StepId, Weigh, same};

use super::look::{self, Viewer};
use super::shape::{causal_layers, no_layer, supported};
use super::texts::Texts;
use crate::choices::Choices;
use crate::error::FheError;
use crate::machines::chain::{Chain, Recording};
use crate::ops::acts::Acts;
use crate::ops::levels::above_by;
use crate::ops::mask::{REAL_ROWS, RowsKnown};
use crate::ops::pool::Pooled;
use crate::packing::{Interleave, PackingError, Spread};
use crate::plan::placement::Placement;
use crate::plan::public_plan::AnswerRows;
use crate::slots::Slots;
use crate::tape::answer::pool_levels;
use crate::tape::causal::attention::without_tokens;
use crate::tape::encoder::{
    Answer, COLUMNS, Encoder, InSlots, Layer, Stands, begins_with_norm, bound_after, choice_of_norm, has_rms_norms,
    kappa_after,
};
use crate::tape::layout::Hidden;
use crate::tape::levels::{Heights, Outputs, least};
use crate::tape::norm::ROOT;
use crate::tape::run::{Inputs, Look, computed};
use crate::tape::{self, Mark, Node, Op, Tape};

/// Runs a program over vectors of slots.
pub struct Pass<'a, S: Slots> {
    on: &'a S,
    program: &'a Program,
    /// The steps of each layer.
    layers: Vec<Range<usize>>,
    choices: Cow<'a, Choices>,
    placement: Placement,
    texts: InSlots,
    /// Where the numbers of an answer lie in packed rows.
    answers: Option<Spread>,
    /// What is made of the client's masks, if lengths are private, by the name of the input.
    hidden: BTreeMap<&'static str, Vec<S::Value>>,
    /// Public bound on the client's columns.
    input_bound: f64,
    /// What a decoder is answered with.
    answer: AnswerRows,
    viewer: Option<Viewer<'a, S::Value>>,
    /// Where tapes go if they are not run.
    recording: Option<Recording<'a, S>>,
}

impl<'a, S: Slots> Pass<'a, S> {
    /// A pass over texts in the layout of a tape.
    ///
    /// # Errors
    /// As [`Pass::new`], [`Pass::last`], [`Pass::packed`] and [`Pass::packed_last`]; [`FheError::Unsupported`] for a
    /// placement of other texts.
    pub fn over(
        on: &'a S,
        (program, choices): (&'a Program, &'a Choices),
        placement: Placement,
        texts: Texts<S::Value>,
        bound: f64,
    ) -> Result<Self, FheError> {
        let unsupported = |what: &str, remedy| Err(FheError::Unsupported { what: what.to_owned(), remedy });
        if placement.pairs && !(matches!(texts, Texts::Last(..)) && has_rms_norms(program)) {
            return unsupported("columns in pairs", "they are for batches of decoders with RMSNorm");
        }
        if placement.per_place > 1 && !matches!(texts, Texts::Columns(RowsKnown::Public { .. })) {
            let remedy = "they are for batches of encoders, with public lengths";
            return unsupported("texts that share places", remedy);
        }
        match texts {
            Texts::Columns(rows) => Pass::new(on, program, choices, placement, rows, bound),
            Texts::Last(layout, answer, real) => {
                Pass::last(on, (program, choices), placement, (layout, answer, real), bound)
            }
            Texts::Packed(rows) => Pass::packed(on, program, choices, placement, rows, bound),
            Texts::PackedLast(layout, answer) => {
                Pass::packed_last(on, (program, choices), placement, (layout, answer), bound)
            }
        }
    }

    /// A pass over texts with these rows. An encrypted mask is refreshed if it has fewer primes than the first
    /// attention and the statistics of norms read. The client divided its columns by `input_bound`.
    ///
    /// # Errors
    /// [`FheError::Unsupported`] for a program of another shape. A placement with too few levels for the choices is not
    /// refused here, but by the first layer that lacks them ([`FheError::Levels`]); a counting run
    /// ([`crate::plan::dry_run`]) finds it before anything is computed. [`FheError::Packing`] for texts that share
    /// places otherwise than the placement says.
    pub fn new(
        on: &'a S,
        program: &'a Program,
        choices: &'a Choices,
        placement: Placement,
        rows: RowsKnown<S::Value>,
        input_bound: f64,
    ) -> Result<Self, FheError> {
        let layout = rows.layout();
        let (texts, real) = match rows {
            RowsKnown::Public { packing, .. } => (tape::Texts { layout, packing }, None),
            RowsKnown::Private { real, .. } => (tape::Texts::alone(layout, Vec::new())?, Some(real)),
        };
        let most = texts.packing.most();
        if most != placement.per_place {
            return Err(PackingError::Mismatch.into());
        }
        if most > 1 && program.classifier().is_some() {
            return Err(FheError::Unsupported {
                what: "a classifier over texts that share places".to_owned(),
                remedy: "give each text a place of its own: --pack 1",
            });
        }
        let texts = InSlots::Batch(Arc::new(texts));
        let choices = Cow::Borrowed(choices);
        let mut pass = Pass::of((on, program, choices, placement), texts, None, input_bound)?;
        if let Some(real) = real {
            pass.hide(real)?;
        }
        Ok(pass)
    }

    /// A pass of a decoder over texts that end in row m − 1, answered with these rows; `real` has 1 in their rows, 0 in
    /// others, and is not needed for RMSNorms and sigmoids. The client divided its columns by `input_bound`.
    ///
    /// # Errors
    /// As [`Pass::new`]; [`FheError::Unsupported`] without `real`, and for an odd number of columns in pairs.
    pub fn last(
        on: &'a S,
        (program, choices): (&'a Program, &'a Choices),
        placement: Placement,
        (layout, answer, real): (Interleave, AnswerRows, Option<S::Value>),
        input_bound: f64,
    ) -> Result<Self, FheError> {
        let zeros = has_rms_norms(program);
        if placement.pairs && !program.width().is_multiple_of(2) {
            return Err(FheError::Unsupported {
                what: format!("{} columns in pairs", program.width()),
                remedy: "an even number of columns can be put in pairs",
            });
        }
        // Whatever the server knows of lengths is in `real`.
        let texts = tape::Texts::alone(layout, vec![layout.rows(); layout.texts()])?;
        let choices = match zeros {
            true => Cow::Borrowed(choices),
            false => Cow::Owned(choices.of_layers()?),
        };
        let texts = InSlots::Batch(Arc::new(texts));
        let mut pass = Pass::of((on, program, choices, placement), texts, None, input_bound)?;
        pass.answer = answer;
        match real {
            Some(real) => pass.hide(real)?,
            None if zeros && program.attentions().all(|a| a.weigh != Weigh::Softmax) => {}
            None => return Err(without_tokens(StepId::outside(REAL_ROWS))),
        }
        Ok(pass)
    }

    /// Makes what a batch reads of the client's mask.
    fn hide(&mut self, real: S::Value) -> Result<(), FheError> {
        let Placement { attention, statistics, .. } = self.placement;
        let limbs = match has_rms_norms(self.program) {
            true => attention,
            // Norms read the mask beside statistics, and a constant row one level lower: it must limit neither.
            false => attention.max(statistics + 1).min(self.on.top()),
        };
        let made = self.masks(real, limbs)?;
        self.hidden = Hidden::ALL.iter().map(|which| which.name()).zip(made.into_iter().map(|v| vec![v])).collect();
        Ok(())
    }

    fn of(
        (on, program, choices, placement): (&'a S, &'a Program, Cow<'a, Choices>, Placement),
        texts: InSlots,
        answers: Option<Spread>,
        input_bound: f64,
    ) -> Result<Self, FheError> {
        let layers = program.layers();
        match has_rms_norms(program) {
            true => {
                causal_layers(program)?;
                let absent = || FheError::absent(StepId::outside("decoder"));
                let found = choices.decoder.as_ref().ok_or_else(absent)?.layers.len();
                if found != layers.len() {
                    return Err(absent());
                }
            }
            false => layers.iter().try_for_each(|layer| supported(program, layer.clone()))?,
        }
        let hidden = BTreeMap::new();
        Ok(Pass {
            on,
            program,
            layers,
            choices,
            placement,
            texts,
            answers,
            hidden,
            input_bound,
            answer: AnswerRows::Last,
            viewer: None,
            recording: None,
        })
    }

    /// What was made of the client's masks, by the name of the input.
    pub(crate) fn hidden(&self) -> &BTreeMap<&'static str, Vec<S::Value>> {
        &self.hidden
    }

    /// The run of these columns as one tape in tiles, of which nothing is run. `stand_in` makes a vector with so many
    /// primes at a scale.
    ///
    /// # Errors
    /// As a run.
    pub(crate) fn chained(
        mut self,
        columns: Vec<S::Value>,
        stand_in: impl Fn(usize, Scale) -> S::Value + 'a,
    ) -> Result<Chain, FheError> {
        self.recording = Some(Recording::new(stand_in));
        self.run(columns)?;
        Ok(self.recording.map(Recording::finish).unwrap_or_default())
    }

    /// What is made of the client's mask, refreshed if it has fewer than `limbs` primes.
    fn masks(&self, sent: S::Value, limbs: usize) -> Result<Vec<S::Value>, FheError> {
        let (tape, values) = (self.encoder(true).masks()?, BTreeMap::from([(REAL_ROWS, vec![sent])]));
        let place = (Heights::Given(&|_, _| limbs), Outputs::AtLeast(self.on.floor()));
        self.computed(tape, values, place, &mut |_, _| Ok(()))
    }

    fn encoder(&self, hidden: bool) -> Encoder<'_, S> {
        Encoder {
            on: self.on,
            program: self.program,
            choices: &self.choices,
            split: &self.placement,
            texts: self.texts.clone(),
            hidden,
            answer: self.answer,
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
        let end = self.range(i)?.end;
        let last = self.program.steps().get(end - 1).ok_or_else(|| no_layer(self.layers.len(), i))?;
        same(last.id, "vectors", columns.len(), self.recorded().vectors())?;
        match &last.block {
            Block::Norm(n) => Acts::normed(last.id, columns, n, choice_of_norm(self.program, &self.choices, end - 1)?),
            _ => self.stream(end, columns),
        }
    }

    /// The residual stream before step `number`, divided as its next norm reads it.
    fn stream(&self, number: usize, columns: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let bound = match has_rms_norms(self.program) {
            true => bound_after(self.program, &self.choices, number - 1)?,
            false => 1.0 / kappa_after(self.program, &self.choices, number)?,
        };
        Ok(Acts::over(columns, self.program.width(), bound))
    }

    /// The primes of the columns after layer `i`: those that the next one reads, or those for the answer.
    fn outputs(&self, i: usize) -> Result<Outputs, FheError> {
        let (on, last) = (self.on, i + 1 == self.layers.len());
        Ok(match last && !begins_with_norm(self.program) {
            true if has_rms_norms(self.program) => {
                let (gain, offset) = (vec![1.0; self.program.width()], vec![0.0; self.program.width()]);
                Outputs::AtLeast(least(&self.recorded().answer(&gain, &offset)?.circuit.tape, on, COLUMNS)?)
            }
            true => Outputs::AtLeast(above_by(on, on.floor(), pool_levels(self.placement.per_place))?),
            false => Outputs::Exactly(self.placement.attention),
        })
    }

    /// The inputs of a tape, with those that all layers read.
    fn inputs(&self, columns: Vec<S::Value>) -> Inputs<S> {
        self.hidden.iter().map(|(name, v)| (*name, v.clone())).chain([(COLUMNS, columns)]).collect()
    }

    /// Computes a recorded layer, and shows what it shows.
    fn seen(
        &mut self,
        layer: Layer,
        columns: Vec<S::Value>,
        place: (Heights<'_>, Outputs),
    ) -> Result<Vec<S::Value>, FheError> {
        let inputs = self.inputs(columns);
        let mut viewer = self.viewer.take();
        let look = &mut |number: usize, columns: &[S::Value]| match (&mut viewer, layer.shown.get(number)) {
            (Some(viewer), Some((at, Stands::Columns { gain, offset }))) => {
                viewer(*at, look::Look::Columns { columns, gain, offset })
            }
            (Some(viewer), Some((at, Stands::Centred(scale)))) => {
                viewer(*at, look::Look::Centred { columns, scale: *scale })
            }
            _ => Ok(()),
        };
        let made = self.computed(layer.tape, inputs, place, look);
        self.viewer = viewer;
        made
    }

    fn computed(
        &self,
        tape: Tape,
        inputs: Inputs<S>,
        (heights, outputs): (Heights<'_>, Outputs),
        look: Look<'_, S>,
    ) -> Result<Vec<S::Value>, FheError> {
        let spilled = vec![self.placement.spill_attention, self.placement.spill_feed_forward];
        let place = (heights, outputs, spilled);
        match &self.recording {
            Some(recording) => recording.keep(self.on, tape, &inputs, place),
            None => computed(self.on, tape, inputs, place, look),
        }
    }
}

impl<'a, S: Slots> Pass<'a, S> {
    /// Sets a viewer of its results; packed rows show none.
    pub fn view(&mut self, viewer: Viewer<'a, S::Value>) {
        self.viewer = Some(viewer);
    }

    /// Number of layers of the program.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// The client's vectors as the first layer reads them: refreshed if they have fewer primes.
    ///
    /// # Errors
    /// Errors of the refresh; fails if the number of vectors is not the layout's.
    pub fn start(&self, columns: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let (encoder, limbs) = (self.recorded(), self.placement.attention);
        let sent = match &self.texts {
            InSlots::Batch(_) => self.program.width(),
            InSlots::Packed(..) => encoder.vectors(),
        };
        same(StepId::outside(COLUMNS), "vectors", columns.len(), sent)?;
        let tape = encoder.start(self.input_bound)?;
        let values = BTreeMap::from([(COLUMNS, columns)]);
        let columns =
            self.computed(tape, values, (Heights::Given(&|_, _| limbs), Outputs::Exactly(limbs)), &mut |_, _| Ok(()))?;
        match begins_with_norm(self.program) {
            true => self.stream(self.range(0)?.start, columns),
            false => Ok(Acts::over(columns, self.program.width(), self.input_bound)),
        }
    }

    /// The vectors that layer `next` reads, from a checkpoint before it; gains, offsets and bounds come from the model
    /// and the choices. After the last layer `next` is the number of layers.
    ///
    /// # Errors
    /// Fails if the model or the choices lack the layer, or the number of vectors is wrong.
    pub fn resume(&self, next: usize, columns: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        match next.checked_sub(1) {
            Some(i) => self.after(i, columns),
            None => self.start(columns),
        }
    }

    /// Layer `i` of the model, from vectors to vectors.
    ///
    /// # Errors
    /// Those of its steps.
    pub fn layer(&mut self, i: usize, x: Acts<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let (steps, last) = (self.range(i)?, i + 1 == self.layers.len());
        // Those of a client may be higher.
        let x = x.cut(self.on, self.placement.attention)?;
        let layer = self.recorded().layer(steps.clone(), (&x.gain, &x.offset))?;
        let (placement, zeros) = (self.placement.clone(), has_rms_norms(self.program));
        let Placement { attention, feed_forward, statistics, .. } = placement;
        let all = self.program.steps().get(steps).unwrap_or_default();
        let id = |block: fn(&Block) -> bool| all.iter().rev().find(|step| block(&step.block)).map(|step| step.id);
        let merged = id(|block| matches!(block, Block::Linear(_))).is_some();
        let end = all.last().map(|step| step.id.part("refresh"));
        let root = all.first().map(|step| step.id.part(ROOT));
        let weigh = id(|block| matches!(block, Block::Attention(_))).map(|id| id.part("weigh"));
        let sums = weigh.map(|weigh| [weigh.part("first_sum"), weigh.part("second_sum")]).unwrap_or_default();
        let height = |node: &Node, least: usize| match node.op {
            _ if zeros => causal_height(&placement, node, least, last),
            Op::Mark { mark: Mark::Statistic { .. } } => statistics,
            _ if sums.contains(&node.step) => statistics,
            _ if Some(node.step) == end || Some(node.step) == root => attention,
            _ if merged => least,
            _ if last => feed_forward.max(least),
            _ => feed_forward,
        };
        let heights = match self.texts {
            InSlots::Batch(_) => Heights::Given(&height),
            InSlots::Packed(..) => Heights::Least,
        };
        let columns = self.seen(layer, x.columns, (heights, self.outputs(i)?))?;
        self.after(i, columns)
    }

    /// The answer, packed, from the result of the last layer.
    ///
    /// # Errors
    /// Those of its steps.
    pub fn finish(&mut self, x: Acts<S::Value>) -> Result<Pooled<S::Value>, FheError> {
        let Answer { circuit, width, factor } = self.recorded().answer(&x.gain, &x.offset)?;
        let placement = self.placement.clone();
        let height = |node: &Node, least: usize| causal_height(&placement, node, least, true);
        let heights = match self.texts {
            InSlots::Batch(_) if has_rms_norms(self.program) => Heights::Given(&height),
            _ => Heights::Least,
        };
        let vectors = self.seen(circuit, x.columns, (heights, Outputs::Exactly(self.on.floor())))?;
        Ok(Pooled { vectors, width, factor })
    }

    /// Runs from the client's vectors to the answer.
    ///
    /// # Errors
    /// Those of the layers.
    pub fn run(&mut self, vectors: Vec<S::Value>) -> Result<Pooled<S::Value>, FheError> {
        let mut x = self.start(vectors)?;
        for i in 0..self.layers() {
            x = self.layer(i, x)?;
        }
        self.finish(x)
    }

    /// Where the columns lie in packed rows; `None` for a batch.
    pub fn packed_columns(&self) -> Option<&Spread> {
        match &self.texts {
            InSlots::Batch(_) => None,
            InSlots::Packed(_, places) => Some(&places.columns),
        }
    }

    /// Where the numbers of an answer lie in packed rows; `None` for a batch.
    pub fn packed_answers(&self) -> Option<&Spread> {
        self.answers.as_ref()
    }
}

/// The primes of a refresh in a decoder with RMSNorm: a root is refreshed only if it arrives too low.
fn causal_height(placement: &Placement, node: &Node, least: usize, last: bool) -> usize {
    let Placement { attention, feed_forward, statistics, .. } = *placement;
    let is = |part: &str| node.step.to_string().ends_with(part);
    match node.op {
        Op::Mark { mark: Mark::Statistic { .. } } => statistics,
        _ if is(ROOT) => least,
        _ if is("_sum") => statistics,
        _ if is("feed_forward.add.refresh") => attention,
        _ if last => feed_forward.max(least),
        _ => feed_forward,
    }
}

#[cfg(test)]
#[path = "encoder_tests.rs"]
mod tests;
