//! The two products of attention for all heads of a text at once, in packed rows ([`Layout`]; docs/one-text.md has the
//! derivation and the counts). They use MOAI's diagonals, with the columns of a head in adjacent places.
//!
//! `tape/packed/products.rs` records them.
//!
//! A head has p places, p = J·E. For both products one operand is copied J times, with the copies sheared by rows, so a
//! product of copies holds J diagonals. E of these fit into one vector once the places they are summed over are free.
//!
//! ```text
//! Q_a at place (j, e) = q[r, E·a + e],   K_a at place (j, e) = k[r + j, E·a + e]        place E·j + e, j, a < J
//! V_g = Σ_a Q_a ⊗ Rot_{J·g rows}(K_a)                                                  g < R/J
//! S_v at place (j, e) = Re Σ_{e'} V_{E·v + e} at place (j, e')                          v < R/p
//!     = the score of row r with row r + p·v + J·e + j
//! ```
//!
//! The sums over g are split into baby and giant steps as for a batch ([`super::products`]).
//!
//! *Causal* heads ([`Heads::causal`]) count diagonals backwards: diagonal δ of row r is key r − δ. With T = J·B·(giant
//! step) and t = J·(baby step) + j, row u of a product of copies in the frame of its giant step has query u + T and key
//! u − t, so δ = T + t. The key is not after the query exactly when neither wraps around: u + T < R and u ≥ t. This is
//! a factor of the queries times a factor of the keys, so both masks join the plaintexts of the rotary turns, and no
//! diagonal is special. Scores stay in these frames: functions work slot by slot, and P·V takes them there.

use hushed_ckks::Complex64;
use hushed_ckks::lintrans::LinTransError;
use hushed_ckks::maps::{GridSplit, MapGrid};

use super::{Layout, PackingError};

/// The heads of a matrix in packed rows, p pairs of columns per head, head after head, and how products are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    layout: Layout,
    pairs: usize,
    copies: usize,
    baby: usize,
    causal: bool,
}

/// A copy of an operand of causal scores in one step of their sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// Queries of a giant step.
    Query {
        /// The copy.
        copy: usize,
        /// The step.
        giant: usize,
    },
    /// Keys of a baby step.
    Key {
        /// The copy.
        copy: usize,
        /// The step.
        baby: usize,
    },
}

impl Heads {
    /// Heads of `pairs` pairs, copied `copies` (J) times, with `baby` (B) baby steps for the R/J groups of rows.
    ///
    /// # Errors
    /// [`PackingError::Mismatch`] unless the pairs divide the places of a row, J divides the pairs, J·B the rows, and E
    /// = p/J the baby steps.
    pub fn new(layout: Layout, pairs: usize, copies: usize, baby: usize) -> Result<Heads, PackingError> {
        let divides = |x: usize, y: usize| x > 0 && y.is_multiple_of(x);
        let whole = divides(pairs, layout.columns())
            && divides(copies, pairs)
            && divides(copies * baby, layout.rows())
            && divides(pairs / copies, baby);
        if !whole {
            return Err(PackingError::Mismatch);
        }
        Ok(Heads { layout, pairs, copies, baby, causal: false })
    }

    /// The same with diagonals of earlier rows: diagonal δ of row r is key r − δ.
    #[must_use]
    pub fn causal(self) -> Heads {
        Heads { causal: true, ..self }
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The number of vectors of scores: R/p.
    pub fn vectors(&self) -> usize {
        self.layout.rows() / self.pairs
    }

    /// The (vector, slot) of the score of row `row` of a text with row `row + diagonal`; for causal heads, with row
    /// `row − diagonal`.
    pub fn score(&self, [text, row]: [usize; 2], head: usize, diagonal: usize) -> (usize, usize) {
        let (vector, rest) = (diagonal / self.pairs, diagonal % self.pairs);
        let (e, j) = (rest / self.copies, rest % self.copies);
        let place = head * self.pairs + self.inner() * j + e;
        let rows = self.layout.rows();
        let row = (row + rows - self.frame(vector)) % rows;
        (vector, self.layout.slot(text, row, place))
    }

    /// All heads that a row has places for, used or not.
    pub fn count(&self) -> usize {
        self.layout.columns() / self.pairs
    }

    /// J.
    pub(crate) fn copies(&self) -> usize {
        self.copies
    }

    /// B.
    pub(crate) fn baby(&self) -> usize {
        self.baby
    }

    /// Pairs per head.
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// The diagonal at place `place` of vector `vector` of the scores: row r holds the score with key r + diagonal,
    /// modulo R. For causal heads see [`Heads::sees`].
    pub fn diagonal(&self, vector: usize, place: usize) -> usize {
        let within = place % self.pairs;
        let (j, e) = (within / self.inner(), within % self.inner());
        self.pairs * vector + self.copies * e + j
    }

    /// Whether the key of a slot of causal scores is not after its query.
    pub fn sees(&self, vector: usize, row: usize, place: usize) -> bool {
        let frame = self.frame(vector);
        let rest = self.diagonal(vector, place).saturating_sub(frame);
        row >= rest && row + frame < self.layout.rows()
    }

    /// The row of a text and the pair of its head that a slot of a turned copy holds; none if it is masked.
    pub fn source(&self, which: Turned, row: usize, place: usize) -> Option<(usize, usize)> {
        let within = place % self.pairs;
        let (j, e) = (within / self.inner(), within % self.inner());
        let (row, copy) = match which {
            Turned::Query { copy, giant } => {
                let query = row + giant * self.baby * self.copies;
                ((query < self.layout.rows()).then_some(query), copy)
            }
            Turned::Key { copy, baby } => (row.checked_sub(self.copies * baby + j), copy),
        };
        Some((row?, self.inner() * copy + e))
    }

    /// Rows by which the frame of vector `vector` of causal scores lags behind the queries; 0 for other heads.
    fn frame(&self, vector: usize) -> usize {
        let giant = vector * self.inner() / self.baby;
        if self.causal { giant * self.baby * self.copies } else { 0 }
    }

    /// The rotation, in slots, that brings row r + `rows` to row r; for causal heads, row r − `rows`.
    pub(crate) fn rotation(&self, rows: usize) -> usize {
        let (by, slots) = (self.layout.rotation(rows), self.layout.slots());
        if self.causal { (slots - by) % slots } else { by }
    }

    /// E.
    pub(crate) fn inner(&self) -> usize {
        self.pairs / self.copies
    }

    /// The number of giant steps of a product.
    pub(crate) fn giants(&self) -> usize {
        self.layout.rows() / (self.copies * self.baby)
    }

    /// The rotation of giant step `giant`, in slots.
    pub(crate) fn turn(&self, giant: usize) -> usize {
        self.rotation(giant * self.baby * self.copies)
    }

    /// The rotation of a giant step's sums that scores apply and P·V undoes; 0 for causal heads.
    pub(crate) fn home(&self, giant: usize) -> usize {
        if self.causal { 0 } else { self.turn(giant) }
    }

    /// The rotations of the baby steps, in slots.
    pub(crate) fn babies(&self) -> Vec<usize> {
        (0..self.baby).map(|b| self.rotation(b * self.copies)).collect()
    }

    /// One row: 1 at the places (j, e) of every head to keep, 0 elsewhere.
    pub(crate) fn mask(&self, keep: impl Fn(usize, usize) -> bool) -> Vec<Complex64> {
        let places = (0..self.layout.columns()).map(|place| place % self.pairs);
        places.map(|u| f64::from(u8::from(keep(u / self.inner(), u % self.inner()))).into()).collect()
    }

    fn grid(&self, inputs: usize, outputs: usize) -> Result<MapGrid, LinTransError> {
        MapGrid::new(self.layout.slots(), self.layout.columns(), inputs, outputs)
    }

    /// Maps one vector to its J copies: copy a holds places E·a … E·a + E − 1 of each head at every j, from row r + j
    /// if sheared.
    pub(crate) fn copied(&self, sheared: bool) -> Result<(MapGrid, GridSplit), LinTransError> {
        let mut grid = self.grid(1, self.copies)?;
        for a in 0..self.copies {
            for j in 0..self.copies {
                let rows = if sheared { self.rotation(j) } else { 0 };
                let offset = distance(self.inner(), a, j) + rows as i64;
                grid.set([a, 0], offset, self.mask(|place, _| place == j))?;
            }
        }
        let split = GridSplit::diagonal(&grid)?;
        Ok((grid, split))
    }

    /// Maps E vectors to one: place (j, e) is the sum of vector e over the places (j, ·), all rotated by `turn`.
    pub(crate) fn gathered(&self, turn: usize) -> Result<(MapGrid, GridSplit), LinTransError> {
        let mut grid = self.grid(self.inner(), 1)?;
        for e in 0..self.inner() {
            for other in 0..self.inner() {
                let offset = distance(1, other, e) + turn as i64;
                grid.set([0, e], offset, self.mask(|_, place| place == e))?;
            }
        }
        let split = GridSplit::around(&grid, &[turn as i64])?;
        Ok((grid, split))
    }

    /// Maps one vector to E: vector e holds the entry of place (j, e) at all places (j, ·), rotated back by `turn`.
    pub(crate) fn expanded(&self, turn: usize) -> Result<(MapGrid, GridSplit), LinTransError> {
        let mut grid = self.grid(1, self.inner())?;
        for e in 0..self.inner() {
            for other in 0..self.inner() {
                let offset = distance(1, e, other) - turn as i64;
                grid.set([e, 0], offset, self.mask(|_, place| place == other))?;
            }
        }
        let split = GridSplit::diagonal(&grid)?;
        Ok((grid, split))
    }

    /// Maps J vectors to one: place (a, e) is the sum of vector a over the places (·, e).
    pub(crate) fn summed(&self) -> Result<(MapGrid, GridSplit), LinTransError> {
        let mut grid = self.grid(self.copies, 1)?;
        for a in 0..self.copies {
            for j in 0..self.copies {
                let offset = distance(self.inner(), j, a);
                grid.set([0, a], offset, self.mask(|place, _| place == a))?;
            }
        }
        let split = GridSplit::diagonal(&grid)?;
        Ok((grid, split))
    }
}

/// `step`·(to − from).
fn distance(step: usize, to: usize, from: usize) -> i64 {
    step as i64 * (to as i64 - from as i64)
}
