//! The tile of [`crate::kernels::points`] in registers: 4 lines by 3, two sums each, 24 registers of sums. A step has
//! 24 multiply-adds for 7 loads. With few terms most of the time would go to the reductions after them, so these are
//! summed two lines at a time, which leaves registers for reducing at once.

use super::lanes::{load, store};
use super::limb::{Limb, SHORT, Wide};
use crate::kernels::points::{GROUP, LEFT, Place, RIGHT, Run, TERMS};
use crate::machine::cpu::HaveIfma;
use crate::modulus::Modulus;
use std::arch::x86_64::*;
use std::mem::MaybeUninit;

/// Constants of one modulus; its existence proves that the kernel may run.
pub(crate) struct Points(Limb);

impl Points {
    /// `token`: every method relies on the instruction sets that it proves.
    pub(crate) fn new(token: HaveIfma, modulus: &Modulus) -> Points {
        Points(Limb::new(token, modulus))
    }

    /// Sets the sums of `place` in `out` to left·right, or adds left·right to them if `add`.
    pub(crate) fn tile(&self, left: &[u64], right: &[u64], add: bool, out: &mut [u64], place: &Place) {
        let terms = left.len() / (LEFT * GROUP);
        assert!(terms <= TERMS && left.len() == terms * LEFT * GROUP);
        assert_eq!(right.len(), terms * RIGHT * GROUP);
        assert!(place.is_within(out), "room for every sum");
        // SAFETY: the token of `new` proves the instruction sets; the assertions bound the panels and what is written.
        unsafe {
            let (l, r, to) = (left.as_ptr(), right.as_ptr(), out.as_mut_ptr());
            if terms <= SHORT && !add {
                short(&self.0, terms, l, r, to, place);
            } else {
                tile(&self.0, terms, (l, r), add, to, place);
            }
        }
    }

    /// The sums of two panels over all points of `run`, before a last reduction: below 8q.
    pub(crate) fn run(&self, left: &[u64], right: &[u64], run: &Run, sums: &mut [u64; LEFT * RIGHT]) {
        let Run { groups, terms, .. } = *run;
        assert!(groups * terms <= TERMS && run.is_within(left, right));
        // SAFETY: the token of `new` proves the instruction sets; the assertion bounds the panels.
        unsafe { whole_run(&self.0, left.as_ptr(), right.as_ptr(), run, sums) }
    }
}

/// At most [`SHORT`] terms.
///
/// # Safety
/// As [`tile`].
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn short(limb: &Limb, terms: usize, left: *const u64, right: *const u64, out: *mut u64, place: &Place) {
    /// Lines summed together.
    const LINES: usize = 2;
    let wide = Wide::new(limb);
    for first in (0..place.lines).step_by(LINES) {
        let mut low = [[_mm512_setzero_si512(); RIGHT]; LINES];
        let mut high = low;
        for term in 0..terms {
            // SAFETY: by the contract of this function; `first` + 1 is below LEFT.
            unsafe {
                let right = right.add(term * RIGHT * GROUP);
                let left = left.add((term * LEFT + first) * GROUP);
                let r: [__m512i; RIGHT] = std::array::from_fn(|i| load(right.add(GROUP * i)));
                for i in 0..LINES {
                    let l = load(left.add(GROUP * i));
                    for j in 0..RIGHT {
                        low[i][j] = _mm512_madd52lo_epu64(low[i][j], l, r[j]);
                        high[i][j] = _mm512_madd52hi_epu64(high[i][j], l, r[j]);
                    }
                }
            }
        }
        for i in 0..LINES {
            for j in 0..RIGHT {
                if first + i < place.lines && j < place.columns {
                    // SAFETY: a sum that the place names.
                    unsafe {
                        let sum = wide.reduce_short(low[i][j], high[i][j]);
                        store(out.add(place.at(first + i, j)), sum);
                    }
                }
            }
        }
    }
}

/// Low and high halves of a tile's sums.
type Halves = [MaybeUninit<[__m512i; 2]>; LEFT * RIGHT];

/// Low and high halves separately: below 2^50 + 1024·2^52 and 1024·2^48.
///
/// # Safety
/// The processor has AVX-512 IFMA; the panels have `terms` terms, and `out` the words that `place` names.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn tile(limb: &Limb, terms: usize, (l, r): (*const u64, *const u64), add: bool, out: *mut u64, place: &Place) {
    let mut halves: Halves = [const { MaybeUninit::uninit() }; LEFT * RIGHT];
    // SAFETY: by the contract of this function.
    unsafe { multiply(&Run::of_one(terms), l, r, &mut halves) }
    let wide = Wide::new(limb);
    for (i, halves) in halves.chunks_exact(RIGHT).enumerate().take(place.lines) {
        for (j, halves) in halves.iter().enumerate().take(place.columns) {
            // SAFETY: `multiply` wrote all; a sum that the place names.
            unsafe {
                let [mut low, high] = halves.assume_init();
                let to = out.add(place.at(i, j));
                if add {
                    low = _mm512_add_epi64(low, load(to));
                }
                let sum = if terms <= SHORT { wide.reduce_short(low, high) } else { wide.reduce(low, high) };
                store(to, sum);
            }
        }
    }
}

/// As [`tile`], over the points of a run: a sum of eight lanes each.
///
/// # Safety
/// The processor has AVX-512 IFMA; the panels have what `run` says, at most [`TERMS`] terms in all.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn whole_run(limb: &Limb, left: *const u64, right: *const u64, run: &Run, sums: &mut [u64; LEFT * RIGHT]) {
    let mut halves: Halves = [const { MaybeUninit::uninit() }; LEFT * RIGHT];
    // SAFETY: by the contract of this function.
    unsafe { multiply(run, left, right, &mut halves) }
    let (wide, short) = (Wide::new(limb), run.groups * run.terms <= SHORT);
    for (sum, halves) in sums.iter_mut().zip(&halves) {
        // SAFETY: `multiply` wrote all.
        let [low, high] = unsafe { halves.assume_init() };
        let lanes = if short { wide.reduce_short(low, high) } else { wide.reduce(low, high) };
        *sum = _mm512_reduce_add_epi64(lanes) as u64;
    }
}

/// Writes all of `halves`. Not inlined, and the sums are written once at the end, for the reason given in `gemm.rs`.
///
/// # Safety
/// As [`tile`].
#[inline(never)]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn multiply(run: &Run, left: *const u64, right: *const u64, halves: &mut Halves) {
    let mut low = [[_mm512_setzero_si512(); RIGHT]; LEFT];
    let mut high = low;
    for group in 0..run.groups {
        // SAFETY: by the contract of this function.
        unsafe {
            let mut left = left.add(group * run.strides[0]);
            let mut right = right.add(group * run.strides[1]);
            for _ in 0..run.terms {
                let r: [__m512i; RIGHT] = std::array::from_fn(|i| load(right.add(GROUP * i)));
                for i in 0..LEFT {
                    let l = load(left.add(GROUP * i));
                    for j in 0..RIGHT {
                        low[i][j] = _mm512_madd52lo_epu64(low[i][j], l, r[j]);
                        high[i][j] = _mm512_madd52hi_epu64(high[i][j], l, r[j]);
                    }
                }
                left = left.add(LEFT * GROUP);
                right = right.add(RIGHT * GROUP);
            }
        }
    }
    for i in 0..LEFT {
        for j in 0..RIGHT {
            halves[i * RIGHT + j].write([low[i][j], high[i][j]]);
        }
    }
}
