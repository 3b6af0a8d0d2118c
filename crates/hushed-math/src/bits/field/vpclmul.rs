//! Carry-less products on 512-bit registers: four at once.

use super::pclmul;
use super::unreduced::Unreduced;
use crate::bits::Block;
use core::arch::x86_64::*;

/// Blocks in a register.
const LANES: usize = 4;

#[inline]
#[target_feature(enable = "avx512f")]
fn load(blocks: &[Block; LANES]) -> __m512i {
    // SAFETY: four blocks are 64 bytes; the load is unaligned.
    unsafe { _mm512_loadu_si512(blocks.as_ptr().cast()) }
}

/// The four lanes added up.
#[inline]
#[target_feature(enable = "avx512f")]
fn fold(v: __m512i) -> u128 {
    let mut lanes = [0u128; LANES];
    // SAFETY: four lanes are 64 bytes; the store is unaligned.
    unsafe { _mm512_storeu_si512(lanes.as_mut_ptr().cast(), v) };
    lanes.into_iter().fold(0, core::ops::BitXor::bitxor)
}

/// As [`pclmul::dot`].
#[target_feature(enable = "avx512f,vpclmulqdq,pclmulqdq")]
pub(super) fn dot(a: &[Block], b: &[Block]) -> Unreduced {
    let zero = _mm512_setzero_si512();
    let (mut low, mut left, mut right, mut high) = (zero, zero, zero, zero);
    let (a, a_tail) = a.as_chunks::<LANES>();
    let (b, b_tail) = b.as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (load(a), load(b));
        low = _mm512_xor_si512(low, _mm512_clmulepi64_epi128::<0x00>(a, b));
        left = _mm512_xor_si512(left, _mm512_clmulepi64_epi128::<0x01>(a, b));
        right = _mm512_xor_si512(right, _mm512_clmulepi64_epi128::<0x10>(a, b));
        high = _mm512_xor_si512(high, _mm512_clmulepi64_epi128::<0x11>(a, b));
    }
    let tail = pclmul::dot(a_tail, b_tail);
    Unreduced {
        low: fold(low) ^ tail.low,
        middle: fold(left) ^ fold(right) ^ tail.middle,
        high: fold(high) ^ tail.high,
    }
}
