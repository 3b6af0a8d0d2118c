//! A rung over [`Slots`]: runs a layer from columns to columns, and reads the numbers of every step from its vectors.

use hushed_ckks::poly::Arithmetic;
use hushed_model::{Matrix, StepId};

use super::subject::Subject;
use crate::error::FheError;
use crate::ops::mask::RowsKnown;
use crate::ops::pool::unpack;
use crate::packing::Interleave;
use crate::pass::{Look, Pass, Texts};
use crate::plan::public_plan::AnswerRows;
use crate::simulate::{Simulator, Vector};
use crate::slots::Slots;

/// The results of the steps of a layer, each as the rows of all texts, one text after another.
pub(super) type Shown = Vec<(StepId, Matrix<f64>)>;

/// Called with the result of each step, as the rows of all texts.
pub(super) type Take<'a> = &'a mut dyn FnMut(StepId, Matrix<f64>);

/// Reads the numbers of a vector: in the clear, or by decryption.
pub(super) type Open<'a, V> = &'a dyn Fn(&V) -> Result<Vec<f64>, FheError>;

/// A run between two layers.
pub(super) struct Rung<'a, S: Slots> {
    pub on: &'a S,
    pub layout: Interleave,
    pub columns: Vec<S::Value>,
    /// The mask of token rows, unless lengths are public.
    pub mask: Option<S::Value>,
}

impl<'a, S: Slots> Rung<'a, S> {
    /// Runs layer `i` on the columns; the results of its steps go to `take`, one by one. `alive` is the number of rows
    /// of each text, 0 for one that is left out.
    pub fn layer(
        &mut self,
        subject: &Subject<'_>,
        i: usize,
        alive: &[usize],
        open: Open<'_, S::Value>,
        take: Take<'_>,
    ) -> Result<(), FheError> {
        let reader = Reader { subject, layout: self.layout, open };
        let mut pass = self.pass(subject, alive)?;
        pass.view(Box::new(move |at, look| {
            take(at, reader.read(look)?);
            Ok(())
        }));
        self.through(&mut pass, i)
    }

    /// The same, without a viewer.
    pub fn run(&mut self, subject: &Subject<'_>, i: usize, alive: &[usize]) -> Result<(), FheError> {
        let mut pass = self.pass(subject, alive)?;
        self.through(&mut pass, i)
    }

    fn through(&mut self, pass: &mut Pass<'_, S>, i: usize) -> Result<(), FheError> {
        let columns = std::mem::take(&mut self.columns);
        let x = pass.resume(i, columns)?;
        self.columns = pass.layer(i, x)?.columns;
        Ok(())
    }

    /// The pooled row of each text.
    pub fn pooled(
        &mut self,
        subject: &Subject<'_>,
        alive: &[usize],
        open: Open<'_, S::Value>,
    ) -> Result<Vec<Vec<f64>>, FheError> {
        let mut pass = self.pass(subject, alive)?;
        let columns = std::mem::take(&mut self.columns);
        let x = pass.resume(pass.layers(), columns)?;
        let pooled = pass.finish(x)?;
        let vectors: Result<Vec<_>, _> = pooled.vectors.iter().map(open).collect();
        let (width, factor) = (pooled.width, pooled.factor);
        Ok(unpack(self.layout, alive, width, factor, &vectors?)?)
    }

    fn pass<'b>(&self, subject: &'b Subject<'_>, alive: &[usize]) -> Result<Pass<'b, S>, FheError>
    where
        'a: 'b,
    {
        let layout = self.layout;
        let rows = match &self.mask {
            mask if subject.decodes() => Texts::Last(layout, AnswerRows::Last, mask.clone()),
            Some(mask) => Texts::Columns(RowsKnown::private(layout, mask.clone())),
            None => Texts::Columns(RowsKnown::public(layout, alive.to_vec())?),
        };
        let placement = subject.placement.clone();
        let (program, choices) = (&subject.program, &subject.choices);
        Pass::over(self.on, (program, choices), placement, rows, subject.bound)
    }
}

impl<'a> Rung<'a, Simulator> {
    /// The vectors that a client would send for these texts (embedded and normalised), in the clear.
    pub fn simulated(
        subject: &Subject<'_>,
        on: &'a Simulator,
        layout: Interleave,
        texts: &[Matrix<f64>],
    ) -> Result<Rung<'a, Simulator>, FheError> {
        let columns = subject.columns(layout, texts);
        let limbs = subject.placement.attention;
        let vectors = columns.into_iter().map(|v| on.vector(v, limbs));
        Ok(Rung {
            on,
            layout,
            columns: vectors.collect::<Result<_, _>>()?,
            mask: masked(subject, on, layout, &subject.lengths)?,
        })
    }

    /// Zeroes the places of texts that are left out.
    pub fn leave_out(&mut self, subject: &Subject<'_>, alive: &[usize]) -> Result<(), FheError> {
        let texts = self.layout.texts();
        let blank = |v: &Vector| {
            let kept = |(slot, &x): (usize, &f64)| match alive.get(slot % texts) {
                Some(0) => 0.0,
                _ => x,
            };
            let values = v.values().iter().enumerate().map(kept).collect();
            self.on.vector(values, self.on.limbs(v))
        };
        self.columns = self.columns.iter().map(blank).collect::<Result<_, _>>()?;
        self.mask = masked(subject, self.on, self.layout, alive)?;
        Ok(())
    }

    /// Pooled rows.
    pub fn pool(&mut self, subject: &Subject<'_>, alive: &[usize]) -> Result<Vec<Vec<f64>>, FheError> {
        self.pooled(subject, alive, &clear)
    }
}

/// The mask of token rows, for a simulated rung.
pub(super) fn masked(
    subject: &Subject<'_>,
    on: &Simulator,
    layout: Interleave,
    alive: &[usize],
) -> Result<Option<Vector>, FheError> {
    let mask = subject.mask(layout, alive);
    mask.map(|mask| on.vector(mask, subject.placement.upload)).transpose()
}

/// The numbers of a simulated vector.
pub(super) fn clear(v: &Vector) -> Result<Vec<f64>, FheError> {
    Ok(v.values().to_vec())
}

/// Converts vectors of slots to the rows of all texts.
struct Reader<'a, V> {
    subject: &'a Subject<'a>,
    layout: Interleave,
    open: Open<'a, V>,
}

impl<V> Reader<'_, V> {
    fn read(&self, look: Look<'_, V>) -> Result<Matrix<f64>, FheError> {
        match look {
            Look::Columns { columns, gain, offset } => self.rows(columns, |j| (gain[j], offset[j])),
            Look::Centred { columns, scale } => self.rows(columns, |_| (1.0 / scale, 0.0)),
        }
    }

    /// gain·v + offset, for each column's gain and offset.
    fn rows(&self, columns: &[V], affine: impl Fn(usize) -> (f64, f64)) -> Result<Matrix<f64>, FheError> {
        let lengths = &self.subject.lengths;
        let mut out = Matrix::zero(lengths.iter().sum(), columns.len());
        for (j, column) in columns.iter().enumerate() {
            let (values, (gain, offset)) = ((self.open)(column)?, affine(j));
            let slots = lengths.iter().enumerate();
            let slots = slots.flat_map(|(t, &m)| (0..m).map(move |row| self.subject.slot(self.layout, t, row)));
            for (row, slot) in slots.enumerate() {
                out.row_mut(row)[j] = gain * values[slot] + offset;
            }
        }
        Ok(out)
    }
}
