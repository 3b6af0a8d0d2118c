//! Moves blocks of eight words to new places, each in one of eight orders, half a block per register: AVX2.

use crate::machine::cpu::HaveFma;
use crate::modulus::Modulus;
use std::arch::x86_64::*;

/// For each order and each half of a block of the image: the half of the source block that all its words come from, and
/// their places in it, as pairs of 32-bit words.
pub(crate) type Halves = [[Half; 2]; 8];

/// See [`Halves`].
#[derive(Clone, Copy, Default)]
pub(crate) struct Half {
    /// 0, or 4 for the last four words.
    from: usize,
    places: [u32; 8],
}

/// The orders of an automorphism by halves. The lowest bit of an order's bit-reversed sum, which names the half, is
/// that of the order plus that of the half: X → X^g has odd g.
///
/// # Panics
/// If the words of a half come from two.
pub(crate) fn halves(orders: &[[u64; 8]; 8]) -> Halves {
    orders.map(|order| {
        [0, 4].map(|half| {
            let positions: [usize; 4] = std::array::from_fn(|l| order[half + l] as usize);
            let from = positions[0] & 4;
            assert!(positions.iter().all(|p| p & 4 == from), "halves move whole");
            let places = std::array::from_fn(|i| (2 * (positions[i / 2] & 3) + i % 2) as u32);
            Half { from, places }
        })
    })
}

/// Block k of `out` is the block that contains word `moves[k]`, in order `moves[k] % 8`; `src` begins at word `first`,
/// a multiple of 8.
pub(crate) fn permute(_: HaveFma, moves: &[u32], halves: &Halves, first: usize, src: &[u64], out: &mut [u64]) {
    assert_eq!(out.len(), 8 * moves.len());
    // SAFETY: the token proves AVX2; `out` has 8 words per move.
    unsafe { run::<false>(moves, halves, first, src, out, 0) }
}

/// As [`permute`], added to `acc` modulo q.
pub(crate) fn permute_add(_: HaveFma, modulus: &Modulus, moves: &[u32], halves: &Halves, src: &[u64], acc: &mut [u64]) {
    assert_eq!(acc.len(), 8 * moves.len());
    // SAFETY: as above.
    unsafe { run::<true>(moves, halves, 0, src, acc, modulus.value()) }
}

/// Blocks of the source are bounds-checked where they are read.
#[target_feature(enable = "avx2")]
unsafe fn run<const ADD: bool>(moves: &[u32], halves: &Halves, first: usize, src: &[u64], out: &mut [u64], q: u64) {
    let q = _mm256_set1_epi64x(q as i64);
    for (&from, out) in moves.iter().zip(out.chunks_exact_mut(8)) {
        let from = from as usize;
        let block = &src[(from & !7) - first..][..8];
        for (half, out) in halves[from & 7].iter().zip(out.chunks_exact_mut(4)) {
            // SAFETY: four words each; `half.from` is 0 or 4.
            unsafe {
                let places = _mm256_loadu_si256(half.places.as_ptr().cast());
                let words = _mm256_loadu_si256(block.as_ptr().add(half.from).cast());
                let mut value = _mm256_permutevar8x32_epi32(words, places);
                if ADD {
                    // Below 2q < 2^51, so that the sign of the difference says which is meant.
                    let sum = _mm256_add_epi64(value, _mm256_loadu_si256(out.as_ptr().cast()));
                    let less = _mm256_castsi256_pd(_mm256_sub_epi64(sum, q));
                    value = _mm256_castpd_si256(_mm256_blendv_pd(less, _mm256_castsi256_pd(sum), less));
                }
                _mm256_storeu_si256(out.as_mut_ptr().cast(), value);
            }
        }
    }
}
