//! Values that a step cannot take: which text they are of, and the run without it.
//!
//! A simulation stops at the first value that it cannot refresh, and does not say whose it is. So the layer is run
//! again on halves of the texts, and on halves of the halves that stop, in as few slots as they need: at worst the
//! logarithm of the texts times one layer.

use super::rung::{Rung, Shown, clear, masked};
use super::{OutOfRange, Subject, Which};
use crate::error::FheError;
use crate::simulate::{Simulator, Vector};
use hushed_ckks::poly::{Arithmetic, PolyError};
use hushed_model::StepId;

/// Layer `i` of a simulated rung, without the texts that cannot be in it: those lose their rows in `alive`, and are
/// told in `found`. None if no text is left, or if it stops and no text is at fault alone.
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
        let search = Search {
            subject,
            rung,
            i,
            errors: which == Which::Predicted,
            columns: &columns,
        };
        let members: Vec<usize> = (0..alive.len()).filter(|&t| alive[t] > 0).collect();
        let guilty = search.guilty(&members)?;
        let told = |text: Option<usize>, error: &FheError| OutOfRange {
            text,
            layer: i,
            rung: which,
            message: error.to_string(),
        };
        if guilty.is_empty() {
            found.push(told(None, &error));
            return Ok(None);
        }
        for (text, error) in guilty {
            alive[text] = 0;
            found.push(told(Some(text), &error));
        }
        rung.columns = columns;
    }
}

/// Whether an error is of the numbers, not of the circuit.
fn is_range(error: &FheError) -> bool {
    matches!(
        error,
        FheError::Range { .. } | FheError::Poly(PolyError::Overflow { .. })
    )
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

    /// The layer on these texts only.
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
        let mut rung = Rung {
            on: &on,
            layout,
            columns,
            mask: masked(self.subject, &on, layout, &lengths)?,
        };
        // Nothing is read.
        rung.run(self.subject, self.i, &lengths)
    }
}
