//! Blocks of eight words to new places, each in one of eight orders.

use super::{csub, load, splat, store};
use crate::cpu::HaveIfma;
use crate::modulus::Modulus;
use std::arch::x86_64::*;

/// Block k of `out` is the block of `src` that `moves[k]` is within, in the order `orders[moves[k] % 8]`.
pub(crate) fn permute(
    _: HaveIfma,
    moves: &[u32],
    orders: &[[u64; 8]; 8],
    src: &[u64],
    out: &mut [u64],
) {
    check(moves, src, out);
    // SAFETY: the token proves the instruction sets; the slices have 8 words a move.
    unsafe { run::<false>(moves, orders, src, out, 0) }
}

/// As [`permute`], added to `acc` modulo q.
pub(crate) fn permute_add(
    _: HaveIfma,
    modulus: &Modulus,
    moves: &[u32],
    orders: &[[u64; 8]; 8],
    src: &[u64],
    acc: &mut [u64],
) {
    check(moves, src, acc);
    // SAFETY: the token proves the instruction sets; the slices have 8 words a move.
    unsafe { run::<true>(moves, orders, src, acc, modulus.value()) }
}

fn check(moves: &[u32], src: &[u64], out: &[u64]) {
    let length = 8 * moves.len();
    // `src` may be longer: its blocks are bounds-checked where they are read.
    assert!(src.len() >= length && out.len() == length);
}

#[target_feature(enable = "avx512f")]
unsafe fn run<const ADD: bool>(
    moves: &[u32],
    orders: &[[u64; 8]; 8],
    src: &[u64],
    out: &mut [u64],
    q: u64,
) {
    let q = splat(q);
    for (&from, out) in moves.iter().zip(out.chunks_exact_mut(8)) {
        let from = from as usize;
        let block = &src[from & !7..][..8];
        // SAFETY: eight words each.
        unsafe {
            let order = load(orders[from & 7].as_ptr());
            let mut value = _mm512_permutexvar_epi64(order, load(block.as_ptr()));
            if ADD {
                value = csub(_mm512_add_epi64(value, load(out.as_ptr())), q);
            }
            store(out.as_mut_ptr(), value);
        }
    }
}
