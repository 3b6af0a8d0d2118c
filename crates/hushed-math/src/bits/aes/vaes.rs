//! VAES on 512-bit registers: four blocks an instruction, 32 in flight.

use super::{LevelSums, Rounds};
use crate::bits::Block;
use core::arch::x86_64::*;

/// Registers in flight.
const REGS: usize = 8;
/// Blocks in flight.
const WIDE: usize = 4 * REGS;

type State = [__m512i; REGS];

#[inline]
#[target_feature(enable = "avx512f")]
fn broadcast(rounds: &Rounds) -> [__m512i; 11] {
    rounds.0.map(|k| {
        // SAFETY: both are 16 plain bytes.
        let k: __m128i = unsafe { core::mem::transmute(k) };
        _mm512_broadcast_i32x4(k)
    })
}

#[inline]
#[target_feature(enable = "avx512f,vaes")]
fn permute(k: &[__m512i; 11], s: &mut State) {
    for s in s.iter_mut() {
        *s = _mm512_xor_si512(*s, k[0]);
    }
    for k in &k[1..10] {
        for s in s.iter_mut() {
            *s = _mm512_aesenc_epi128(*s, *k);
        }
    }
    for s in s.iter_mut() {
        *s = _mm512_aesenclast_epi128(*s, k[10]);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn sigma(x: __m512i) -> __m512i {
    // lo' = hi; hi' = hi ⊕ lo.
    let swapped = _mm512_shuffle_epi32::<0x4e>(x);
    _mm512_mask_xor_epi64(swapped, 0b1010_1010, swapped, x)
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(blocks: &[Block; WIDE]) -> State {
    core::array::from_fn(|i| {
        // SAFETY: register i covers blocks 4i..4i+4 of 32; the load is unaligned.
        unsafe { _mm512_loadu_si512(blocks.as_ptr().add(4 * i).cast()) }
    })
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(s: &State, blocks: &mut [Block; WIDE]) {
    for (i, s) in s.iter().enumerate() {
        // SAFETY: as in `load`.
        unsafe { _mm512_storeu_si512(blocks.as_mut_ptr().add(4 * i).cast(), *s) }
    }
}

#[target_feature(enable = "avx512f,vaes")]
pub(super) fn encrypt(rounds: &Rounds, blocks: &mut [Block]) {
    let k = broadcast(rounds);
    let (chunks, tail) = blocks.as_chunks_mut::<WIDE>();
    for chunk in chunks {
        let mut s = load(chunk);
        permute(&k, &mut s);
        store(&s, chunk);
    }
    if !tail.is_empty() {
        let mut padded = [Block::ZERO; WIDE];
        padded[..tail.len()].copy_from_slice(tail);
        let mut s = load(&padded);
        permute(&k, &mut s);
        store(&s, &mut padded);
        tail.copy_from_slice(&padded[..tail.len()]);
    }
}

/// `out[j] = AES(start + j)`; `start + out.len()` must not pass 2^64.
#[target_feature(enable = "avx512f,vaes")]
pub(super) fn counter(rounds: &Rounds, start: u64, out: &mut [Block]) {
    let k = broadcast(rounds);
    let lane = |r: u64| start.wrapping_add(r) as i64;
    let mut at = _mm512_set_epi64(0, lane(3), 0, lane(2), 0, lane(1), 0, lane(0));
    let four = _mm512_set_epi64(0, 4, 0, 4, 0, 4, 0, 4);
    for chunk in out.chunks_mut(WIDE) {
        let mut s = [at; REGS];
        for s in &mut s {
            *s = at;
            at = _mm512_add_epi64(at, four);
        }
        permute(&k, &mut s);
        match chunk.as_mut_array::<WIDE>() {
            Some(full) => store(&s, full),
            None => {
                let mut padded = [Block::ZERO; WIDE];
                store(&s, &mut padded);
                chunk.copy_from_slice(&padded[..chunk.len()]);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,vaes")]
fn hash_wide(k: &[__m512i; 11], tweak: u64, x: &[Block; WIDE], y: &mut [Block; WIDE]) {
    let lane = |r: u64| tweak.wrapping_add(r) as i64;
    let mut t = _mm512_set_epi64(0, lane(3), 0, lane(2), 0, lane(1), 0, lane(0));
    let four = _mm512_set_epi64(0, 4, 0, 4, 0, 4, 0, 4);
    let mut m = load(x);
    for m in &mut m {
        *m = _mm512_xor_si512(sigma(*m), t);
        t = _mm512_add_epi64(t, four);
    }
    let mut s = m;
    permute(k, &mut s);
    for (s, m) in s.iter_mut().zip(&m) {
        *s = _mm512_xor_si512(*s, *m);
    }
    store(&s, y);
}

#[target_feature(enable = "avx512f,vaes")]
pub(super) fn hash(rounds: &Rounds, tweak: u64, input: &[Block], out: &mut [Block]) {
    let k = broadcast(rounds);
    let (x, x_tail) = input.as_chunks::<WIDE>();
    let (y, y_tail) = out.as_chunks_mut::<WIDE>();
    let mut index = tweak;
    for (x, y) in x.iter().zip(y) {
        hash_wide(&k, index, x, y);
        index = index.wrapping_add(WIDE as u64);
    }
    if !x_tail.is_empty() {
        let mut padded = [Block::ZERO; WIDE];
        let mut hashed = [Block::ZERO; WIDE];
        padded[..x_tail.len()].copy_from_slice(x_tail);
        hash_wide(&k, index, &padded, &mut hashed);
        y_tail.copy_from_slice(&hashed[..y_tail.len()]);
    }
}

#[target_feature(enable = "avx512f,vaes")]
pub(super) fn half_tree_level(
    rounds: &Rounds,
    nodes: &mut [Block],
    fix_at: u64,
    fix: Block,
) -> LevelSums {
    let k = broadcast(rounds);
    let fix = {
        // SAFETY: both are 16 plain bytes.
        let fix: __m128i = unsafe { core::mem::transmute(fix) };
        _mm512_broadcast_i32x4(fix)
    };
    let fix_at = _mm512_set1_epi64(fix_at as i64);
    let zero = _mm512_setzero_si512();
    let (mut left_sum, mut all_sum) = (zero, zero);
    let first_pairs = _mm512_set_epi64(11, 10, 3, 2, 9, 8, 1, 0);
    let last_pairs = _mm512_set_epi64(15, 14, 7, 6, 13, 12, 5, 4);

    let width = nodes.len() / 2;
    let mut end = width;
    // From the top down, so that no parent is overwritten before it was read. The last chunk may be
    // short: it is then padded with parents that are left out of the sums and of the output.
    while end > 0 {
        let begin = (end - 1) / WIDE * WIDE;
        let n = end - begin;
        let mut padded = [Block::ZERO; WIDE];
        let parents = match nodes[begin..end].as_array::<WIDE>() {
            Some(full) => full,
            None => {
                padded[..n].copy_from_slice(&nodes[begin..end]);
                &padded
            }
        };
        let mut p = load(parents);
        let lane = |r: usize| (begin + r) as i64;
        let (l0, l1, l2, l3) = (lane(0), lane(1), lane(2), lane(3));
        let mut at = _mm512_set_epi64(l3, l3, l2, l2, l1, l1, l0, l0);
        for p in &mut p {
            let hit = _mm512_cmpeq_epi64_mask(at, fix_at);
            *p = _mm512_mask_xor_epi64(*p, hit, *p, fix);
            at = _mm512_add_epi64(at, _mm512_set1_epi64(4));
        }
        let m = p.map(|p| sigma(p));
        let mut s = m;
        permute(&k, &mut s);
        for (s, m) in s.iter_mut().zip(&m) {
            *s = _mm512_xor_si512(*s, *m);
        }
        let mut children = [[Block::ZERO; 4]; 2 * REGS];
        let full = n == WIDE;
        for i in 0..REGS {
            // Which of the four parents of this register exist; two mask bits a block.
            let live = n.saturating_sub(4 * i).min(4);
            let mask = if full {
                0xff
            } else {
                ((1u32 << (2 * live)) - 1) as __mmask8
            };
            left_sum = _mm512_mask_xor_epi64(left_sum, mask, left_sum, s[i]);
            all_sum = _mm512_mask_xor_epi64(all_sum, mask, all_sum, p[i]);
            let right = _mm512_xor_si512(s[i], p[i]);
            let first = _mm512_permutex2var_epi64(s[i], first_pairs, right);
            let last = _mm512_permutex2var_epi64(s[i], last_pairs, right);
            if full {
                let out = &mut nodes[2 * begin + 8 * i..2 * begin + 8 * i + 8];
                // SAFETY: `out` is eight blocks, two registers; the stores are unaligned.
                unsafe {
                    _mm512_storeu_si512(out.as_mut_ptr().cast(), first);
                    _mm512_storeu_si512(out.as_mut_ptr().add(4).cast(), last);
                }
            } else {
                // SAFETY: four blocks each.
                unsafe {
                    _mm512_storeu_si512(children[2 * i].as_mut_ptr().cast(), first);
                    _mm512_storeu_si512(children[2 * i + 1].as_mut_ptr().cast(), last);
                }
            }
        }
        if !full {
            nodes[2 * begin..2 * end].copy_from_slice(&children.as_flattened()[..2 * n]);
        }
        end = begin;
    }
    LevelSums {
        left: fold(left_sum),
        all: fold(all_sum),
    }
}

/// XOR of the four blocks of a register.
#[inline]
#[target_feature(enable = "avx512f")]
fn fold(v: __m512i) -> Block {
    let mut four = [Block::ZERO; 4];
    // SAFETY: four blocks are one register; the store is unaligned.
    unsafe { _mm512_storeu_si512(four.as_mut_ptr().cast(), v) };
    four[0] ^ four[1] ^ four[2] ^ four[3]
}
