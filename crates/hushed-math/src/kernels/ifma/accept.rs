//! Rejection sampling from uniform words, eight at a time.

use super::lanes::{load, splat, store};
use crate::machine::cpu::HaveIfma;
use std::arch::x86_64::*;

/// Masks each word with `mask` and writes those below q, in order, to the front of `out`, as long as both slices have
/// eight words left. Returns the number of words read and of residues written. The rest of `out` is partly overwritten.
pub(crate) fn accept(_: HaveIfma, q: u64, mask: u64, words: &[u64], out: &mut [u64]) -> (usize, usize) {
    // SAFETY: the token proves the instruction sets.
    unsafe { run(q, mask, words, out) }
}

#[target_feature(enable = "avx512f")]
unsafe fn run(q: u64, mask: u64, words: &[u64], out: &mut [u64]) -> (usize, usize) {
    let (q, mask) = (splat(q), splat(mask));
    let (mut read, mut kept) = (0, 0);
    while read + 8 <= words.len() && kept + 8 <= out.len() {
        // SAFETY: eight words each, by the condition of the loop; the whole register is stored, which costs less than a
        // compressing store.
        unsafe {
            let candidates = _mm512_and_si512(load(words.as_ptr().add(read)), mask);
            let below = _mm512_cmplt_epu64_mask(candidates, q);
            let accepted = _mm512_maskz_compress_epi64(below, candidates);
            store(out.as_mut_ptr().add(kept), accepted);
            kept += below.count_ones() as usize;
        }
        read += 8;
    }
    (read, kept)
}
