//! What the kernels multiply: packed weights, a chunk of their columns at a time.

use crate::modulus::Modulus;
use crate::words::room::{Lists, Room};
use std::sync::Arc;
use zeroize::Zeroize;

/// Largest limit of weights with `count` signed digits: 127·(256^count − 1)/255.
pub const fn digits_limit(count: u32) -> u64 {
    let mut limit = 0;
    let mut digit = 0;
    while digit < count {
        limit = limit << 8 | 127;
        digit += 1;
    }
    limit
}

/// Terms of a sum between reductions. Low halves, below 2^52 each, and one residue stay below 2^63.
pub(crate) const TERMS: usize = 1024;

/// Rows per panel: outputs whose sums are in registers together.
pub(crate) const ROWS: usize = 6;

/// Chunks begin at a multiple of this many columns: those of one byte tile.
pub(crate) const DEPTH: usize = 64;

/// The words of a limb in a tile are a multiple of this: the widest group of registers.
pub(crate) const GROUP: usize = 32;

/// How the weights of one packed matrix are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Residues below q: two multiply-adds per term.
    Full,
    /// Small integers, offset to be positive: one multiply-add per term.
    Narrow,
    /// Byte digits, this many per weight: one product of byte tiles for each pair of a weight's digit and a residue's
    /// digit.
    Planes(usize),
}

/// A matrix of weights under one modulus, in the kernel's order.
pub struct PackedWeights {
    pub(super) modulus: Modulus,
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) method: Method,
    /// Panels of [`ROWS`] rows, zero-padded below, each panel column by column: residues of f·w, or w + `limit`, or the
    /// floating-point numbers f·w or w. Or byte tiles.
    pub(super) panels: Arc<Lists>,
    /// The number of this matrix in `panels`.
    pub(super) place: usize,
    /// Largest size of a weight.
    pub(super) limit: u64,
    /// f, if it is not in the words already.
    pub(super) factor: u64,
}

impl PackedWeights {
    /// Number of outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of inputs.
    pub fn columns(&self) -> usize {
        self.columns
    }

    fn words(&self) -> &[u64] {
        self.panels.get(self.place)
    }

    /// The method that the limit allows.
    pub fn method(&self) -> Method {
        self.method
    }
}

/// Columns of one chunk of a matrix, for the kernels.
pub(crate) struct Chunk<'a> {
    pub(crate) weights: &'a PackedWeights,
    /// First column.
    pub(crate) start: usize,
    /// Number of columns, at most [`TERMS`].
    pub(crate) terms: usize,
}

impl Chunk<'_> {
    /// The words of panel `p` in this chunk: ROWS for each column.
    pub(crate) fn panel(&self, p: usize) -> &[u64] {
        let first = (p * self.weights.columns + self.start) * ROWS;
        &self.weights.words()[first..first + self.terms * ROWS]
    }

    /// All words of the matrix.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn words(&self) -> &[u64] {
        self.weights.words()
    }

    /// Number of columns of the matrix.
    #[cfg(target_arch = "x86_64")]
    pub(crate) fn columns(&self) -> usize {
        self.weights.columns
    }

    pub(crate) fn method(&self) -> Method {
        self.weights.method
    }

    /// Largest size of a weight, and the offset of the narrow method.
    pub(crate) fn limit(&self) -> u64 {
        self.weights.limit
    }

    pub(crate) fn factor(&self) -> u64 {
        self.weights.factor
    }
}

/// Working memory, kept between calls so that they do not allocate.
#[derive(Default)]
pub struct GemmScratch {
    room: Room,
}

impl GemmScratch {
    /// Empty: the first product allocates.
    pub fn new() -> GemmScratch {
        GemmScratch::default()
    }

    /// `length` words of arbitrary content.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    pub(crate) fn words(&mut self, length: usize) -> &mut [u64] {
        if self.room.length() < length {
            self.room.zeroize();
        }
        self.room.words(length)
    }
}

/// Erases sums of weights, and what a product was added to.
impl Drop for GemmScratch {
    fn drop(&mut self) {
        self.room.zeroize();
    }
}
