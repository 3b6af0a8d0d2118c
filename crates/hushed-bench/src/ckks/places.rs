//! A matrix times one vector, with shares of the outputs spread over all slots, so that few diagonals are left.
//!
//! The slots are cut into `classes` runs of `step` slots, each with a slot for every output. A class adds up its share
//! of an output's products, `offsets` of them, and the shares are summed by rotations by `step`, 2·`step`, ….
//!
//! ```text
//! u[s] = Σ_{j < offsets} W[row(s), column(s + j)] · x[column(s + j)]         offsets diagonals, baby and giant steps
//! y[row(s)] = Σ_c u[s + c·step]                                              log2(classes) rotations
//! ```
//!
//! Classes have different shares because their columns are shifted against each other: by the input itself if a client
//! packs it ([`Places::packed`]), or by a `step` that is an odd number of shares ([`Places::repeated`]).

use hushed_ckks::lintrans::{Diagonals, LinTransError};

/// Which output and which input each slot holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    slots: usize,
    rows: usize,
    columns: usize,
    /// Number of slots after which columns repeat within a class.
    period: usize,
    /// By how many columns a class is ahead of the previous one.
    shift: usize,
    step: usize,
    classes: usize,
    offsets: usize,
}

impl Places {
    /// For an input that the client packs: each class is ahead of the previous one by as many columns as a class takes.
    /// The results repeat through all slots, with the next power of two above their number as the period.
    ///
    /// # Errors
    /// [`LinTransError::Dimension`] if a class would have less than one column.
    pub(crate) fn packed(slots: usize, [rows, columns]: [usize; 2]) -> Result<Self, LinTransError> {
        let (step, period) = (rows.next_power_of_two(), columns.next_power_of_two());
        let classes = slots / step;
        if classes == 0 || classes > period {
            return Err(LinTransError::Dimension { given: rows, limit: slots });
        }
        let offsets = period / classes;
        Ok(Self { slots, rows, columns, period, shift: offsets, step, classes, offsets })
    }

    /// For an input that repeats, as the results of [`Places::packed`] do. The results are in the first slots; other
    /// slots hold partial sums of them.
    ///
    /// # Errors
    /// Those of [`Places::packed`], also if there are too many rows for the classes to be shifted.
    pub(crate) fn repeated(slots: usize, shape: [usize; 2]) -> Result<Self, LinTransError> {
        let packed = Self::packed(slots, shape)?;
        // An odd number of shares, so that the first columns of the classes run through all multiples of a share modulo
        // the period, each once.
        let shares = (packed.step / packed.offsets).saturating_sub(1) | 1;
        let step = shares * packed.offsets;
        if step < packed.rows || step * packed.classes > slots {
            return Err(LinTransError::Dimension { given: packed.rows, limit: step });
        }
        Ok(Self { shift: 0, step, ..packed })
    }

    /// The column of x in an input slot.
    pub(crate) fn column(&self, slot: usize) -> Option<usize> {
        let column = (slot + slot / self.step * self.shift) % self.period;
        (column < self.columns).then_some(column)
    }

    /// The output of which a slot holds a share.
    pub(crate) fn row(&self, slot: usize) -> Option<usize> {
        let (class, row) = (slot / self.step, slot % self.step);
        (class < self.classes && row < self.rows).then_some(row)
    }

    /// The shares of the outputs as a matrix on the slots, given the weight of a row and a column.
    pub(crate) fn matrix(&self, weight: impl Fn(usize, usize) -> f64) -> Result<Diagonals, LinTransError> {
        let mut matrix = Diagonals::new(self.slots)?;
        for j in 0..self.offsets {
            let entry = |slot: usize| {
                let at = self.row(slot).zip(self.column((slot + j) % self.slots));
                at.map_or(0.0, |(row, column)| weight(row, column))
            };
            let diagonal = (0..self.slots).map(|slot| entry(slot).into());
            matrix.set(j as i64, diagonal.collect())?;
        }
        Ok(matrix)
    }

    /// The rotations that sum the shares.
    pub(crate) fn folds(&self) -> Vec<i64> {
        let folds = (0..self.classes.trailing_zeros()).map(|i| (self.step << i) as i64);
        folds.collect()
    }
}
