//! Registers of two and of four blocks, for [`super::wide`].

use crate::bits::Block;
use core::arch::x86_64::*;

/// A register of whole blocks. Every function needs the register's instruction sets: AVX2 and VAES for [`Pair`],
/// AVX-512 F, BW and VAES for [`Quad`]. Loads and stores are unaligned.
pub(super) trait Register: Copy {
    /// Blocks in it.
    const BLOCKS: usize;

    unsafe fn zero() -> Self;
    unsafe fn load(at: *const Block) -> Self;
    unsafe fn store(self, at: *mut Block);
    /// One block in all places.
    unsafe fn every(block: &Block) -> Self;
    unsafe fn xor(self, other: Self) -> Self;
    /// Sums of 64-bit words.
    unsafe fn add(self, other: Self) -> Self;
    /// σ of each block, see [`super::shared::sigma`].
    unsafe fn sigma(self) -> Self;
    /// `value` in the 64-bit words that are equal in both, and zero in the others.
    unsafe fn where_equal(self, other: Self, value: Self) -> Self;
    /// One round of AES.
    unsafe fn round(self, key: Self) -> Self;
    /// The last round of AES.
    unsafe fn last(self, key: Self) -> Self;
    /// The next round key of each block, see [`super::aesni::expand_many`].
    unsafe fn next_key(self, constant: i32) -> Self;
    /// The blocks of `left` and of `right` in turn.
    unsafe fn in_turn(left: Self, right: Self) -> [Self; 2];
}

/// RotWord of the last column, in every column.
const ROTATED: i32 = 0x0c0f_0e0d;

/// Two blocks in 256 bits.
#[derive(Clone, Copy)]
pub(super) struct Pair(pub(super) __m256i);

/// Four blocks in 512 bits.
#[derive(Clone, Copy)]
pub(super) struct Quad(pub(super) __m512i);

// SAFETY of all that follows: the caller guarantees the instruction sets, and for loads and stores the memory.
impl Register for Pair {
    const BLOCKS: usize = 2;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: guaranteed by the caller.
        Pair(unsafe { _mm256_setzero_si256() })
    }

    #[inline(always)]
    unsafe fn load(at: *const Block) -> Self {
        // SAFETY: guaranteed by the caller.
        Pair(unsafe { _mm256_loadu_si256(at.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut Block) {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm256_storeu_si256(at.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn every(block: &Block) -> Self {
        // SAFETY: guaranteed by the caller; a block is sixteen bytes.
        Pair(unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(core::ptr::from_ref(block).cast())) })
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        Pair(unsafe { _mm256_xor_si256(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        Pair(unsafe { _mm256_add_epi64(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn sigma(self) -> Self {
        // lo' = hi; hi' = hi ⊕ lo.
        // SAFETY: guaranteed by the caller.
        unsafe {
            let high = _mm256_and_si256(self.0, _mm256_set_epi64x(-1, 0, -1, 0));
            Pair(_mm256_xor_si256(_mm256_shuffle_epi32::<0x4e>(self.0), high))
        }
    }

    #[inline(always)]
    unsafe fn where_equal(self, other: Self, value: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        Pair(unsafe { _mm256_and_si256(_mm256_cmpeq_epi64(self.0, other.0), value.0) })
    }

    #[inline(always)]
    unsafe fn round(self, key: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        Pair(unsafe { _mm256_aesenc_epi128(self.0, key.0) })
    }

    #[inline(always)]
    unsafe fn last(self, key: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        Pair(unsafe { _mm256_aesenclast_epi128(self.0, key.0) })
    }

    #[inline(always)]
    unsafe fn next_key(self, constant: i32) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let columns = _mm256_shuffle_epi8(self.0, _mm256_set1_epi32(ROTATED));
            let word = _mm256_aesenclast_epi128(columns, _mm256_set1_epi32(constant));
            let two = _mm256_xor_si256(self.0, _mm256_bslli_epi128::<4>(self.0));
            let four = _mm256_xor_si256(two, _mm256_bslli_epi128::<8>(two));
            Pair(_mm256_xor_si256(four, word))
        }
    }

    #[inline(always)]
    unsafe fn in_turn(left: Self, right: Self) -> [Self; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let low = _mm256_permute2x128_si256::<0x20>(left.0, right.0);
            [Pair(low), Pair(_mm256_permute2x128_si256::<0x31>(left.0, right.0))]
        }
    }
}

impl Register for Quad {
    const BLOCKS: usize = 4;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: guaranteed by the caller.
        Quad(unsafe { _mm512_setzero_si512() })
    }

    #[inline(always)]
    unsafe fn load(at: *const Block) -> Self {
        // SAFETY: guaranteed by the caller.
        Quad(unsafe { _mm512_loadu_si512(at.cast()) })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut Block) {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_storeu_si512(at.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn every(block: &Block) -> Self {
        // SAFETY: guaranteed by the caller; a block is sixteen bytes.
        Quad(unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(core::ptr::from_ref(block).cast())) })
    }

    #[inline(always)]
    unsafe fn xor(self, other: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        Quad(unsafe { _mm512_xor_si512(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        Quad(unsafe { _mm512_add_epi64(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn sigma(self) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let swapped = _mm512_shuffle_epi32::<0x4e>(self.0);
            Quad(_mm512_mask_xor_epi64(swapped, 0b1010_1010, swapped, self.0))
        }
    }

    #[inline(always)]
    unsafe fn where_equal(self, other: Self, value: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe { Quad(_mm512_maskz_mov_epi64(_mm512_cmpeq_epi64_mask(self.0, other.0), value.0)) }
    }

    #[inline(always)]
    unsafe fn round(self, key: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        Quad(unsafe { _mm512_aesenc_epi128(self.0, key.0) })
    }

    #[inline(always)]
    unsafe fn last(self, key: Self) -> Self {
        // SAFETY: guaranteed by the caller.
        Quad(unsafe { _mm512_aesenclast_epi128(self.0, key.0) })
    }

    #[inline(always)]
    unsafe fn next_key(self, constant: i32) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let columns = _mm512_shuffle_epi8(self.0, _mm512_set1_epi32(ROTATED));
            let word = _mm512_aesenclast_epi128(columns, _mm512_set1_epi32(constant));
            let two = _mm512_xor_si512(self.0, _mm512_bslli_epi128::<4>(self.0));
            let four = _mm512_xor_si512(two, _mm512_bslli_epi128::<8>(two));
            Quad(_mm512_xor_si512(four, word))
        }
    }

    #[inline(always)]
    unsafe fn in_turn(left: Self, right: Self) -> [Self; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let first = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
            let last = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);
            let low = _mm512_permutex2var_epi64(left.0, first, right.0);
            [Quad(low), Quad(_mm512_permutex2var_epi64(left.0, last, right.0))]
        }
    }
}
