//! The counter stream on 256-bit registers, sixteen blocks in flight: two blocks per instruction with VAES, which
//! client processors have without AVX-512, or one with AES-NI.

use super::register::Pair;
use super::shared::Rounds;
use super::wide::permute;
use crate::bits::Block;
use crate::machine::cpu::HaveWideAes;
use core::arch::x86_64::*;

/// Words of sixteen blocks.
pub(super) const WORDS: usize = 32;

/// For each set of words of a register, a bit each: the pairs of 32-bit words that bring these to the front, in order.
const FRONT: [[u32; 8]; 16] = {
    let mut all = [[0; 8]; 16];
    let mut set = 0;
    while set < 16 {
        let (mut word, mut place) = (0, 0);
        while word < 4 {
            if set >> word & 1 == 1 {
                all[set][2 * place] = 2 * word;
                all[set][2 * place + 1] = 2 * word + 1;
                place += 1;
            }
            word += 1;
        }
        set += 1;
    }
    all
};

/// The words of `AES(domain ‖ first + j)`, j = 0, 1, …
pub(super) fn counter(have: HaveWideAes, rounds: &Rounds, [domain, first]: [u64; 2], out: &mut [u64]) {
    match have.vaes() {
        // SAFETY: the token proves the instruction sets.
        true => unsafe { counter_vaes(rounds, [domain, first], out) },
        // SAFETY: as above.
        false => unsafe { counter_aesni(rounds, [domain, first], out) },
    }
}

/// Masks each of these words and writes those below q, in order, to the front of `out`, as long as the words of sixteen
/// blocks fit. Returns the number of blocks used and of residues written. The rest of `out` is partly overwritten.
/// `mask` and q are below 2^63.
pub(super) fn residues(
    have: HaveWideAes,
    rounds: &Rounds,
    start: [u64; 2],
    bounds: [u64; 2],
    out: &mut [u64],
) -> (u64, usize) {
    match have.vaes() {
        // SAFETY: the token proves the instruction sets.
        true => unsafe { residues_vaes(rounds, start, bounds, out) },
        // SAFETY: as above.
        false => unsafe { residues_aesni(rounds, start, bounds, out) },
    }
}

#[target_feature(enable = "avx2,aes,vaes")]
fn counter_vaes(rounds: &Rounds, start: [u64; 2], out: &mut [u64]) {
    // SAFETY: the instruction sets are enabled here.
    unsafe { counter_body::<true>(rounds, start, out) }
}

#[target_feature(enable = "avx2,aes")]
fn counter_aesni(rounds: &Rounds, start: [u64; 2], out: &mut [u64]) {
    // SAFETY: the instruction sets are enabled here.
    unsafe { counter_body::<false>(rounds, start, out) }
}

#[target_feature(enable = "avx2,popcnt,aes,vaes")]
fn residues_vaes(rounds: &Rounds, start: [u64; 2], bounds: [u64; 2], out: &mut [u64]) -> (u64, usize) {
    // SAFETY: the instruction sets are enabled here.
    unsafe { residues_body::<true>(rounds, start, bounds, out) }
}

#[target_feature(enable = "avx2,popcnt,aes")]
fn residues_aesni(rounds: &Rounds, start: [u64; 2], bounds: [u64; 2], out: &mut [u64]) -> (u64, usize) {
    // SAFETY: the instruction sets are enabled here.
    unsafe { residues_body::<false>(rounds, start, bounds, out) }
}

/// # Safety
/// The processor has AVX2 and AES-NI, and VAES if that is said, as for all that follows.
#[inline(always)]
unsafe fn counter_body<const VAES: bool>(rounds: &Rounds, [domain, first]: [u64; 2], out: &mut [u64]) {
    for (chunk, first) in out.chunks_mut(WORDS).zip((first..).step_by(WORDS / 2)) {
        // SAFETY: guaranteed by the caller.
        let blocks = unsafe { sixteen::<VAES>(&rounds.0, [domain, first]) };
        let mut words = [0_u64; WORDS];
        for (block, words) in blocks.iter().zip(words.as_chunks_mut::<4>().0) {
            // SAFETY: four words are one register; the store is unaligned.
            unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), *block) };
        }
        chunk.copy_from_slice(&words[..chunk.len()]);
    }
}

#[inline(always)]
unsafe fn residues_body<const VAES: bool>(
    rounds: &Rounds,
    [domain, first]: [u64; 2],
    [q, mask]: [u64; 2],
    out: &mut [u64],
) -> (u64, usize) {
    let (mut used, mut kept) = (0, 0);
    // SAFETY: guaranteed by the caller. Of the 32 words there is room for, at least four are left for each of the eight
    // registers.
    unsafe {
        let (q, mask) = (_mm256_set1_epi64x(q as i64), _mm256_set1_epi64x(mask as i64));
        while kept + WORDS <= out.len() {
            for words in sixteen::<VAES>(&rounds.0, [domain, first.wrapping_add(used)]) {
                let candidates = _mm256_and_si256(words, mask);
                let below = _mm256_cmpgt_epi64(q, candidates);
                let set = _mm256_movemask_pd(_mm256_castsi256_pd(below)) as usize & 15;
                let front = _mm256_loadu_si256(FRONT[set].as_ptr().cast());
                let accepted = _mm256_permutevar8x32_epi32(candidates, front);
                _mm256_storeu_si256(out.as_mut_ptr().add(kept).cast(), accepted);
                kept += set.count_ones() as usize;
            }
            used += WORDS as u64 / 2;
        }
    }
    (used, kept)
}

/// `AES(domain ‖ first + j)` for sixteen j, two to a register.
#[inline(always)]
unsafe fn sixteen<const VAES: bool>(k: &[Block; 11], [domain, first]: [u64; 2]) -> [__m256i; 8] {
    // SAFETY: guaranteed by the caller; a round key is sixteen bytes.
    unsafe {
        let high = |j: u64| first.wrapping_add(j) as i64;
        let mut at = _mm256_set_epi64x(high(1), domain as i64, high(0), domain as i64);
        let two = _mm256_set_epi64x(2, 0, 2, 0);
        let mut s = [at; 8];
        for s in &mut s {
            *s = at;
            at = _mm256_add_epi64(at, two);
        }
        if VAES {
            let mut pairs = s.map(Pair);
            permute(k, &mut pairs);
            s = pairs.map(|pair| pair.0);
        } else {
            let key = |round: usize| _mm_loadu_si128(k.as_ptr().add(round).cast());
            // Eight blocks at a time: with their key they fill the registers.
            let (low, high) = s.split_at_mut(4);
            for s in [low, high] {
                let mut t = [_mm_setzero_si128(); 8];
                for (s, t) in s.iter().zip(t.as_chunks_mut::<2>().0) {
                    *t = [_mm256_castsi256_si128(*s), _mm256_extracti128_si256::<1>(*s)];
                }
                let k = key(0);
                t.iter_mut().for_each(|t| *t = _mm_xor_si128(*t, k));
                for round in 1..10 {
                    let k = key(round);
                    t.iter_mut().for_each(|t| *t = _mm_aesenc_si128(*t, k));
                }
                let k = key(10);
                t.iter_mut().for_each(|t| *t = _mm_aesenclast_si128(*t, k));
                for (s, t) in s.iter_mut().zip(t.as_chunks::<2>().0) {
                    *s = _mm256_set_m128i(t[1], t[0]);
                }
            }
        }
        s
    }
}
