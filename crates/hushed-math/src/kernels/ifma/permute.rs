//! Moves blocks of eight words to new places, each in one of eight orders.

use super::lanes::{csub, load, splat, store};
use crate::machine::cpu::HaveIfma;
use crate::modulus::Modulus;
use std::arch::x86_64::*;

/// Block k of `out` is the block that contains word `moves[k]`, in the order `orders[moves[k] % 8]`; `src` begins at
/// word `first`, a multiple of 8.
pub(crate) fn permute(_: HaveIfma, moves: &[u32], orders: &[[u64; 8]; 8], first: usize, src: &[u64], out: &mut [u64]) {
    check(moves, out);
    // SAFETY: the token proves the instruction sets; `out` has 8 words per move.
    unsafe { run::<false>(moves, orders, first, src, out, 0) }
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
    check(moves, acc);
    // SAFETY: the token proves the instruction sets; `acc` has 8 words per move.
    unsafe { run::<true>(moves, orders, 0, src, acc, modulus.value()) }
}

/// Blocks of the source are bounds-checked where they are read.
fn check(moves: &[u32], out: &[u64]) {
    assert_eq!(out.len(), 8 * moves.len());
}

#[target_feature(enable = "avx512f")]
unsafe fn run<const ADD: bool>(
    moves: &[u32],
    orders: &[[u64; 8]; 8],
    first: usize,
    src: &[u64],
    out: &mut [u64],
    q: u64,
) {
    let q = splat(q);
    for (&from, out) in moves.iter().zip(out.chunks_exact_mut(8)) {
        let from = from as usize;
        let block = &src[(from & !7) - first..][..8];
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
