//! Sums of s consecutive words, modulo 2^64.
//!
//! Constant time: no branch or index depends on a value.

use crate::machine::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Writes Σ `values[s·i .. s·(i + 1)]` to `out[i]`.
///
/// # Panics
/// Unless there are s values for each sum, s ≥ 1.
pub(crate) fn sums(cpu: Cpu, values: &[u64], s: usize, out: &mut [u64]) {
    assert!(s > 0 && values.len() == s * out.len(), "{s} values for each sum");
    #[cfg(target_arch = "x86_64")]
    if s.is_multiple_of(8) && (cpu.ifma().is_some() || cpu.fma().is_some_and(|have| have.wide())) {
        // SAFETY: either token proves AVX-512 F; the assertion has the lengths.
        return unsafe { eight(values, s, out) };
    }
    let _ = cpu;
    for (sum, values) in out.iter_mut().zip(values.chunks_exact(s)) {
        *sum = values.iter().fold(0, |sum, v| sum.wrapping_add(*v));
    }
}

/// # Safety
/// The processor has AVX-512 F; s is a multiple of 8, and there are s values for each sum.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn eight(values: &[u64], s: usize, out: &mut [u64]) {
    for (sum, values) in out.iter_mut().zip(values.chunks_exact(s)) {
        let mut all = _mm512_setzero_si512();
        for eight in values.chunks_exact(8) {
            // SAFETY: eight words; no alignment needed.
            all = _mm512_add_epi64(all, unsafe { _mm512_loadu_si512(eight.as_ptr().cast()) });
        }
        *sum = _mm512_reduce_add_epi64(all) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_wrap_on_every_kernel() {
        let word = |i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for s in [1, 2, 3, 8, 16, 20, 64] {
            let values: Vec<u64> = (0..7 * s as u64).map(word).collect();
            let expected: Vec<u64> =
                values.chunks(s).map(|v| v.iter().fold(0u64, |sum, v| sum.wrapping_add(*v))).collect();
            for cpu in Cpu::variants() {
                let mut out = vec![1; 7];
                sums(cpu, &values, s, &mut out);
                assert_eq!(out, expected, "{s}, {}", cpu.kernel_name());
            }
        }
    }
}
