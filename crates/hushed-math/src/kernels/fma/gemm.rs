//! Products of matrices with limbs, in two sums of words.
//!
//! With C = 2^102, whose last bit is worth 2^50, x·w + C rounds x·w < 2^100 to a multiple of 2^50, and the rest x·w −
//! (that multiple), in size at most 2^49, is exact. Both are taken as words of 64 bits and added as integers: minus the
//! bits of the constants they are integers of 50 bits, and a thousand of them fit. A term takes three operations on
//! numbers and two on words, no reduction (Emmart, Zheng and Weems 2018, for integers of many words).
//!
//! Narrow weights, with l·q ≤ 2^51, have products that are signed integers of 52 bits: x·w + 1.5·2^52 holds one, and
//! one sum is enough.

use super::lanes::Lanes;
use super::registers::{Constants, ROUND, Registers, centred, kernel};
use crate::kernels::gemm::{Chunk, GemmScratch, Method, ROWS, TERMS};
use crate::machine::cpu::HaveFma;
use crate::modulus::Modulus;
use std::ops::Range;

/// 2^102.
const HIGH: f64 = 5_070_602_400_912_917_605_986_812_821_504.0;

/// 2^61 makes the lower sums positive: they have at most 1024 terms, in size at most 2^49, or 2^51 for narrow weights.
const OFFSET: u32 = 61;

/// A residue, or a narrow weight, in the kernel's packed form.
pub(crate) fn number(w: i64) -> u64 {
    (w as f64).to_bits()
}

/// out += f·w·x for the words `at .. at + length`.
#[expect(clippy::too_many_arguments, reason = "what every kernel's tile takes, and the token")]
pub(crate) fn tile(
    have: HaveFma,
    modulus: &Modulus,
    chunk: &Chunk,
    x: &[&[u64]],
    out: &mut [&mut [u64]],
    at: usize,
    length: usize,
    scratch: &mut GemmScratch,
) {
    assert!(x.len() <= TERMS, "sums of words");
    let constants = Finish {
        factor: centred(modulus, chunk.factor()),
        narrow: chunk.method() == Method::Narrow,
        ..Finish::full(modulus)
    };
    let lanes = have.lanes();
    let numbers = scratch.words(x.len() * length.next_multiple_of(lanes));
    gather(numbers, x, at..at + length, lanes);
    for (p, out) in out.chunks_mut(ROWS).enumerate() {
        let weights = chunk.panel(p);
        for (group, numbers) in numbers.chunks_exact(x.len() * lanes).enumerate() {
            let first = at + group * lanes;
            let words = lanes.min(at + length - first);
            // A register of each row, padded with zeros at the end of a limb.
            let mut rows = [[0; 8]; ROWS];
            for (row, out) in rows.iter_mut().zip(&*out) {
                row[..words].copy_from_slice(&out[first..first + words]);
            }
            panel(have, &constants, weights, numbers, &mut rows);
            for (row, out) in rows.iter().zip(&mut *out) {
                out[first..first + words].copy_from_slice(&row[..words]);
            }
        }
    }
}

/// Gathers the words of `range` as numbers, in registers of all inputs one after another: limbs lie a power of two
/// apart, so their words would compete for a few cache sets.
fn gather(numbers: &mut [u64], x: &[&[u64]], range: Range<usize>, lanes: usize) {
    let group = x.len() * lanes;
    for (i, x) in x.iter().enumerate() {
        for (words, group) in x[range.clone()].chunks(lanes).zip(numbers.chunks_exact_mut(group)) {
            let register = &mut group[i * lanes..(i + 1) * lanes];
            register.fill(0);
            for (to, &word) in register.iter_mut().zip(words) {
                *to = (word as f64).to_bits();
            }
        }
    }
}

/// The constants that turn two sums into a residue.
pub(super) struct Finish {
    modulus: Constants,
    /// 2^26, 2^50 and 2^76 modulo q.
    powers: [f64; 3],
    /// 2^[`OFFSET`] modulo q.
    offset: f64,
    /// The factor that narrow weights are multiplied by.
    factor: f64,
    narrow: bool,
}

impl Finish {
    /// For products of residues.
    pub(super) fn full(modulus: &Modulus) -> Finish {
        let power = |bits: u32| centred(modulus, modulus.reduce(1_u64 << bits));
        let square = modulus.mul(modulus.reduce(1 << 50), modulus.reduce(1 << 26));
        Finish {
            modulus: Constants::new(modulus),
            powers: [power(26), power(50), centred(modulus, square)],
            offset: modulus.reduce(1 << OFFSET) as f64,
            factor: 1.0,
            narrow: false,
        }
    }
}

/// The constants of sums of products in registers.
pub(super) struct Sums<L: Lanes> {
    pub(super) r: Registers<L>,
    high: L::F,
    /// High parts are subtracted from this: a multiple of 2^51, exact.
    both: L::F,
    mask: L::I,
    powers: [[L::F; 2]; 3],
    offset: L::F,
}

impl<L: Lanes> Sums<L> {
    /// # Safety
    /// The processor has the instruction set of `L`, as for all that follows.
    #[inline(always)]
    pub(super) unsafe fn new(c: &Finish) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let r = Registers::<L>::new(&c.modulus);
            let [p26, p50, p76] = c.powers;
            Sums {
                high: L::splat(HIGH),
                both: L::splat(HIGH + ROUND),
                mask: L::splat_word((1 << 26) - 1),
                powers: [r.factor(L::splat(p26)), r.factor(L::splat(p50)), r.factor(L::splat(p76))],
                offset: L::splat(c.offset),
                r,
            }
        }
    }

    /// Adds x·w to the sums of high and of low parts.
    #[inline(always)]
    pub(super) unsafe fn add(&self, sums: &mut [L::I; 2], x: L::F, w: L::F) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let top = L::mul_add(x, w, self.high);
            let rest = L::mul_add(x, w, L::sub(self.both, top));
            sums[0] = L::add_words(sums[0], L::as_words(top));
            sums[1] = L::add_words(sums[1], L::as_words(rest));
        }
    }

    /// The high parts of `terms` terms modulo q, not reduced.
    #[inline(always)]
    pub(super) unsafe fn high(&self, sum: L::I, terms: usize) -> L::F {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let minus = (terms as u64).wrapping_mul(HIGH.to_bits());
            let sum = L::sub_words(sum, L::splat_word(minus));
            let high = self.r.times(self.r.number(L::shift_26(sum)), self.powers[2]);
            let middle = self.r.times(self.r.number(L::and(sum, self.mask)), self.powers[1]);
            L::add(high, middle)
        }
    }

    /// The low parts of `terms` terms modulo q, not reduced.
    #[inline(always)]
    pub(super) unsafe fn low(&self, sum: L::I, terms: usize) -> L::F {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let minus = (terms as u64).wrapping_mul(ROUND.to_bits());
            let minus = minus.wrapping_sub(1 << OFFSET);
            // Parts below 2^36 and 2^26.
            let sum = L::sub_words(sum, L::splat_word(minus));
            let low = self.r.times(self.r.number(L::shift_26(sum)), self.powers[0]);
            let last = L::sub(self.r.number(L::and(sum, self.mask)), self.offset);
            L::add(low, last)
        }
    }

    /// Adds both sums of `terms` terms to the residues at `p`.
    #[inline(always)]
    pub(super) unsafe fn finish(&self, [high, low]: [L::I; 2], terms: usize, p: *mut u64) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let sum = L::add(self.low(low, terms), self.high(high, terms));
            L::store(p, self.r.reduced_word(L::add(sum, self.r.load(p))));
        }
    }
}

kernel! {
    /// One register of each row of a panel.
    fn panel(c: &Finish, weights: &[u64], x: &[u64], out: &mut [[u64; 8]; ROWS]) = panel_body
}

#[inline(always)]
unsafe fn panel_body<L: Lanes>(c: &Finish, weights: &[u64], x: &[u64], out: &mut [[u64; 8]; ROWS]) {
    assert!(x.len().is_multiple_of(L::LANES) && weights.len() * L::LANES >= ROWS * x.len());
    // SAFETY: guaranteed by the caller; every access is within slices of these lengths.
    unsafe {
        // Six rows have twelve sums, too many for sixteen registers beside the rest.
        match (c.narrow, L::LANES) {
            (true, _) => rows::<L, 6, true>(c, weights, x, out, 0),
            (false, 8) => rows::<L, 6, false>(c, weights, x, out, 0),
            (false, _) => {
                rows::<L, 3, false>(c, weights, x, out, 0);
                rows::<L, 3, false>(c, weights, x, out, 3);
            }
        }
    }
}

/// Rows `first .. first + R` of a panel.
#[inline(always)]
unsafe fn rows<L: Lanes, const R: usize, const NARROW: bool>(
    c: &Finish,
    weights: &[u64],
    x: &[u64],
    out: &mut [[u64; 8]; ROWS],
    first: usize,
) {
    let terms = x.len() / L::LANES;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let all = &Sums::<L>::new(c);
        let r = &all.r;
        let mut sums = [[L::splat_word(0); 2]; R];
        for i in 0..terms {
            let x = L::as_numbers(L::load(x.as_ptr().add(i * L::LANES)));
            let w = weights.as_ptr().add(i * ROWS + first);
            for (o, sums) in sums.iter_mut().enumerate() {
                let w = L::splat(f64::from_bits(*w.add(o)));
                if NARROW {
                    sums[1] = L::add_words(sums[1], L::as_words(L::mul_add(x, w, r.round)));
                } else {
                    all.add(sums, x, w);
                }
            }
        }
        for (&sums, out) in sums.iter().zip(out.iter_mut().skip(first)) {
            let p = out.as_mut_ptr();
            if NARROW {
                let sum = r.reduce(all.low(sums[1], terms));
                let sum = r.times(sum, r.factor(L::splat(c.factor)));
                L::store(p, r.reduced_word(L::add(sum, r.load(p))));
            } else {
                all.finish(sums, terms, p);
            }
        }
    }
}
