//! A grid of matrices on slots, in the clear.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use num_complex::Complex64;
use rayon::prelude::*;

use crate::lintrans::LinTransError;

/// Matrices from `inputs` vectors of slots to `outputs` vectors: output o is Σ_i M\[o\]\[i\]·x_i, each M a sum of
/// diagonals, out\[s\] = Σ_k d_k\[s\]·x\[(s + k) mod slots\], and every diagonal repeats after `period` slots. Which
/// diagonals exist is public and follows from shapes. Entries may be weights, so `Debug` shows only shapes.
#[derive(Clone)]
pub struct MapGrid {
    slots: usize,
    period: usize,
    inputs: usize,
    outputs: usize,
    /// By output, input and offset in (−slots/2, slots/2].
    diagonals: BTreeMap<(usize, usize, i64), Vec<Complex64>>,
}

impl fmt::Debug for MapGrid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, period) = (self.diagonals.len(), self.period);
        let (outputs, inputs) = (self.outputs, self.inputs);
        write!(f, "MapGrid({outputs} × {inputs}, {count} diagonals of {period})")
    }
}

impl MapGrid {
    /// Zero maps from `inputs` to `outputs` vectors with `slots` slots each.
    ///
    /// # Errors
    /// [`LinTransError::Dimension`] unless `slots` and `period` are powers of two and `period` ≤ `slots`;
    /// [`LinTransError::Empty`] without inputs or outputs.
    pub fn new(slots: usize, period: usize, inputs: usize, outputs: usize) -> Result<Self, LinTransError> {
        if !slots.is_power_of_two() || !period.is_power_of_two() || period > slots {
            return Err(LinTransError::Dimension { given: period, limit: slots });
        }
        if inputs == 0 || outputs == 0 {
            return Err(LinTransError::Empty);
        }
        Ok(Self { slots, period, inputs, outputs, diagonals: BTreeMap::new() })
    }

    /// Slots of a vector.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Number of slots after which diagonals repeat.
    pub fn period(&self) -> usize {
        self.period
    }

    /// Number of input vectors.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Number of output vectors.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Number of diagonals.
    pub fn count(&self) -> usize {
        self.diagonals.len()
    }

    /// Whether no diagonal has an imaginary part, as is the case for masks.
    pub fn is_real(&self) -> bool {
        self.diagonals.values().flatten().all(|d| d.im == 0.0)
    }

    /// Sets the diagonal at `offset` of the map from one input to one output.
    ///
    /// # Errors
    /// [`LinTransError::Length`] unless there is one value per slot of the period, [`LinTransError::Dimension`] if the
    /// input or output does not exist.
    pub fn set(
        &mut self,
        [output, input]: [usize; 2],
        offset: i64,
        values: Vec<Complex64>,
    ) -> Result<(), LinTransError> {
        for (given, limit) in [(output, self.outputs), (input, self.inputs)] {
            if given >= limit {
                return Err(LinTransError::Dimension { given, limit });
            }
        }
        if values.len() != self.period {
            return Err(LinTransError::Length { expected: self.period, found: values.len() });
        }
        let offset = self.signed(offset);
        self.diagonals.insert((output, input, offset), values);
        Ok(())
    }

    /// Sets the map from one input to one output to the matrix `entry(row, column)` of `rows` × `columns` on every
    /// period: all rows + columns − 1 diagonals, zero where they would reach into the next period.
    ///
    /// # Errors
    /// As [`MapGrid::set`], and [`LinTransError::Dimension`] for no rows or columns, or more than a period has.
    pub fn set_block(
        &mut self,
        at: [usize; 2],
        [rows, columns]: [usize; 2],
        entry: impl Fn(usize, usize) -> Complex64,
    ) -> Result<(), LinTransError> {
        let most = rows.max(columns);
        if most > self.period || rows == 0 || columns == 0 {
            return Err(LinTransError::Dimension { given: most, limit: self.period });
        }
        for offset in 1 - rows as i64..columns as i64 {
            let place = |row: usize| {
                let column = usize::try_from(row as i64 + offset).ok()?;
                (row < rows && column < columns).then(|| entry(row, column))
            };
            let diagonal = (0..self.period).map(|row| place(row).unwrap_or_default());
            self.set(at, offset, diagonal.collect())?;
        }
        Ok(())
    }

    /// The outputs for these inputs, in the clear.
    ///
    /// # Errors
    /// [`LinTransError::Length`] if the number of inputs or of their slots is wrong.
    pub fn apply(&self, inputs: &[Vec<Complex64>]) -> Result<Vec<Vec<Complex64>>, LinTransError> {
        let lengths = inputs.iter().map(Vec::len);
        let wrong = lengths.clone().find(|&length| length != self.slots);
        if wrong.is_some() || inputs.len() != self.inputs {
            return Err(LinTransError::Length { expected: self.slots, found: wrong.unwrap_or(inputs.len()) });
        }
        let mut out = vec![vec![Complex64::ZERO; self.slots]; self.outputs];
        let add = |(output, sums): (usize, &mut Vec<Complex64>)| {
            let own = (output, 0, i64::MIN)..(output + 1, 0, i64::MIN);
            for (&(_, input, offset), values) in self.diagonals.range(own) {
                let mut from = self.rotation(offset);
                for sums in sums.chunks_exact_mut(self.period) {
                    // Up to the end of the input, then from its beginning.
                    let first = self.period.min(self.slots - from);
                    let (x, rest) = (&inputs[input], self.period - first);
                    let (low, high) = sums.split_at_mut(first);
                    add_products(low, &values[..first], &x[from..]);
                    add_products(high, &values[first..], &x[..rest]);
                    from = (from + self.period) % self.slots;
                }
            }
        };
        out.par_iter_mut().enumerate().for_each(add);
        Ok(out)
    }

    /// Output, input and offset of each diagonal.
    pub(super) fn places(&self) -> impl Iterator<Item = (usize, usize, i64)> {
        self.diagonals.keys().copied()
    }

    pub(super) fn diagonal(&self, place: (usize, usize, i64)) -> Option<&[Complex64]> {
        self.diagonals.get(&place).map(Vec::as_slice)
    }

    /// Offsets of all diagonals, ascending and distinct.
    pub(super) fn offsets(&self) -> BTreeSet<i64> {
        self.places().map(|(_, _, offset)| offset).collect()
    }

    /// The offset in (−slots/2, slots/2].
    pub(super) fn signed(&self, offset: i64) -> i64 {
        let slots = self.slots as i64;
        let offset = offset.rem_euclid(slots);
        if 2 * offset > slots { offset - slots } else { offset }
    }

    /// The offset in [0, slots).
    pub(super) fn rotation(&self, offset: i64) -> usize {
        offset.rem_euclid(self.slots as i64) as usize
    }

    /// Maxima over the outputs: sum of moduli, and of their squares, over the diagonals at one slot; sum of the
    /// diagonals' largest moduli; number of diagonals.
    pub(super) fn sums(&self) -> [f64; 4] {
        let mut most = [0.0_f64; 4];
        for output in 0..self.outputs {
            let mut slots = vec![[0.0; 2]; self.period];
            let (mut largest, mut count) = (0.0, 0.0);
            let of_output = self.diagonals.iter().filter(|(place, _)| place.0 == output);
            for (_, values) in of_output {
                for (sum, value) in slots.iter_mut().zip(values) {
                    *sum = [sum[0] + value.norm(), sum[1] + value.norm_sqr()];
                }
                largest += values.iter().map(|value| value.norm()).fold(0.0, f64::max);
                count += 1.0;
            }
            let row = slots.iter().fold([0.0_f64; 2], |[l1, l2], slot| [l1.max(slot[0]), l2.max(slot[1])]);
            let found = [row[0], row[1], largest, count];
            most = std::array::from_fn(|i| most[i].max(found[i]));
        }
        most
    }
}

/// sums += values ⊗ x.
fn add_products(sums: &mut [Complex64], values: &[Complex64], x: &[Complex64]) {
    for ((sum, d), x) in sums.iter_mut().zip(values).zip(x) {
        *sum += d * x;
    }
}
