//! The trait that the circuit of a two-party run is written over, and its implementations: the [`Protocol`] between two
//! parties, [`Counting`], which adds up the declared costs, and [`Clear`], which computes in the words of the rings, so
//! that overflow shows.

mod ahead;
mod clear;
mod counting;
mod protocol;
mod stock;

use std::ops::Range;

use hushed_math::product;
use hushed_model::{Embedding, StepId};
use hushed_net::Party;
use hushed_twopc::Link;
use hushed_twopc::func::Format;
use hushed_twopc::func::inverse::Positive;
use hushed_twopc::func::norm::NormShape;
use hushed_twopc::he::{Encrypted, Kept, MatmulShape, OltShape, OltSpec, PastShape};
use hushed_twopc::share::{Ring, Share};
use zeroize::Zeroizing;

use super::formats::MAIN;
use super::{Input, RunError};
use crate::circuit::function::Function;
use crate::circuit::product::Product;
use crate::index::Index;
use crate::lookup::Table;

pub use ahead::Later;
pub use clear::Clear;
pub use counting::{Counting, Entry};
pub use protocol::{Protocol, StepCost};

/// Numbers that one party knows; the other party, and interpretations without numbers, have only the count.
pub struct Known {
    /// The party that knows them.
    pub owner: Party,
    /// The number of elements.
    pub len: usize,
    /// The numbers, if this interpretation has them.
    pub values: Option<Zeroizing<Vec<i64>>>,
}

/// A step that runs beside others, of which it needs nothing.
pub enum Aside<'a, S> {
    /// [`Shares::rescale`].
    Rescale {
        /// What is shifted.
        x: &'a S,
        /// By as many bits.
        shift: u32,
        /// The ring of the result.
        to: Ring,
    },
    /// [`Shares::reciprocal`].
    Reciprocal {
        /// The numbers.
        x: &'a S,
        /// What is known of them.
        of: Positive,
        /// The numerator.
        scale: f64,
        /// The format of the result.
        to: Format,
    },
}

/// Shares of a vector over a ring, with the local operations: linear ones and selection.
pub trait Local: Clone + Sized {
    /// The ring.
    fn ring(&self) -> Ring;
    /// The number of elements.
    fn elements(&self) -> usize;
    /// self += y.
    fn add_assign(&mut self, y: &Self);
    /// c·x.
    fn times(&self, c: i64) -> Self;
    /// c_i·x_i.
    fn times_each(&self, factors: impl FnOnce() -> Vec<i64>) -> Self;
    /// 2^k·x.
    fn shift_left(&self, k: u32) -> Self;
    /// x modulo a smaller ring.
    fn reduce_to(&self, to: Ring) -> Self;
    /// The same words in a larger ring, for a later multiple of 2^k: x modulo 2^ℓ determines 2^k·x modulo 2^(ℓ+k).
    fn lift(self, to: Ring) -> Self;
    /// The elements at these places, `count` in number, in order.
    fn gather(&self, count: usize, places: impl FnOnce() -> Vec<usize>) -> Self;
    /// Concatenates vectors.
    fn concat(ring: Ring, parts: &[Self]) -> Self;
    /// The sum of each row.
    fn sum_rows(&self, rows: usize, columns: usize) -> Self;

    /// Some columns of a matrix with `rows` rows.
    fn columns(&self, rows: usize, columns: Range<usize>) -> Self {
        let width = self.elements() / rows.max(1);
        assert!(self.elements() == rows * width && columns.end <= width, "columns of a matrix");
        self.gather(rows * columns.len(), || {
            let row = |r: usize| r * width + columns.start..r * width + columns.end;
            (0..rows).flat_map(row).collect()
        })
    }
}

/// The gadgets of a run. Formats and shapes are public, and calls are in the order of the messages. Each fails if the
/// session does.
pub trait Shares {
    /// A shared vector.
    type Share: Local;

    /// Runs a step; calls inside it are attributed to it.
    ///
    /// # Errors
    /// Those of the step.
    fn step<T>(&mut self, id: StepId, run: impl FnOnce(&mut Self) -> Result<T, RunError>) -> Result<T, RunError>;

    /// The link between the parties: on [`Link::LAN`] steps stay in the order of the first protocol.
    fn over(&self) -> Link {
        Link::LAN
    }

    /// Runs steps, and another one beside them.
    ///
    /// # Errors
    /// Those of either.
    fn beside<T>(
        &mut self,
        first: impl FnOnce(&mut Self) -> Result<T, RunError>,
        aside: Aside<'_, Self::Share>,
    ) -> Result<(T, Self::Share), RunError> {
        let first = first(self)?;
        Ok((first, self.done(aside)?))
    }

    /// Runs such a step alone.
    ///
    /// # Errors
    /// Those of the step.
    fn done(&mut self, aside: Aside<'_, Self::Share>) -> Result<Self::Share, RunError> {
        match aside {
            Aside::Rescale { x, shift, to } => self.rescale(x, shift, to),
            Aside::Reciprocal { x, of, scale, to } => self.reciprocal(x, of, scale, to),
        }
    }

    /// Whether this interpretation can run an input.
    fn takes(&self, input: &Input) -> bool;

    /// Whether this interpretation has a party's numbers.
    fn knows(&self, owner: Party) -> bool;

    /// Numbers that one party knows.
    fn known(&self, owner: Party, len: usize, values: impl FnOnce() -> Vec<i64>) -> Known {
        Known { owner, len, values: self.knows(owner).then(|| Zeroizing::new(values())) }
    }

    /// A sharing of numbers that one party knows: they are its share, and the other's share is zero.
    fn shared(&self, x: &Known, ring: Ring) -> Self::Share;

    /// The rows of a table at indices that the client knows, in [`EMBEDDING`](super::formats::EMBEDDING), plus the
    /// table's last row, which is none of theirs, where `second` has a 1; no message is sent if the table is public.
    ///
    /// # Errors
    /// Those of the session; an index beyond the table; [`RunError::WrongInput`] if the client has no indices.
    fn lookup(
        &mut self,
        places: &Known,
        second: Option<&Known>,
        e: &Embedding,
        table: Table,
    ) -> Result<Self::Share, RunError>;

    /// x·W + b for `rows` rows, in [`LINEAR`](super::formats::LINEAR).
    ///
    /// # Errors
    /// Those of the session; numbers that the formats cannot hold, or that are missing.
    fn product(&mut self, id: StepId, x: &Self::Share, rows: usize, product: &Product)
    -> Result<Self::Share, RunError>;

    /// A row in [`UNIT`](super::formats::UNIT) times the vectors of an index: one number per document, in its ring with
    /// twice its fraction bits.
    ///
    /// # Errors
    /// Those of the session; missing numbers.
    fn cosines(&mut self, x: &Self::Share, index: &Index) -> Result<Self::Share, RunError>;

    /// The records of an index at places that the client knows, one row each. The lowest
    /// [`RECORD_GUARD`](super::formats::RECORD_GUARD) bits may be wrong.
    ///
    /// # Errors
    /// As [`Shares::lookup`]; [`RunError::Unsupported`] for an index without records.
    fn records(&mut self, places: &Known, index: &Index) -> Result<Self::Share, RunError>;

    /// Products of shared matrices, both in the same ring.
    fn matmul(&mut self, x: &Self::Share, y: &Self::Share, shape: &MatmulShape) -> Result<Self::Share, RunError>;

    /// [`Shares::matmul`] where the right operand is that of earlier passes with new rows; `kept` is what they left.
    fn matmul_past(
        &mut self,
        x: &Self::Share,
        y: &Self::Share,
        shape: &PastShape,
        kept: &mut Kept,
    ) -> Result<Self::Share, RunError>;

    /// A row of coefficients that the client knows, times a matrix, for each of `texts` matrices of `width` columns
    /// over [`MAIN`](super::formats::MAIN).
    fn known_times(
        &mut self,
        coefficients: &Known,
        x: &Self::Share,
        texts: usize,
        width: usize,
    ) -> Result<Self::Share, RunError>;

    /// Products of shared matrices with as many that the server knows, integers of at most 2^`bits` in magnitude.
    ///
    /// # Errors
    /// Those of the session; [`RunError::WrongInput`] if the server lacks the numbers.
    fn times_known(
        &mut self,
        x: &Self::Share,
        y: &Known,
        shape: &MatmulShape,
        bits: u32,
    ) -> Result<Self::Share, RunError>;

    /// x + y, with equally many elements.
    fn add_known(&self, x: &Self::Share, y: &Known) -> Self::Share;

    /// x/2^shift in the ring `to`, at least `shift` bits smaller: local, off by less than one unit.
    fn narrow(&self, x: &Self::Share, shift: u32, to: Ring) -> Self::Share;

    /// x/2^shift in the ring `to`, for |x| two bits below its ring: off by less than one unit.
    fn rescale(&mut self, x: &Self::Share, shift: u32, to: Ring) -> Result<Self::Share, RunError>;

    /// 2^(x − the row's maximum) for each element of rows of `widths` elements in the format of scores; the result is
    /// in `to`. This is softmax without its division.
    fn exponentials(&mut self, x: &Self::Share, widths: &[usize], to: Format) -> Result<Self::Share, RunError>;

    /// σ of each element in the format [argument](hushed_twopc::func::sigmoid::ARGUMENT), in `to`.
    fn sigmoids(&mut self, x: &Self::Share, to: Format) -> Result<Self::Share, RunError>;

    /// scale/x in `to`.
    fn reciprocal(&mut self, x: &Self::Share, of: Positive, scale: f64, to: Format) -> Result<Self::Share, RunError>;

    /// Each row of x times its factor, in the same ring.
    fn scale_rows(
        &mut self,
        x: &Self::Share,
        rows: usize,
        columns: usize,
        factors: &Self::Share,
    ) -> Result<Self::Share, RunError>;

    /// x_i·y_i, in the same ring.
    fn multiply(&mut self, x: &Self::Share, y: &Self::Share) -> Result<Self::Share, RunError>;

    /// The maximum of each row.
    fn maxima(&mut self, x: &Self::Share, rows: usize, columns: usize) -> Result<Self::Share, RunError>;

    /// The levels of a tournament in each row, from x itself to the maximum, one per row. Each level comes with the
    /// columns of its elements, in the ring of x: see [`argmax_levels`](hushed_twopc::gadget::argmax_levels).
    fn tournament(&mut self, x: &Self::Share, rows: usize, columns: usize) -> Result<Vec<[Self::Share; 2]>, RunError>;

    /// The maximum of each short row, and the corresponding element of `with`; any of equal ones.
    fn largest_of_few(
        &mut self,
        x: &Self::Share,
        with: &Self::Share,
        rows: usize,
        columns: usize,
    ) -> Result<[Self::Share; 2], RunError>;

    /// For each of the vectors of these lengths, concatenated in x, the element at a place that the client knows.
    fn pick(&mut self, x: &Self::Share, lengths: &[usize], places: &Known) -> Result<Self::Share, RunError>;

    /// An activation, from [`LINEAR`](super::formats::LINEAR) to [`ACTIVATION`](super::formats::ACTIVATION), both
    /// including its scale.
    fn apply(&mut self, f: &Function, x: &Self::Share) -> Result<Self::Share, RunError>;

    /// Normalises rows, without gain and offset, in [`ACTIVATION`](super::formats::ACTIVATION).
    fn normalise(&mut self, x: &Self::Share, from: Format, shape: NormShape) -> Result<Self::Share, RunError>;

    /// Scales rows to length one, in [`UNIT_ROW`](hushed_twopc::func::norm::UNIT_ROW).
    fn unit_rows(&mut self, x: &Self::Share, from: Format, rows: usize, width: usize) -> Result<Self::Share, RunError>;

    /// x/2^shift in `to`, rounded exactly and opened: returns the words at the client, and in the clear.
    fn open(&mut self, x: &Self::Share, shift: u32, to: Ring) -> Result<Option<Vec<u64>>, RunError>;
}

/// What the client learns at most from this many words of a ring, whatever it does to its own shares before they are
/// opened.
fn opened_bits(words: usize, ring: Ring) -> u64 {
    words as u64 * u64::from(ring.bits())
}

/// The product of coefficients for `texts` texts of `rows` rows, which only the client knows, with shared matrices.
fn hidden_spec(texts: usize, rows: usize, width: usize) -> OltSpec {
    let products = MatmulShape { shape: OltShape { k: 1, m: rows, n: width }, batch: texts };
    products.spec(MAIN, Encrypted::Left)
}

/// The products of shared matrices with the server's, where the client's share is sent.
fn known_spec(shape: &MatmulShape, ring: Ring, bits: u32) -> OltSpec {
    OltSpec { multiplier_bits: bits, ..shape.spec(ring, Encrypted::Left) }
}

/// The product of each pair of matrices.
fn products(x: &[u64], y: &[u64], shape: &MatmulShape) -> Vec<u64> {
    let OltShape { k, m, n } = shape.shape;
    let pairs = x.chunks_exact((k * m).max(1)).zip(y.chunks_exact((m * n).max(1)));
    pairs.flat_map(|(x, y)| product(x, y, k, m, n)).collect()
}

/// For each text, its row of coefficients times its matrix of `width` columns.
fn rows_times(coefficients: &[u64], x: &[u64], rows: usize, width: usize) -> Vec<u64> {
    let matrices = x.chunks_exact((rows * width).max(1));
    let pairs = coefficients.chunks_exact(rows.max(1)).zip(matrices);
    pairs.flat_map(|(c, x)| product(c, x, 1, rows, width)).collect()
}

impl Local for Share {
    fn ring(&self) -> Ring {
        Share::ring(self)
    }

    fn elements(&self) -> usize {
        self.len()
    }

    fn add_assign(&mut self, y: &Share) {
        Share::add_assign(self, y);
    }

    fn times(&self, c: i64) -> Share {
        self.mul_public(c)
    }

    fn times_each(&self, factors: impl FnOnce() -> Vec<i64>) -> Share {
        let factors = factors().into_iter();
        let words = self.words().iter().zip(factors);
        let words = words.map(|(w, c)| w.wrapping_mul(c as u64));
        Share::new(self.ring(), words.collect())
    }

    fn shift_left(&self, k: u32) -> Share {
        Share::shift_left(self, k)
    }

    fn reduce_to(&self, to: Ring) -> Share {
        Share::reduce_to(self, to)
    }

    fn lift(self, to: Ring) -> Share {
        Share::new(to, self.into_words())
    }

    fn gather(&self, _: usize, places: impl FnOnce() -> Vec<usize>) -> Share {
        Share::gather(self, &places())
    }

    fn concat(ring: Ring, parts: &[Share]) -> Share {
        Share::concat(ring, &parts.iter().collect::<Vec<_>>())
    }

    fn sum_rows(&self, rows: usize, columns: usize) -> Share {
        Share::sum_rows(self, rows, columns)
    }
}
