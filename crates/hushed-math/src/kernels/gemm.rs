//! Products of a matrix of integers with limbs: `out[o][c]` += f·Σ_i `w[o][i]`·`x[i][c]` mod q.
//!
//! Row o of w gives output o, its column i takes input i; c runs over the words of a limb, or a strip of them. Weights
//! are the computing party's secrets: each enters every product in the same way, whatever its value. There is no test
//! for zero or sign, no list of indices, and running times depend on shapes alone.
//!
//! Three methods, all exact, chosen by the *declared* limit of the weights:
//!
//! * [`Method::Full`]: weights as residues below q, products as two sums, of low and of high halves of 52 bits;
//! * [`Method::Narrow`]: weights of size at most l with 2l·q ≤ 2^52, above all ternary ones (l = 1). Offset by l they
//!   are nonnegative and a product fits the low half; l·Σ_i `x[i][c]`, the same for all outputs, is subtracted again.
//!   One multiply-add per term, where masks for zero and sign take two instructions (an AND-XOR and an addition);
//! * [`Method::Planes`], where the processor multiplies byte tiles: weights as signed digits and residues as digits in
//!   base 256, each pair of digits a product of byte matrices (`ifma/planes.rs`).
//!
//! The kernel on floating-point multiply-adds packs floating-point numbers instead of words and needs no offset
//! (`fma/gemm.rs`).
//!
//! The work is cut into chunks of at most [`TERMS`] columns, which bounds the sums, and tiles of words, which keeps the
//! inputs of a tile in the second-level cache while every row passes over them.

mod packed;
mod portable;
#[cfg(test)]
mod tests;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::fma;
#[cfg(target_arch = "x86_64")]
use super::ifma;
use crate::machine::cpu::Cpu;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::machine::cpu::HaveFma;
use crate::modulus::Modulus;
use crate::words::Words;
use crate::words::room::{Lists, Room};
use std::sync::Arc;
use zeroize::Zeroize;

pub(crate) use packed::{Chunk, DEPTH, GROUP, ROWS, TERMS};
pub use packed::{GemmScratch, Method, PackedWeights, digits_limit};

/// Words of input per tile: half a megabyte, half of the smaller second-level caches.
const TILE: usize = 1 << 16;

/// Products of matrices with limbs modulo one q, with the kernel chosen at construction.
pub struct LimbGemm {
    modulus: Modulus,
    #[cfg(target_arch = "x86_64")]
    ifma: Option<ifma::Gemm>,
    #[cfg(target_arch = "x86_64")]
    planes: Option<ifma::Planes>,
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fma: Option<HaveFma>,
}

impl LimbGemm {
    /// Products modulo q by the best kernel of this machine.
    pub fn new(modulus: Modulus) -> LimbGemm {
        LimbGemm::with_cpu(modulus, Cpu::get())
    }

    /// Products modulo q by the best kernel of `cpu`.
    pub fn with_cpu(modulus: Modulus, cpu: Cpu) -> LimbGemm {
        let _ = cpu;
        LimbGemm {
            #[cfg(target_arch = "x86_64")]
            ifma: cpu.ifma().map(|token| ifma::Gemm::new(token, &modulus)),
            #[cfg(target_arch = "x86_64")]
            planes: cpu.amx().zip(cpu.ifma()).map(|(amx, ifma)| ifma::Planes::new(amx, ifma, &modulus)),
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            fma: cpu.fma(),
            modulus,
        }
    }

    /// The modulus q.
    pub fn modulus(&self) -> &Modulus {
        &self.modulus
    }

    /// Prepares `weights` (rows × columns, row-major), integers in [−`limit`, `limit`], for products f·w·x with f =
    /// `factor` in [0, q). Constant time in the weights.
    ///
    /// # Panics
    /// If the number of weights is not rows·columns, if the limit is 0 or not below 2^63, if f ≥ q, or if a weight
    /// exceeds the limit.
    pub fn pack(&self, weights: &[i64], rows: usize, columns: usize, limit: u64, factor: u64) -> PackedWeights {
        assert_eq!(weights.len(), rows * columns, "rows times columns");
        assert!((1..1 << 63).contains(&limit), "a limit of 1 to 63 bits");
        assert!(factor < self.modulus.value(), "a factor below q");
        let beyond = weights.iter().fold(0, |bad, w| bad | limit.wrapping_sub(w.unsigned_abs()) >> 63);
        assert!(beyond == 0, "weights of at most {limit}");
        let (method, words) = self.arrange(weights, rows, columns, limit, factor);
        PackedWeights {
            modulus: self.modulus,
            rows,
            columns,
            method,
            panels: Arc::new(Lists::one(words)),
            place: 0,
            limit,
            factor,
        }
    }

    /// Prepares matrices of residues in [0, q) (each rows × columns, row-major) for products w·x, by the full method on
    /// every processor: byte tiles take seven digits for such weights and are slower. `fill` writes matrix number i.
    ///
    /// # Panics
    /// If a weight is not a residue.
    pub fn pack_residues(
        &self,
        count: usize,
        [rows, columns]: [usize; 2],
        mut fill: impl FnMut(usize, &mut [u64]),
    ) -> Vec<PackedWeights> {
        let mut words = Lists::new(count, panels_length(rows, columns));
        let mut room = Room::new();
        let weights = room.words(rows * columns);
        for (i, words) in words.all_mut().into_iter().enumerate() {
            weights.fill(0);
            fill(i, weights);
            self.put_residues(weights, columns, words);
        }
        room.zeroize();
        let panels = Arc::new(words);
        let packed = |i: usize| PackedWeights {
            modulus: self.modulus,
            rows,
            columns,
            method: Method::Full,
            panels: Arc::clone(&panels),
            place: i,
            limit: self.modulus.value() - 1,
            factor: 1,
        };
        (0..count).map(packed).collect()
    }

    fn put_residues(&self, weights: &[u64], columns: usize, words: &mut [u64]) {
        let q = self.modulus.value();
        let beyond = weights.iter().fold(0, |bad, &w| bad | (q - 1).wrapping_sub(w) >> 63);
        assert!(beyond == 0, "residues");
        let number = |w: u64| {
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            if self.fma.is_some() {
                return fma::number(w as i64);
            }
            w
        };
        put_panels(weights, columns, number, words);
    }

    fn arrange(&self, weights: &[i64], rows: usize, columns: usize, limit: u64, factor: u64) -> (Method, Words) {
        let q = &self.modulus;
        #[cfg(target_arch = "x86_64")]
        if let Some(planes) = &self.planes {
            let (digits, tiles) = planes.arrange(weights, rows, columns, limit);
            return (Method::Planes(digits), tiles);
        }
        let residue = |w| q.mul(q.reduce_signed(w), factor);
        let narrow = u128::from(limit) * u128::from(q.value()) <= 1 << 51;
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if self.fma.is_some() {
            let all = |word: &dyn Fn(i64) -> i64| panels(weights, rows, columns, |w| fma::number(word(w)));
            return match narrow {
                true => (Method::Narrow, all(&|w| w)),
                false => (Method::Full, all(&|w| residue(w) as i64)),
            };
        }
        if narrow {
            let offset = |w: i64| w.wrapping_add(limit as i64) as u64;
            (Method::Narrow, panels(weights, rows, columns, offset))
        } else {
            (Method::Full, panels(weights, rows, columns, residue))
        }
    }

    /// `out[o][c]` ← `out[o][c]` + f·Σ_i `w[o][i]`·`x[i][c]` mod q, all residues in [0, q).
    ///
    /// # Panics
    /// If there is not one input per column and one output per row of the weights, if their lengths differ, or if the
    /// weights were packed under another modulus or for another kind of processor.
    pub fn multiply_add(
        &self,
        weights: &PackedWeights,
        x: &[&[u64]],
        out: &mut [&mut [u64]],
        scratch: &mut GemmScratch,
    ) {
        assert_eq!(weights.modulus, self.modulus, "weights under this modulus");
        let tiles = matches!(weights.method, Method::Planes(_));
        assert!(!tiles || self.has_tiles(), "weights packed for this kernel");
        assert_eq!(x.len(), weights.columns, "an input a column");
        assert_eq!(out.len(), weights.rows, "an output a row");
        let length = out.first().map_or(0, |out| out.len());
        assert!(
            x.iter().all(|x| x.len() == length) && out.iter().all(|out| out.len() == length),
            "strips of one length"
        );
        if length == 0 || x.is_empty() {
            return;
        }
        // Chunks of nearly equal size, so that none is too short to pay for its reductions.
        let terms = x.len().div_ceil(x.len().div_ceil(TERMS));
        let terms = terms.next_multiple_of(DEPTH);
        let tile = (TILE / terms / GROUP * GROUP).max(GROUP);
        for start in (0..x.len()).step_by(terms) {
            let x = &x[start..(start + terms).min(x.len())];
            let chunk = Chunk { weights, start, terms: x.len() };
            for at in (0..length).step_by(tile) {
                self.tile(&chunk, x, out, at, tile.min(length - at), scratch);
            }
        }
    }

    fn has_tiles(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.planes.is_some();
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    fn tile(
        &self,
        chunk: &Chunk,
        x: &[&[u64]],
        out: &mut [&mut [u64]],
        at: usize,
        length: usize,
        scratch: &mut GemmScratch,
    ) {
        #[cfg(target_arch = "x86_64")]
        if let (Some(planes), Method::Planes(_)) = (&self.planes, chunk.method()) {
            return planes.tile(chunk, x, out, at, length, scratch);
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(gemm) = &self.ifma {
            return gemm.tile(chunk, x, out, at, length, scratch);
        }
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if let Some(have) = self.fma {
            return fma::tile(have, &self.modulus, chunk, x, out, at, length, scratch);
        }
        let _ = scratch;
        portable::tile(&self.modulus, chunk, x, out, at, length);
    }
}

/// Words of a matrix in panels.
fn panels_length(rows: usize, columns: usize) -> usize {
    rows.div_ceil(ROWS) * ROWS * columns
}

/// The words of all weights in panels.
fn panels<W: Copy>(weights: &[W], rows: usize, columns: usize, word: impl Fn(W) -> u64) -> Words {
    let mut words = Words::scratch(panels_length(rows, columns));
    put_panels(weights, columns, word, &mut words);
    words
}

/// The same, written to `words`.
fn put_panels<W: Copy>(weights: &[W], columns: usize, word: impl Fn(W) -> u64, words: &mut [u64]) {
    words.fill(0);
    let size = (ROWS * columns).max(1);
    for (panel, rows) in words.chunks_exact_mut(size).zip(weights.chunks(size)) {
        for (r, row) in rows.chunks_exact(columns).enumerate() {
            for (to, &w) in panel[r..].iter_mut().step_by(ROWS).zip(row) {
                *to = word(w);
            }
        }
    }
}
