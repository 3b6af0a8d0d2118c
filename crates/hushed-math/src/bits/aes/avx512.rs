//! The counter stream on 512-bit registers: four blocks per instruction.

use super::register::Quad;
use super::shared::Rounds;
use super::wide::permute;
use core::arch::x86_64::*;
use zeroize::Zeroize;

/// A counter: its low and its high word, between which nothing is carried.
type Counter = [u64; 2];

/// The words of `AES(start + j·step)`, j = 0, 1, …, by N registers in flight.
#[target_feature(enable = "avx512f,avx512bw,aes,vaes")]
pub(super) fn counter<const N: usize>(rounds: &Rounds, start: Counter, step: Counter, out: &mut [u64]) {
    let (mut at, four) = counters(start, step);
    for chunk in out.chunks_mut(8 * N) {
        let s = next::<N>(rounds, &mut at, four);
        if chunk.len() == 8 * N {
            store_words(&s, chunk.as_chunks_mut::<8>().0);
        } else {
            let mut padded = [[0_u64; 8]; N];
            store_words(&s, &mut padded);
            chunk.copy_from_slice(&padded.as_flattened()[..chunk.len()]);
            // The rest of a key stream.
            padded.zeroize();
        }
    }
}

/// Masks each word of `AES(start + j·step)`, j = 0, 1, …, and writes those below q, in order, to the front of `out`, as
/// long as the words of 16 blocks fit. Returns the number of blocks used and of residues written.
#[target_feature(enable = "avx512f,avx512bw,aes,vaes")]
pub(super) fn residues(
    rounds: &Rounds,
    start: Counter,
    step: Counter,
    [q, mask]: [u64; 2],
    out: &mut [u64],
) -> (u64, usize) {
    let (mut at, four) = counters(start, step);
    let (q, mask) = (_mm512_set1_epi64(q as i64), _mm512_set1_epi64(mask as i64));
    let (mut used, mut kept) = (0, 0);
    while kept + 32 <= out.len() {
        for s in next::<4>(rounds, &mut at, four) {
            let candidates = _mm512_and_si512(s, mask);
            let below = _mm512_cmplt_epu64_mask(candidates, q);
            let accepted = _mm512_maskz_compress_epi64(below, candidates);
            // SAFETY: eight words: of the 32 there is room for, at least eight are left for each of the four
            // registers. A whole store costs less than a compressing one.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(kept).cast(), accepted) };
            kept += below.count_ones() as usize;
        }
        used += 16;
    }
    (used, kept)
}

/// The counters `start` to `start + 3·step`, and the step from four to the next four.
#[inline]
#[target_feature(enable = "avx512f")]
fn counters(start: Counter, step: Counter) -> (__m512i, __m512i) {
    let l = |r: u64| start[0].wrapping_add(step[0].wrapping_mul(r)) as i64;
    let h = |r: u64| start[1].wrapping_add(step[1].wrapping_mul(r)) as i64;
    let at = _mm512_set_epi64(h(3), l(3), h(2), l(2), h(1), l(1), h(0), l(0));
    let [l, h] = step.map(|word| word.wrapping_mul(4) as i64);
    (at, _mm512_set_epi64(h, l, h, l, h, l, h, l))
}

/// AES of N registers of counters from `at` on, which moves behind them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,aes,vaes")]
fn next<const N: usize>(rounds: &Rounds, at: &mut __m512i, four: __m512i) -> [__m512i; N] {
    let mut s = [Quad(*at); N];
    for s in &mut s {
        *s = Quad(*at);
        *at = _mm512_add_epi64(*at, four);
    }
    // SAFETY: the register's instruction sets are enabled here.
    unsafe { permute(&rounds.0, &mut s) };
    s.map(|s| s.0)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_words<const N: usize>(s: &[__m512i; N], words: &mut [[u64; 8]]) {
    for (s, words) in s.iter().zip(words) {
        // SAFETY: eight words are one register; the store is unaligned.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), *s) }
    }
}
