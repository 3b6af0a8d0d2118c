//! The tile of [`crate::kernels::gemm`] in registers: 6 rows by 16 or 32 words, two sums or one, 24 registers of sums.
//!
//! Inputs are first copied into groups of 16 (32) words: in a group the words of input 0, then of input 1, and so on,
//! so that the inner loop reads them and the panel of weights sequentially. A step has 24 multiply-adds for 8 (10)
//! loads: enough independent chains to fill their latency, and loads are never the limit.

use super::lanes::{Factor, csub, load, shoup52, splat, store};
use super::limb::{Limb, Wide};
use crate::kernels::gemm::{Chunk, GROUP, GemmScratch, Method, ROWS, TERMS};
use crate::machine::cpu::HaveIfma;
use crate::modulus::Modulus;
use std::arch::x86_64::*;

/// Registers per group under the full method, which has two sums for each.
const FULL: usize = 2;

/// Registers per group under the narrow method.
const NARROW: usize = 4;

/// Constants of one modulus; its existence proves that the kernel may run.
pub(crate) struct Gemm {
    modulus: Modulus,
    limb: Limb,
}

/// The inputs of one tile, group after group, and where they come from.
struct Tile<'a> {
    chunk: &'a Chunk<'a>,
    /// All words of the inputs.
    x: &'a [&'a [u64]],
    /// Groups of 8·V words, each with the words of all inputs.
    words: &'a [u64],
    /// The words of the limbs.
    at: usize,
    length: usize,
}

impl Gemm {
    /// `token`: every method relies on the instruction sets that it proves.
    pub(crate) fn new(token: HaveIfma, modulus: &Modulus) -> Gemm {
        Gemm { modulus: *modulus, limb: Limb::new(token, modulus) }
    }

    /// out += f·w·x for the words `at .. at + length`.
    pub(crate) fn tile(
        &self,
        chunk: &Chunk,
        x: &[&[u64]],
        out: &mut [&mut [u64]],
        at: usize,
        length: usize,
        scratch: &mut GemmScratch,
    ) {
        assert!(x.len() == chunk.terms && chunk.terms <= TERMS);
        assert!(x.iter().all(|x| at + length <= x.len()));
        assert!(out.iter().all(|out| at + length <= out.len()));
        let padded = length.next_multiple_of(GROUP);
        let (words, begin) = scratch.words((x.len() + 1) * padded).split_at_mut(x.len() * padded);
        // SAFETY: the token of `new` proves the instruction sets; the assertions bound every slice.
        unsafe {
            match chunk.method() {
                Method::Planes(_) => unreachable!("tiles have a kernel of their own"),
                Method::Full => {
                    gather::<FULL>(words, x, at, length);
                    let tile = Tile { chunk, x, words, at, length };
                    full(self, &tile, out);
                }
                Method::Narrow => {
                    gather::<NARROW>(words, x, at, length);
                    corrections(self, chunk, words, begin);
                    let tile = Tile { chunk, x, words, at, length };
                    narrow(self, &tile, begin, out);
                }
            }
        }
    }
}

/// Mask of the lanes, from word `from` on, that are words of a slice of `length`.
pub(super) fn ends(length: usize, from: usize) -> __mmask8 {
    match length.saturating_sub(from) {
        left @ 0..8 => (1 << left) - 1,
        _ => 0xff,
    }
}

impl Tile<'_> {
    /// Prefetches the outputs to which the products of panel `p` of `panels` are added, and a share of the next tile's
    /// inputs: rows lie apart, in streams too short for the processor to detect.
    #[inline]
    fn ask(&self, p: usize, panels: usize, out: &[&mut [u64]]) {
        let line = |words: &[u64], at: usize| {
            let at = words.as_ptr().wrapping_add(at);
            // SAFETY: a hint, which reads nothing.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
        };
        let next = self.at + self.length;
        let share = self.x.len() * p / panels..self.x.len() * (p + 1) / panels;
        let share = &self.x[share];
        for at in (0..self.length).step_by(8) {
            out.iter().for_each(|out| line(out, self.at + at));
            share.iter().for_each(|x| line(x, next + at));
        }
    }
}

/// Copies the words `at .. at + length` of each input into groups of 8·V words, zeros beyond the end.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn gather<const V: usize>(words: &mut [u64], x: &[&[u64]], at: usize, length: usize) {
    let groups = words.len() / (8 * V * x.len());
    let to = words.as_mut_ptr();
    for (i, from) in x.iter().enumerate() {
        for g in 0..groups {
            for v in 0..V {
                let first = 8 * (g * V + v);
                // SAFETY: the mask keeps to the words of the input, at + length of them at least; group g has room for
                // x.len() inputs of 8·V words.
                unsafe {
                    let lanes = ends(length, first);
                    let word = _mm512_maskz_loadu_epi64(lanes, from.as_ptr().wrapping_add(at + first).cast());
                    store(to.add((g * x.len() + i) * 8 * V + 8 * v), word);
                }
            }
        }
    }
}

/// For each word −limit·Σ_i `x[i]` mod q: the initial sums of the narrow method.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn corrections(gemm: &Gemm, chunk: &Chunk, words: &[u64], begin: &mut [u64]) {
    const WIDTH: usize = 8 * NARROW;
    let wide = Wide::new(&gemm.limb);
    let minus = gemm.modulus.neg(gemm.modulus.reduce(chunk.limit()));
    let minus = factor(minus, &gemm.modulus);
    let groups = words.chunks_exact(WIDTH * chunk.terms);
    for (group, begin) in groups.zip(begin.chunks_exact_mut(WIDTH)) {
        let mut sums = [_mm512_setzero_si512(); NARROW];
        for x in group.chunks_exact(WIDTH) {
            for (v, sum) in sums.iter_mut().enumerate() {
                // SAFETY: WIDTH words. The sums stay below 1024·2^50.
                *sum = _mm512_add_epi64(*sum, unsafe { load(x.as_ptr().add(8 * v)) });
            }
        }
        for (v, &sum) in sums.iter().enumerate() {
            let sum = wide.reduce(sum, _mm512_setzero_si512());
            let sum = wide.lanes.finish(wide.lanes.mul(sum, minus));
            // SAFETY: WIDTH words.
            unsafe { store(begin.as_mut_ptr().add(8 * v), sum) }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn factor(w: u64, modulus: &Modulus) -> Factor {
    Factor { w: splat(w), shoup: splat(shoup52(w, modulus.value())) }
}

/// Low and high halves separately: below 2^50 + 1024·2^52 and 1024·2^48.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn full(gemm: &Gemm, tile: &Tile, out: &mut [&mut [u64]]) {
    let wide = Wide::new(&gemm.limb);
    let terms = tile.chunk.terms;
    let mut sums = [[[_mm512_setzero_si512(); 2]; FULL]; ROWS];
    let panels = out.len().div_ceil(ROWS);
    for (p, out) in out.chunks_mut(ROWS).enumerate() {
        tile.ask(p, panels, out);
        let panel = tile.chunk.panel(p);
        for (g, group) in tile.words.chunks_exact(8 * FULL * terms).enumerate() {
            let first = 8 * FULL * g;
            // SAFETY: the panel has ROWS words per term, the group 8·FULL.
            unsafe { multiply_full(terms, panel.as_ptr(), group.as_ptr(), &mut sums) }
            for (out, sums) in out.iter_mut().zip(&sums) {
                for (v, &[low, high]) in sums.iter().enumerate() {
                    let lanes = ends(tile.length, first + 8 * v);
                    let to = out.as_mut_ptr().wrapping_add(tile.at + first + 8 * v);
                    // SAFETY: the mask keeps to the words of the output.
                    unsafe {
                        let old = _mm512_maskz_loadu_epi64(lanes, to.cast());
                        let sum = wide.reduce(_mm512_add_epi64(low, old), high);
                        _mm512_mask_storeu_epi64(to.cast(), lanes, sum);
                    }
                }
            }
        }
    }
}

/// Products below 2^52 in one sum: below 2^50 + 1024·2^52.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn narrow(gemm: &Gemm, tile: &Tile, begin: &[u64], out: &mut [&mut [u64]]) {
    let wide = Wide::new(&gemm.limb);
    let factor = factor(tile.chunk.factor(), &gemm.modulus);
    let terms = tile.chunk.terms;
    let mut sums = [[_mm512_setzero_si512(); NARROW]; ROWS];
    let panels = out.len().div_ceil(ROWS);
    for (p, out) in out.chunks_mut(ROWS).enumerate() {
        tile.ask(p, panels, out);
        let panel = tile.chunk.panel(p);
        let groups = tile.words.chunks_exact(8 * NARROW * terms);
        for (g, (group, begin)) in groups.zip(begin.chunks_exact(8 * NARROW)).enumerate() {
            let first = 8 * NARROW * g;
            // SAFETY: the panel has ROWS words per term, the group 8·NARROW.
            unsafe { multiply_narrow(terms, panel.as_ptr(), group.as_ptr(), &mut sums) }
            for (out, sums) in out.iter_mut().zip(&sums) {
                for (v, &sum) in sums.iter().enumerate() {
                    let lanes = ends(tile.length, first + 8 * v);
                    let to = out.as_mut_ptr().wrapping_add(tile.at + first + 8 * v);
                    // SAFETY: the mask keeps to the words of the output; `begin` has the words of this group.
                    unsafe {
                        let old = _mm512_maskz_loadu_epi64(lanes, to.cast());
                        let sum = _mm512_add_epi64(sum, load(begin.as_ptr().add(8 * v)));
                        let sum = wide.reduce(sum, _mm512_setzero_si512());
                        let sum = wide.lanes.finish(wide.lanes.mul(sum, factor));
                        let sum = csub(_mm512_add_epi64(sum, old), wide.lanes.q);
                        _mm512_mask_storeu_epi64(to.cast(), lanes, sum);
                    }
                }
            }
        }
    }
}

/// Sums of the low and of the high halves of the products of one panel and one group.
///
/// Not inlined, and the sums are written once at the end: if later code indexes rows of an array by a variable, the
/// compiler keeps the array in memory and stores every sum after every multiply-add.
///
/// # Safety
/// The processor has AVX-512 IFMA; `w` has ROWS words per term, `x` 8·FULL.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn multiply_full(terms: usize, mut w: *const u64, mut x: *const u64, sums: &mut [[[__m512i; 2]; FULL]; ROWS]) {
    let mut low = [[_mm512_setzero_si512(); FULL]; ROWS];
    let mut high = low;
    for _ in 0..terms {
        // SAFETY: by the contract of this function.
        unsafe {
            let words: [__m512i; FULL] = std::array::from_fn(|v| load(x.add(8 * v)));
            for r in 0..ROWS {
                let w = splat(*w.add(r));
                for v in 0..FULL {
                    low[r][v] = _mm512_madd52lo_epu64(low[r][v], words[v], w);
                    high[r][v] = _mm512_madd52hi_epu64(high[r][v], words[v], w);
                }
            }
            w = w.add(ROWS);
            x = x.add(8 * FULL);
        }
    }
    for r in 0..ROWS {
        for v in 0..FULL {
            sums[r][v] = [low[r][v], high[r][v]];
        }
    }
}

/// Sums of the low halves of the products of one panel and one group; not inlined, as [`multiply_full`].
///
/// # Safety
/// The processor has AVX-512 IFMA; `w` has ROWS words per term, `x` 8·NARROW.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn multiply_narrow(terms: usize, mut w: *const u64, mut x: *const u64, sums: &mut [[__m512i; NARROW]; ROWS]) {
    let mut low = [[_mm512_setzero_si512(); NARROW]; ROWS];
    for _ in 0..terms {
        // SAFETY: by the contract of this function.
        unsafe {
            let words: [__m512i; NARROW] = std::array::from_fn(|v| load(x.add(8 * v)));
            for (r, low) in low.iter_mut().enumerate() {
                let w = splat(*w.add(r));
                for (sum, &x) in low.iter_mut().zip(&words) {
                    *sum = _mm512_madd52lo_epu64(*sum, x, w);
                }
            }
            w = w.add(ROWS);
            x = x.add(8 * NARROW);
        }
    }
    *sums = low;
}
