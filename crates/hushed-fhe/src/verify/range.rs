//! Values that are too large for a step: finds their text, and runs the layer without it.
//!
//! A simulation stops at the first value that it cannot refresh, and does not know its text. So the layer is run again
//! on halves of the texts, and on halves of the halves that stop, in as few slots as they need: this takes at most the
//! time of one layer times the logarithm of the number of texts.

use super::options::{OutOfRange, Which};
use super::rung::{Rung, Shown, clear, masked};
use super::subject::Subject;
use crate::error::FheError;
use crate::simulate::{Simulator, Vector};
use hushed_ckks::poly::{Arithmetic, PolyError};
use hushed_model::StepId;

/// Runs layer `i` of a simulated rung without the texts that leave a range: their `alive` becomes 0, and they are added
/// to `found`. `None` if no text is left, or if the layer stops and no text alone is the cause.
pub(super) fn settle(
    subject: &Subject<'_>,
    i: usize,
    which: Which,
    rung: &mut Rung<'_, Simulator>,
    alive: &mut [usize],
    found: &mut Vec<OutOfRange>,
) -> Result<Option<Shown>, FheError> {
    loop {
        if alive.iter().all(|&rows| rows == 0) {
            return Ok(None);
        }
        rung.leave_out(subject, alive)?;
        let columns = rung.columns.clone();
        let mut shown = Shown::new();
        let mut take = |at: StepId, values| shown.push((at, values));
        let error = match rung.layer(subject, i, alive, &clear, &mut take) {
            Ok(()) => return Ok(Some(shown)),
            Err(error) if is_range(&error) => error,
            Err(error) => return Err(error),
        };
        let search = Search { subject, rung, i, errors: which == Which::Predicted, columns: &columns };
        let members: Vec<usize> = (0..alive.len()).filter(|&t| alive[t] > 0).collect();
        let guilty = search.guilty(&members)?;
        let out_of_range = |text: Option<usize>, error: &FheError| OutOfRange {
            text,
            layer: Some(i),
            rung: which,
            message: error.to_string(),
        };
        if guilty.is_empty() {
            found.push(out_of_range(None, &error));
            return Ok(None);
        }
        for (text, error) in guilty {
            alive[text] = 0;
            found.push(out_of_range(Some(text), &error));
        }
        rung.columns = columns;
    }
}

/// Whether an error is caused by the numbers, not by the circuit.
pub(super) fn is_range(error: &FheError) -> bool {
    matches!(error, FheError::Range { .. } | FheError::Poly(PolyError::Overflow { .. }))
}

struct Search<'a, 'b> {
    subject: &'a Subject<'a>,
    rung: &'a Rung<'b, Simulator>,
    i: usize,
    errors: bool,
    columns: &'a [Vector],
}

impl Search<'_, '_> {
    /// The texts among `members` that stop the layer by themselves.
    fn guilty(&self, members: &[usize]) -> Result<Vec<(usize, FheError)>, FheError> {
        let error = match self.alone(members) {
            Ok(()) => return Ok(Vec::new()),
            Err(error) if is_range(&error) => error,
            Err(error) => return Err(error),
        };
        if let &[text] = members {
            return Ok(vec![(text, error)]);
        }
        let (left, right) = members.split_at(members.len() / 2);
        let mut guilty = self.guilty(left)?;
        guilty.extend(self.guilty(right)?);
        Ok(guilty)
    }

    /// Runs the layer on these texts only.
    fn alone(&self, members: &[usize]) -> Result<(), FheError> {
        let (on, layout) = self.subject.simulator(members.len(), self.errors)?;
        let all = self.rung.layout;
        let pick = |v: &Vector| {
            let number = |text: usize, row: usize| v.values()[all.slot(members[text], row)];
            let values = layout.vector(members.len(), number);
            on.vector(values, self.rung.on.limbs(v))
        };
        let columns = self.columns.iter().map(pick).collect::<Result<_, _>>()?;
        let lengths: Vec<usize> = members.iter().map(|&t| self.subject.lengths[t]).collect();
        let mut rung = Rung { on: &on, layout, columns, mask: masked(self.subject, &on, layout, &lengths)? };
        // The result is not read.
        rung.run(self.subject, self.i, &lengths)
    }
}
