//! What is fixed before the rungs are compared.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_ckks::keys::KeySpecs;
use hushed_model::{Item, Matrix, Model, Program};

use super::options::Options;
use crate::choices::Choices;
use crate::error::FheError;
use crate::inputs::bound_of_inputs;
use crate::ops::mask::{token_rows, token_rows_to_last};
use crate::packing::{Interleave, PackingError};
use crate::pass::can_run;
use crate::plan::placement::Placement;
use crate::plan::public_plan::{AnswerRows, Lengths};
use crate::plan::{FheOptions, FhePlanReport, Timetable, reference, shortened};
use crate::simulate::{Simulator, columns, columns_to_last};

/// The options of a plan for this many texts.
pub(super) fn planned(rows: usize, texts: usize, lengths: Lengths) -> FheOptions {
    FheOptions {
        rows,
        texts,
        lengths,
        answer: AnswerRows::Last,
        max_memory: None,
        per_place: 1,
        uplink: f64::INFINITY,
        prices: reference(rayon::current_num_threads()),
        placement: None,
    }
}

/// Number of steps of a layer that are compared.
const STEPS: usize = 6;

/// Everything that is fixed before a run.
pub(super) struct Subject<'a> {
    pub(super) model: &'a Model,
    pub(super) program: Program,
    pub(super) choices: Choices,
    pub(super) params: Arc<CkksParams>,
    pub(super) placement: Placement,
    pub(super) timetable: Arc<Timetable>,
    pub(super) bound: f64,
    pub(super) rows: usize,
    pub(super) seed: u64,
    pub(super) known: Lengths,
    /// Tokens of each text.
    pub(super) lengths: Vec<usize>,
}

impl<'a> Subject<'a> {
    /// The slots of each column of these texts, as packed by a client.
    pub(super) fn columns(&self, layout: Interleave, texts: &[Matrix<f64>]) -> Vec<Vec<f64>> {
        let width = self.program.width();
        match self.decodes() {
            true => columns_to_last(layout, texts, width, self.bound),
            false => columns(layout, texts, width, self.bound),
        }
    }

    /// Whether texts end in the last row.
    pub(super) fn decodes(&self) -> bool {
        self.choices.decoder.is_some()
    }

    /// The slot of a row of a text.
    pub(super) fn slot(&self, layout: Interleave, text: usize, row: usize) -> usize {
        let first = if self.decodes() { self.rows - self.lengths[text] } else { 0 };
        layout.slot(text, first + row)
    }

    pub(super) fn new(
        model: &'a Model,
        choices: &Choices,
        params: &Arc<CkksParams>,
        texts: &[Item],
        options: &Options,
    ) -> Result<Subject<'a>, FheError> {
        let program = model.program_of_all_rows();
        can_run(&program)?;
        choices.check(&program)?;
        let rows = options.rows;
        let room = Interleave::new(params.slots(), rows)?.texts();
        if texts.len() > room {
            let (texts, slots) = (texts.len(), params.slots());
            return Err(PackingError::TooMany { texts, room, slots, rows }.into());
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
    pub(super) fn place(&mut self, bootstrap: &KeySpecs, room: Option<u64>) -> Result<(), FheError> {
        let options = FheOptions { max_memory: room.map(|room| room.saturating_sub(self.held())), ..self.options() };
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
    pub(super) fn options(&self) -> FheOptions {
        planned(self.rows, self.lengths.len(), self.known)
    }

    /// Bytes that the comparison holds while the encrypted rung runs: the steps of a layer in the clear and with
    /// polynomials, three tables of differences, the columns of the other rungs between layers, and their model.
    pub(super) fn held(&self) -> u64 {
        let (width, texts) = (self.program.width(), self.lengths.len());
        let rows: usize = self.lengths.iter().sum();
        let slots = self.rows * texts.next_power_of_two();
        let table = self.program.embedding();
        let model = table.map_or(0, |e| (e.vocabulary + e.positions) * width * 4);
        ((2 * STEPS + 4) * rows * width * 8 + 2 * width * slots * 8 + model) as u64
    }

    /// The mask of tokens that a client encrypts with its columns if lengths are private, or for a decoder's softmax;
    /// otherwise `None`.
    pub(super) fn mask(&self, layout: Interleave, alive: &[usize]) -> Option<Vec<f64>> {
        let rows = match self.decodes() {
            true => token_rows_to_last,
            false => token_rows,
        };
        let masks = self.known.masks(&self.program);
        masks.then(|| rows(layout, alive))
    }

    /// A simulation with room for `texts` texts: fewer slots than the ring's are faster, and each slot has the value
    /// that it would have among all.
    pub(super) fn simulator(&self, texts: usize, errors: bool) -> Result<(Simulator, Interleave), FheError> {
        let slots = self.rows * texts.next_power_of_two();
        let on = Simulator::new(&self.params, slots)?;
        let on = match errors {
            true => on.with_errors(self.seed),
            false => on,
        };
        Ok((on, Interleave::new(slots, self.rows)?))
    }
}
