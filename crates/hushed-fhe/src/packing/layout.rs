//! How the matrices of one text, or of a few, lie in slots (docs/one-text.md): by row, then by text, then by place.
//!
//! Slots are complex and columns are real, so a place holds a pair of columns, a + i·b. With one place per row this is
//! [`super::Interleave`].

use hushed_ckks::Complex64;
use hushed_ckks::lintrans::LinTransError;
use hushed_ckks::maps::MapGrid;

use super::PackingError;

/// The rows of a text, the texts, and the places for pairs of columns that share a vector of slots, all powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    rows: usize,
    texts: usize,
    columns: usize,
}

/// The places of the columns of a matrix: [`Spread::used`] pairs of columns in each of [`Spread::vectors`] vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spread {
    width: usize,
    used: usize,
    vectors: usize,
}

/// A matrix, by row and column.
pub type Weight<'a> = dyn Fn(usize, usize) -> f64 + 'a;

impl Layout {
    /// `rows` rows per text and `columns` places per row, for as many texts as fit in `slots` slots.
    ///
    /// # Errors
    /// [`PackingError::Rows`] unless all are powers of two and rows times columns is at most `slots`.
    pub fn new(slots: usize, rows: usize, columns: usize) -> Result<Self, PackingError> {
        let powers = [slots, rows, columns].iter().all(|x| x.is_power_of_two());
        // Sizes from a manifest: 0 rows must not divide.
        let text = rows.checked_mul(columns);
        let texts = text.and_then(|text| slots.checked_div(text)).unwrap_or(0);
        if !powers || texts == 0 {
            return Err(PackingError::Rows { rows, slots });
        }
        Ok(Self { rows, texts, columns })
    }

    /// Slots of a vector.
    pub fn slots(&self) -> usize {
        self.rows * self.texts * self.columns
    }

    /// Rows of a text.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Texts that share a vector.
    pub fn texts(&self) -> usize {
        self.texts
    }

    /// Places of a row of a text.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The slot of a place.
    pub fn slot(&self, text: usize, row: usize, place: usize) -> usize {
        (row * self.texts + text) * self.columns + place
    }

    /// The rotation of the slots that rotates every text by `rows` rows, modulo its rows.
    pub fn rotation(&self, rows: usize) -> usize {
        (rows % self.rows) * self.texts * self.columns
    }

    /// Spreads `width` columns evenly over as few vectors as hold them, in whole groups of `group` pairs (those of a
    /// head).
    ///
    /// # Errors
    /// [`PackingError::Mismatch`] if there is no column, or `group` is 0, exceeds a row, or does not divide the pairs.
    pub fn spread(&self, width: usize, group: usize) -> Result<Spread, PackingError> {
        let pairs = width.div_ceil(2);
        let fits = group > 0 && pairs > 0 && group <= self.columns;
        if !fits || !pairs.is_multiple_of(group) {
            return Err(PackingError::Mismatch);
        }
        let vectors = (pairs / group).div_ceil(self.columns / group);
        Ok(Spread { width, used: (pairs / group).div_ceil(vectors) * group, vectors })
    }

    /// Y = X·Wᵀ on pairs, with W given by `weight(row, column)`. The inputs are the vectors of X followed by their
    /// conjugates, as a real map of pairs is complex-linear in both (docs/one-text.md).
    ///
    /// # Errors
    /// As [`MapGrid::set_block`].
    pub fn map(
        &self,
        [rows, columns]: [&Spread; 2],
        weight: impl Fn(usize, usize) -> f64,
    ) -> Result<MapGrid, LinTransError> {
        self.sum_of_maps(rows, &[(*columns, &weight)])
    }

    /// Y = Σ_k X_k·W_kᵀ: as [`Layout::map`] for several matrices, each with its weights. The inputs are the vectors of
    /// the first matrix and their conjugates, then those of the next.
    ///
    /// # Errors
    /// As [`MapGrid::set_block`].
    pub fn sum_of_maps(&self, rows: &Spread, terms: &[(Spread, &Weight<'_>)]) -> Result<MapGrid, LinTransError> {
        let inputs = terms.iter().map(|(columns, _)| 2 * columns.vectors).sum();
        let mut grid = MapGrid::new(self.slots(), self.columns, inputs, rows.vectors)?;
        let mut first = 0;
        for (columns, weight) in terms {
            self.set_map(&mut grid, first, [rows, columns], weight)?;
            first += 2 * columns.vectors;
        }
        Ok(grid)
    }

    /// Sets one term of a sum, with inputs numbered from `first`.
    fn set_map(
        &self,
        grid: &mut MapGrid,
        first: usize,
        [rows, columns]: [&Spread; 2],
        weight: &Weight<'_>,
    ) -> Result<(), LinTransError> {
        let inputs = columns.vectors;
        let at = |row: usize, column: usize| match row < rows.width && column < columns.width {
            true => weight(row, column),
            false => 0.0,
        };
        for output in 0..rows.vectors {
            for input in 0..inputs {
                for sign in [1.0, -1.0] {
                    let entry = |row: usize, column: usize| {
                        let r = 2 * (output * rows.used + row);
                        let c = 2 * (input * columns.used + column);
                        let [a, b] = [at(r, c), at(r, c + 1)];
                        let [p, q] = [at(r + 1, c), at(r + 1, c + 1)];
                        Complex64::new(a + sign * q, p - sign * b) / 2.0
                    };
                    let input = first + input + if sign < 0.0 { inputs } else { 0 };
                    grid.set_block([output, input], [rows.used, columns.used], entry)?;
                }
            }
        }
        Ok(())
    }
}

impl Spread {
    /// Columns of the matrix.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The places of `count` such matrices, each after the vectors of the one before.
    ///
    /// # Errors
    /// [`PackingError::Mismatch`] if the last vector is not full: the next matrix's columns would start before its end.
    pub fn repeated(&self, count: usize) -> Result<Spread, PackingError> {
        match self.is_even() {
            true => Ok(Spread { width: count * self.width, used: self.used, vectors: count * self.vectors }),
            false => Err(PackingError::Mismatch),
        }
    }

    /// Whether all vectors hold the same number of columns.
    pub fn is_even(&self) -> bool {
        self.width == 2 * self.used * self.vectors
    }

    /// The place of a column: vector, place, and part of the pair.
    pub fn place(&self, column: usize) -> (usize, usize, usize) {
        let pair = column / 2;
        (pair / self.used, pair % self.used, column % 2)
    }

    /// The pair of columns at a place, including columns beyond the last; none at an unused place.
    pub fn columns_at(&self, vector: usize, place: usize) -> Option<[usize; 2]> {
        let first = 2 * (vector * self.used + place);
        (place < self.used && vector < self.vectors).then_some([first, first + 1])
    }

    /// Places used in every vector.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Vectors.
    pub fn vectors(&self) -> usize {
        self.vectors
    }

    /// Packs vector number `vector` of the matrices `entry(text, row, column)`, with zeros where there is no column.
    pub fn pack(&self, layout: Layout, vector: usize, entry: impl Fn(usize, usize, usize) -> f64) -> Vec<Complex64> {
        let mut slots = vec![Complex64::ZERO; layout.slots()];
        for row in 0..layout.rows {
            for text in 0..layout.texts {
                for place in 0..self.used {
                    let first = 2 * (vector * self.used + place);
                    let part = |c: usize| match c < self.width {
                        true => entry(text, row, c),
                        false => 0.0,
                    };
                    slots[layout.slot(text, row, place)] = Complex64::new(part(first), part(first + 1));
                }
            }
        }
        slots
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packing::Interleave;

    fn entry(text: usize, row: usize, column: usize) -> f64 {
        ((text * 7919 + row * 104_729 + column * 1_299_709 + 17) % 10_007) as f64 / 5_003.0 - 1.0
    }

    #[test]
    fn one_column_is_the_interleaving_of_a_batch() {
        let (one, batch) = (Layout::new(256, 16, 1).unwrap(), Interleave::new(256, 16).unwrap());
        assert_eq!(one.texts(), batch.texts());
        for (text, row) in [(0, 0), (3, 5), (15, 15)] {
            assert_eq!(one.slot(text, row, 0), batch.slot(text, row));
        }
        assert_eq!(one.rotation(18), batch.rotation(18));
        assert!(Layout::new(256, 16, 32).is_err() && Layout::new(256, 12, 1).is_err());
    }

    #[test]
    fn heads_stay_whole_and_vectors_are_even() {
        let layout = Layout::new(1 << 15, 128, 256).unwrap();
        for (width, group, used, vectors) in
            [(384, 16, 192, 1), (1536, 1, 256, 3), (768, 32, 192, 2), (3072, 1, 256, 6), (1152, 16, 192, 3)]
        {
            let spread = layout.spread(width, group).unwrap();
            assert_eq!((spread.used(), spread.vectors()), (used, vectors));
        }
        assert!(layout.spread(384, 512).is_err() && layout.spread(384, 9).is_err());
    }

    /// Two input vectors, three output vectors, unused places in all of them, and an odd width.
    #[test]
    fn a_map_of_pairs_is_the_matrix_in_the_clear() {
        let layout = Layout::new(256, 8, 16).unwrap();
        let (rows, columns) = (75, 44);
        let (out, x) = (layout.spread(rows, 1).unwrap(), layout.spread(columns, 1).unwrap());
        assert_eq!((out.vectors(), x.vectors()), (3, 2));
        let weight = |r: usize, c: usize| entry(1, r, c);
        let grid = layout.map([&out, &x], weight).unwrap();
        // Garbage in the places that X does not use must not matter.
        let garbage = |slots: Vec<Complex64>| -> Vec<Complex64> {
            let place = |s: usize| s % layout.columns() < x.used();
            let filled = slots.into_iter().enumerate();
            filled.map(|(s, z)| if place(s) { z } else { Complex64::new(3.0, -5.0) }).collect()
        };
        let packed = (0..x.vectors()).map(|v| garbage(x.pack(layout, v, entry)));
        let mut inputs: Vec<Vec<Complex64>> = packed.collect();
        let conjugates: Vec<Vec<Complex64>> = inputs.iter().map(|z| z.iter().map(Complex64::conj).collect()).collect();
        inputs.extend(conjugates);
        let found = grid.apply(&inputs).unwrap();
        let product = |text: usize, row: usize, r: usize| -> f64 {
            (0..columns).map(|c| entry(text, row, c) * weight(r, c)).sum()
        };
        for (v, found) in found.iter().enumerate() {
            let expected = out.pack(layout, v, product);
            for (a, b) in found.iter().zip(&expected) {
                assert!((a - b).norm() < 1e-12, "{a} {b}");
            }
        }
    }
}
