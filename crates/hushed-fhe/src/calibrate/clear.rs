//! Runs texts through the circuit in the clear, in batches of similar length: with exact functions, to measure, or with
//! polynomials.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_model::{Item, Matrix, Model, Program};

use super::measure::{Measure, Seen, Structure, open};
use crate::packing::Interleave;
use crate::plan::public_plan::Lengths;
use crate::simulate::{Batch, Vector, embedded, those_within};
use crate::tape::encoder::begins_with_norm;
use crate::{Choices, FheError, Placement, Simulator, Slots, Viewer};

/// Maximum slots of a batch: its vectors fit a cache.
const SLOTS: usize = 4096;

/// Texts that have the same number of rows.
struct Group {
    rows: usize,
    /// Their indices among all texts.
    texts: Vec<usize>,
}

/// Groups texts by length: an answer does not depend on padding, and every row costs time. If there is room, a text
/// gets two padding rows: the first may receive the last token's row by a rotation, all others are alike.
fn groups(texts: &[Item], most: usize) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let rows_of = |text: &Item| (text.rows().real + 2).min(most).next_power_of_two();
    for (i, text) in texts.iter().enumerate() {
        let rows = rows_of(text);
        let room = (SLOTS / rows).max(1);
        match groups.iter_mut().rfind(|g| g.rows == rows) {
            Some(group) if group.texts.len() < room => group.texts.push(i),
            _ => groups.push(Group { rows, texts: vec![i] }),
        }
    }
    groups
}

/// A model in the clear, with the primes and scales of a parameter set.
pub(super) struct Clear<'a> {
    pub model: &'a Model,
    pub params: &'a Arc<CkksParams>,
    /// Maximum rows per text.
    pub rows: usize,
}

impl Clear<'_> {
    /// Adds the arguments of exact functions to `seen`, and returns the answers, not yet of unit length.
    pub fn measured(
        &self,
        structure: &Structure,
        texts: &[Item],
        mut seen: Seen,
        ordinary: bool,
    ) -> Result<(Seen, Vec<Vec<f64>>), FheError> {
        let mut answers = vec![Vec::new(); texts.len()];
        for group in groups(texts, self.rows) {
            let (all, found) = self.group(structure, &group, texts, vec![seen], ordinary)?;
            seen = all.into_iter().next().unwrap_or_default();
            for (&i, answer) in group.texts.iter().zip(found) {
                answers[i] = answer;
            }
        }
        Ok((seen, answers))
    }

    /// As [`Clear::measured`], each text by itself.
    pub fn measured_each(&self, structure: &Structure, texts: &[Item]) -> Result<Vec<Seen>, FheError> {
        let mut seen = vec![Seen::default(); texts.len()];
        for group in groups(texts, self.rows) {
            let nothing = vec![Seen::nothing(&self.model.program_of_all_rows()); group.texts.len()];
            let (found, _) = self.group(structure, &group, texts, nothing, true)?;
            for (&i, found) in group.texts.iter().zip(found) {
                seen[i] = found;
            }
        }
        Ok(seen)
    }

    /// Runs one group of `texts` with exact functions: adds to `seen`, which is of all texts or of each, and returns
    /// the answers.
    fn group(
        &self,
        structure: &Structure,
        group: &Group,
        texts: &[Item],
        seen: Vec<Seen>,
        ordinary: bool,
    ) -> Result<(Vec<Seen>, Vec<Vec<f64>>), FheError> {
        let program = self.model.program_of_all_rows();
        let choices = open(&program, structure, self.rows)?;
        let texts = group.embedded(&program, texts)?;
        let lengths = texts.iter().map(Matrix::rows).collect();
        let on = self.simulator(group)?;
        let layout = Interleave::new(on.slots(), group.rows)?;
        let measure = Measure::new(layout, lengths, (seen, ordinary), (&program, structure));
        if begins_with_norm(&program) {
            measure.sent(&texts);
        }
        let on = on.exact(measure.clone());
        let viewer = Some(measure.viewer());
        let found = self.run(&on, &program, &choices, group, &texts, viewer)?;
        Ok((measure.seen(), found))
    }

    /// The answers of texts computed with polynomials, not yet of unit length; `None` for a text that leaves an
    /// interval. Includes simulated errors drawn from `seed`, if there is one.
    pub fn answers(
        &self,
        choices: &Choices,
        texts: &[Item],
        seed: Option<u64>,
    ) -> Result<Vec<Option<Vec<f64>>>, FheError> {
        let program = self.model.program_of_all_rows();
        let mut answers: Vec<Option<Vec<f64>>> = vec![None; texts.len()];
        for group in groups(texts, self.rows) {
            let embedded = group.embedded(&program, texts)?;
            let found = those_within(&embedded, &mut |texts| {
                let on = self.simulator(&group)?;
                let on = match seed {
                    Some(seed) => on.with_errors(seed),
                    None => on,
                };
                self.run(&on, &program, choices, &group, texts, None)
            })?;
            for (&i, answer) in group.texts.iter().zip(found) {
                answers[i] = answer;
            }
        }
        Ok(answers)
    }

    fn simulator(&self, group: &Group) -> Result<Simulator, FheError> {
        let slots = group.rows * group.texts.len().next_power_of_two();
        Simulator::new(self.params, slots)
    }

    /// The answers that clients decrypt.
    fn run<'a>(
        &'a self,
        on: &'a Simulator,
        program: &'a Program,
        choices: &'a Choices,
        group: &Group,
        texts: &[Matrix<f64>],
        viewer: Option<Viewer<'a, Vector>>,
    ) -> Result<Vec<Vec<f64>>, FheError> {
        let width = program.attentions().next().map_or(1, |a| a.heads.width);
        let all = texts.iter().flat_map(|x| x.data());
        let batch = Batch {
            program,
            choices,
            placement: &Placement::plain(on.top(), group.rows, width),
            lengths: Lengths::Public,
            bound: all.fold(1.0, |m: f64, v| m.max(v.abs())),
        };
        batch.run(on, group.rows, texts, viewer)
    }
}

impl Group {
    fn embedded(&self, program: &Program, texts: &[Item]) -> Result<Vec<Matrix<f64>>, FheError> {
        let embedded = self.texts.iter().map(|&i| embedded(program, &texts[i]));
        Ok(embedded.collect::<Result<_, _>>()?)
    }
}
