//! Carry-less products on 128-bit registers.

use super::unreduced::Unreduced;
use crate::bits::Block;
use core::arch::x86_64::*;

#[inline(always)]
fn load(block: &Block) -> __m128i {
    // SAFETY: both are 16 plain bytes.
    unsafe { core::mem::transmute(*block) }
}

#[inline(always)]
fn word(v: __m128i) -> u128 {
    // SAFETY: both are 16 plain bytes.
    unsafe { core::mem::transmute(v) }
}

/// The sum of the products, for as many as the shorter list has.
#[target_feature(enable = "pclmulqdq,sse2")]
pub(super) fn dot(a: &[Block], b: &[Block]) -> Unreduced {
    let zero = _mm_setzero_si128();
    // The two middle products add up in registers of their own, which halves the chain.
    let (mut low, mut left, mut right, mut high) = (zero, zero, zero, zero);
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (load(a), load(b));
        low = _mm_xor_si128(low, _mm_clmulepi64_si128::<0x00>(a, b));
        left = _mm_xor_si128(left, _mm_clmulepi64_si128::<0x01>(a, b));
        right = _mm_xor_si128(right, _mm_clmulepi64_si128::<0x10>(a, b));
        high = _mm_xor_si128(high, _mm_clmulepi64_si128::<0x11>(a, b));
    }
    Unreduced { low: word(low), middle: word(left) ^ word(right), high: word(high) }
}
