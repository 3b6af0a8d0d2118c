//! Where accuracy is lost under CKKS, step by step: the same texts on four rungs, each with one more source of error
//! than the rung above it.
//!
//! | rung | what runs | what it adds |
//! |---|---|---|
//! | clear | the model, in f64 | nothing: the others are compared with it |
//! | polynomial | the circuit over [`Simulator::new`] | approximations, rows replaced by constants, fixed heads |
//! | predicted | the same over [`Simulator::with_errors`] | simulated errors of rescales and refreshes |
//! | encrypted | the same over [`super::Encrypted`], on its own key, every step decrypted | everything |
//!
//! MOAI's Figures 3 and 6 show such errors for the outputs of layers and for the steps of one layer. Errors are
//! relative to the root mean square of the clear values of the step. The errors that the encrypted run and the
//! prediction add to the polynomials are compared only by size, as each draws its own noise.
//!
//! A text that leaves a calibrated interval gets a wrong answer, and under encryption may spoil the texts that share
//! its ciphertexts. The simulation detects it ([`FheError::Range`]): the text is found, named, left out from that layer
//! on, and not encrypted.
//!
//! The circuit is placed as by a plan for these texts and this memory, so its levels are those of a run.
//!
//! This decrypts ciphertexts in the middle of a run. It is a tool for the owner of both model and key, on one machine,
//! and never part of a session with another party.

mod answers;
mod clear;
mod compare;
mod key;
mod packed;
mod range;
mod rung;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_ckks::bootstrap::Bootstrapper;
use hushed_ckks::keys::KeySpecs;
use hushed_model::{Matrix, Model, Program, StepId, TokenIds};
use serde::Serialize;

pub use answers::{Answer, Retrieval, retrieval};
pub use compare::{Difference, Stage};

use super::choices::Choices;
use super::error::FheError;
use super::pass::can_run;
use super::plan::{FheOptions, FhePlanReport, Timetable, reference, shortened};
use super::simulate::{Simulator, columns, columns_to_last};
use crate::inputs::bound_of_inputs;
use crate::ops::mask::{token_rows, token_rows_to_last};
use crate::packing::{Interleave, PackingError};
use crate::plan::placement::Placement;
use crate::plan::public_plan::{AnswerRows, Lengths};
use crate::run::clock::Progress;
use crate::run::job::bootstrap;
use answers::answers;
use clear::Clear;
use compare::{Counted, Waiting};
use key::TestKey;
use range::settle;
use rung::Rung;

/// The layers to compare, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rows per text, padding included: a power of two.
    pub rows: usize,
    /// Number of first layers of the model to compare, pooled after the last of them; by default all.
    pub layers: Option<usize>,
    /// Whether the server knows which rows are padding.
    pub lengths: Lengths,
    /// Seed of simulated errors.
    pub seed: u64,
    /// If present, compares requests of this many texts in packed rows, placed as by a plan for this many: each text is
    /// run alone, without [`Options::encrypted`], and only answers are compared.
    pub together: Option<usize>,
    /// If present, also runs encrypted.
    pub encrypted: Option<OnKey>,
}

/// Settings of the encrypted rung.
#[derive(Clone, Debug, Default)]
pub struct OnKey {
    /// Bytes of memory for everything; vectors beyond that are spilled. By default unlimited.
    pub max_memory: Option<u64>,
    /// The folder for spilled vectors; by default the system's temporary folder.
    pub spill: Option<PathBuf>,
}

/// Progress of a comparison.
#[derive(Clone, Debug)]
pub enum Event {
    /// A layer begins on a rung.
    Layer {
        /// Its number, counted from 0.
        layer: usize,
        /// The rung.
        rung: Which,
    },
    /// A text in packed rows begins on a rung.
    Text {
        /// Its index in the input.
        text: usize,
        /// The rung.
        rung: Which,
    },
    /// Progress of the encrypted run: every second, and at the end of each layer.
    Step(Progress),
}

/// A rung of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// Only approximations.
    Polynomial,
    /// With simulated errors.
    Predicted,
    /// On a key.
    Encrypted,
}

/// A value that was too large for a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutOfRange {
    /// Index of the text in the input; `None` if no text alone is the cause.
    pub text: Option<usize>,
    /// The layer in which it happened, `None` in packed rows, which are not run layer by layer. The text is left out of
    /// the errors of this layer and of later ones.
    pub layer: Option<usize>,
    /// The rung.
    pub rung: Which,
    /// The step, the value and its bound.
    pub message: String,
}

/// The result of [`verify`].
pub struct Report {
    /// One per step, up to the layer at which no text was left, if there is one.
    pub stages: Vec<Stage>,
    /// One per text that is left at the end.
    pub answers: Vec<Answer>,
    /// Texts that left a calibrated interval.
    pub out_of_range: Vec<OutOfRange>,
}

impl Report {
    /// The stages after whole layers.
    pub fn layers(&self) -> impl Iterator<Item = &Stage> {
        self.stages.iter().filter(|stage| stage.is_output())
    }

    /// The layer over which an error grew the most; `of` selects the error.
    pub fn worst_layer(&self, of: impl Fn(&Stage) -> Option<Difference>) -> Option<&Stage> {
        let sizes = || self.layers().map(|s| of(s).map(|d| d.rms));
        let before = std::iter::once(Some(0.0)).chain(sizes());
        let grown = self.layers().zip(sizes()).zip(before);
        let grown = grown.filter_map(|((stage, now), before)| Some((stage, now? - before?)));
        grown
            .max_by(|(_, a), (_, b)| a.total_cmp(b))
            .map(|(stage, _)| stage)
    }
}

/// The options of a plan for this many texts.
fn planned(rows: usize, texts: usize, lengths: Lengths) -> FheOptions {
    FheOptions {
        rows,
        texts,
        lengths,
        answer: AnswerRows::Last,
        max_memory: None,
        uplink: f64::INFINITY,
        prices: reference(rayon::current_num_threads()),
        placement: None,
    }
}

/// Number of steps of a layer that are compared.
const STEPS: usize = 6;

/// Everything that is fixed before a run.
struct Subject<'a> {
    model: &'a Model,
    program: Program,
    choices: Choices,
    params: Arc<CkksParams>,
    placement: Placement,
    timetable: Arc<Timetable>,
    bound: f64,
    rows: usize,
    seed: u64,
    known: Lengths,
    /// Tokens of each text.
    lengths: Vec<usize>,
}

/// Compares the rungs over `texts`, which must fit one batch unless they are in packed rows.
///
/// # Errors
/// [`FheError::Packing`] for too many texts or a text that is too long, [`FheError::Choices`] for choices of another
/// model, [`FheError::Levels`] for parameters with too few levels, [`FheError::Unsupported`] for too little memory,
/// [`FheError::File`] for a folder or disk that cannot be written. Values out of range are not an error: see
/// [`Report::out_of_range`].
pub fn verify(
    model: &Model,
    choices: &Choices,
    params: &Arc<CkksParams>,
    texts: &[TokenIds],
    options: &Options,
    progress: &(dyn Fn(Event) + Sync),
) -> Result<Report, FheError> {
    if let Some(together) = options.together {
        return packed::verify(model, choices, params, texts, (options, together), progress);
    }
    let mut subject = Subject::new(model, choices, params, texts, options)?;
    let bootstrap = bootstrap(params)?;
    let on_key = options.encrypted.as_ref();
    subject.place(&bootstrap.1, on_key.and_then(|on| on.max_memory))?;
    subject.compare(texts, bootstrap, on_key, progress)
}

impl<'a> Subject<'a> {
    /// The slots of each column of these texts, as packed by a client.
    fn columns(&self, layout: Interleave, texts: &[Matrix<f64>]) -> Vec<Vec<f64>> {
        let width = self.program.width();
        match self.decodes() {
            true => columns_to_last(layout, texts, width, self.bound),
            false => columns(layout, texts, width, self.bound),
        }
    }

    /// Whether texts end in the last row.
    fn decodes(&self) -> bool {
        self.choices.decoder.is_some()
    }

    /// The slot of a row of a text.
    fn slot(&self, layout: Interleave, text: usize, row: usize) -> usize {
        let first = if self.decodes() {
            self.rows - self.lengths[text]
        } else {
            0
        };
        layout.slot(text, first + row)
    }

    fn new(
        model: &'a Model,
        choices: &Choices,
        params: &Arc<CkksParams>,
        texts: &[TokenIds],
        options: &Options,
    ) -> Result<Subject<'a>, FheError> {
        let program = model.program_of_all_rows();
        can_run(&program)?;
        choices.check(&program)?;
        let rows = options.rows;
        let room = Interleave::new(params.slots(), rows)?.texts();
        if texts.len() > room {
            let (texts, slots) = (texts.len(), params.slots());
            return Err(PackingError::TooMany {
                texts,
                room,
                slots,
                rows,
            }
            .into());
        }
        let lengths: Vec<usize> = texts.iter().map(|t| t.rows().real).collect();
        if let Some((text, &found)) = lengths.iter().enumerate().find(|(_, l)| **l > rows) {
            return Err(PackingError::RowCount { text, found, rows }.into());
        }
        let layers = options.layers.unwrap_or(usize::MAX);
        let (program, choices) = shortened(&program, choices, layers);
        let head = program.attentions().next().map_or(1, |a| a.heads.width);
        Ok(Subject {
            model,
            bound: bound_of_inputs(&program, rows)?,
            // Until the circuit is placed.
            placement: Placement::plain(params.fresh_limbs(), rows, head),
            timetable: Arc::default(),
            params: Arc::clone(params),
            known: match choices.decoder {
                Some(_) => Lengths::Private,
                None => options.lengths,
            },
            program,
            choices,
            rows,
            seed: options.seed,
            lengths,
        })
    }

    /// Places the circuit as a plan does, with the memory that the comparison leaves of `room` bytes.
    fn place(&mut self, bootstrap: &KeySpecs, room: Option<u64>) -> Result<(), FheError> {
        let options = FheOptions {
            max_memory: room.map(|room| room.saturating_sub(self.held())),
            ..self.options()
        };
        let (program, choices, params) = (&self.program, &self.choices, &self.params);
        let plan = FhePlanReport::new(program, choices, false, params, bootstrap, &options)?;
        if plan.placement.pairs {
            return Err(FheError::Unsupported {
                what: "a comparison of columns two in a vector".to_owned(),
                remedy: "give more memory, or leave the key out",
            });
        }
        (self.placement, self.timetable) = (plan.placement, plan.timetable);
        Ok(())
    }

    /// The options of a plan for these texts.
    fn options(&self) -> FheOptions {
        planned(self.rows, self.lengths.len(), self.known)
    }

    /// Bytes that the comparison holds while the encrypted rung runs: the steps of a layer in the clear and with
    /// polynomials, three tables of differences, the columns of the other rungs between layers, and their model.
    fn held(&self) -> u64 {
        let (width, texts) = (self.program.width(), self.lengths.len());
        let rows: usize = self.lengths.iter().sum();
        let slots = self.rows * texts.next_power_of_two();
        let table = self.program.embedding();
        let model = table.map_or(0, |e| (e.vocabulary + e.positions) * width * 4);
        ((2 * STEPS + 4) * rows * width * 8 + 2 * width * slots * 8 + model) as u64
    }

    /// The mask of tokens that a client encrypts with its columns if lengths are private, or for a decoder's softmax;
    /// otherwise `None`.
    fn mask(&self, layout: Interleave, alive: &[usize]) -> Option<Vec<f64>> {
        let rows = match self.decodes() {
            true => token_rows_to_last,
            false => token_rows,
        };
        let masks = self.known.masks(&self.program);
        masks.then(|| rows(layout, alive))
    }

    /// A simulation with room for `texts` texts: fewer slots than the ring's are faster, and each slot has the value
    /// that it would have among all.
    fn simulator(&self, texts: usize, errors: bool) -> Result<(Simulator, Interleave), FheError> {
        let slots = self.rows * texts.next_power_of_two();
        let on = Simulator::new(&self.params, slots)?;
        let on = match errors {
            true => on.with_errors(self.seed),
            false => on,
        };
        Ok((on, Interleave::new(slots, self.rows)?))
    }

    fn compare(
        &self,
        texts: &[TokenIds],
        (bootstrapper, keys): (Arc<Bootstrapper>, KeySpecs),
        on_key: Option<&OnKey>,
        progress: &(dyn Fn(Event) + Sync),
    ) -> Result<Report, FheError> {
        let simulated = self.walk(texts, None, progress)?;
        let Some(on_key) = on_key else {
            return Ok(simulated);
        };
        let mut out_of_range = simulated.out_of_range;
        let mut key = TestKey::new(self, &out_of_range, bootstrapper, &keys, on_key)?;
        let mut report = self.walk(texts, Some(&mut key), progress)?;
        out_of_range.append(&mut report.out_of_range);
        report.out_of_range = out_of_range;
        Ok(report)
    }

    fn walk(
        &self,
        texts: &[TokenIds],
        mut key: Option<&mut TestKey>,
        progress: &(dyn Fn(Event) + Sync),
    ) -> Result<Report, FheError> {
        let mut clear = Clear::new(&self.program, texts)?;
        let mut alive = self.lengths.clone();
        if let Some(key) = &mut key {
            key.start(self, &clear.embedded(), &mut alive)?;
        }
        let (exact, layout) = self.simulator(texts.len(), false)?;
        let (noisy, _) = self.simulator(texts.len(), true)?;
        let mut polynomial = Rung::simulated(self, &exact, layout, &clear.embedded())?;
        let mut predicted = Rung::simulated(self, &noisy, layout, &clear.embedded())?;
        let mut report = Report {
            stages: Vec::new(),
            answers: Vec::new(),
            out_of_range: Vec::new(),
        };
        for i in 0..self.program.layers().len() {
            let layer = |rung| progress(Event::Layer { layer: i, rung });
            let mut simulated = |which, rung: &mut Rung<'_, Simulator>| {
                layer(which);
                settle(self, i, which, rung, &mut alive, &mut report.out_of_range)
            };
            let shown = simulated(Which::Polynomial, &mut polynomial)?;
            let Some(by_polynomials) = shown else {
                return Ok(report);
            };
            let Some(with_noise) = simulated(Which::Predicted, &mut predicted)? else {
                return Ok(report);
            };
            let in_clear = clear.layer(&self.program, i)?;
            let counted = Counted {
                rows: clear.compared(&alive),
                frozen: self
                    .choices
                    .layers
                    .get(i)
                    .is_some_and(|l| l.frozen_row.is_some()),
            };
            let mut waiting = Waiting {
                stages: compare::stages(&in_clear, &by_polynomials, &with_noise, &counted),
                clear: in_clear,
                polynomial: by_polynomials,
                counted,
            };
            drop(with_noise);
            if let Some(key) = &mut key {
                layer(Which::Encrypted);
                let mut take = |at: StepId, found| waiting.encrypted(at, &found);
                key.layer(self, i, &mut take, &|now| progress(Event::Step(now)))?;
            }
            report.stages.extend(waiting.stages);
        }
        let pooled = clear.pool(&self.program)?;
        let mut found = vec![
            (Which::Polynomial, polynomial.pool(self, &alive)?),
            (Which::Predicted, predicted.pool(self, &alive)?),
        ];
        if let Some(key) = &mut key {
            found.push((Which::Encrypted, key.pool(self)?));
        }
        report.answers = answers(&self.model.public, &pooled, &found, &alive);
        Ok(report)
    }
}
