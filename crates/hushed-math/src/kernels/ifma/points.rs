//! The tile of [`crate::kernels::points`] in registers: 4 lines by 3, two sums each, 24 registers of sums. A step has
//! 24 multiply-adds for 7 loads.

use super::limb::{SHORT, Wide};
use super::{Limb, load, store};
use crate::kernels::points::{GROUP, LEFT, RIGHT, Sums, TERMS};
use crate::machine::cpu::HaveIfma;
use crate::modulus::Modulus;
use std::arch::x86_64::*;

/// Constants of one modulus; its existence proves that the kernel may run.
pub(crate) struct Points(Limb);

impl Points {
    /// `token`: every method relies on the instruction sets that it proves.
    pub(crate) fn new(token: HaveIfma, modulus: &Modulus) -> Points {
        Points(Limb::new(token, modulus))
    }

    /// sums += left·right.
    pub(crate) fn tile(&self, left: &[u64], right: &[u64], sums: &mut Sums) {
        let terms = left.len() / (LEFT * GROUP);
        assert!(terms <= TERMS && left.len() == terms * LEFT * GROUP);
        assert_eq!(right.len(), terms * RIGHT * GROUP);
        // SAFETY: the token of `new` proves the instruction sets; the assertions bound the panels.
        unsafe { tile(&self.0, terms, left.as_ptr(), right.as_ptr(), sums) }
    }
}

/// Low and high halves apart: below 2^50 + 1024·2^52 and 1024·2^48.
///
/// # Safety
/// The processor has AVX-512 IFMA; the panels have `terms` terms.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn tile(limb: &Limb, terms: usize, l: *const u64, r: *const u64, sums: &mut Sums) {
    let mut parts = [[_mm512_setzero_si512(); 2]; LEFT * RIGHT];
    // SAFETY: by the contract of this function.
    unsafe { multiply(terms, l, r, &mut parts) }
    let wide = Wide::new(limb);
    for (sum, [low, high]) in sums.iter_mut().zip(parts) {
        // SAFETY: eight words.
        unsafe {
            let low = _mm512_add_epi64(low, load(sum.as_ptr()));
            let sum_of = if terms <= SHORT {
                wide.reduce_short(low, high)
            } else {
                wide.reduce(low, high)
            };
            store(sum.as_mut_ptr(), sum_of);
        }
    }
}

/// Not inlined, and the sums are written once at the end, for the reason at the matrix product of one modulus
/// (`gemm.rs`).
///
/// # Safety
/// As [`tile`].
#[inline(never)]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn multiply(
    terms: usize,
    mut left: *const u64,
    mut right: *const u64,
    sums: &mut [[__m512i; 2]; LEFT * RIGHT],
) {
    let mut low = [[_mm512_setzero_si512(); RIGHT]; LEFT];
    let mut high = low;
    for _ in 0..terms {
        // SAFETY: by the contract of this function.
        unsafe {
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
    for i in 0..LEFT {
        for j in 0..RIGHT {
            sums[i * RIGHT + j] = [low[i][j], high[i][j]];
        }
    }
}
