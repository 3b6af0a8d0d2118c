//! VAES on 512-bit registers: four blocks an instruction, 32 in flight.

use super::{Four, GROUP, LevelSums, Rounds, Tweaks, key};
use crate::bits::Block;
use core::arch::x86_64::*;

/// Registers in flight.
const REGS: usize = 8;
/// Blocks in flight.
const WIDE: usize = 4 * REGS;

type State = [__m512i; REGS];

#[inline]
#[target_feature(enable = "avx512f")]
fn broadcast(rounds: &[Block; 11]) -> [__m512i; 11] {
    rounds.map(|k| {
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
    let k = broadcast(&rounds.0);
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
    let k = broadcast(&rounds.0);
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

/// As [`super::aesni::expand_many`], four keys a register and thirty-two in flight.
#[target_feature(enable = "avx512f,avx512bw,vaes")]
pub(super) fn expand_many(keys: &[Block], out: &mut [Four]) {
    let rotated = _mm512_set1_epi32(0x0c0f_0e0d);
    let mut padded = [Block::ZERO; WIDE];
    for (keys, out) in keys.chunks(WIDE).zip(out.chunks_mut(REGS)) {
        padded[..keys.len()].copy_from_slice(keys);
        let mut k = load(&padded);
        put(&k, 0, out);
        let mut constant = 1i32;
        for round in 1..11 {
            let c = _mm512_set1_epi32(constant);
            for k in &mut k {
                let word = _mm512_aesenclast_epi128(_mm512_shuffle_epi8(*k, rotated), c);
                let two = _mm512_xor_si512(*k, _mm512_bslli_epi128::<4>(*k));
                let four = _mm512_xor_si512(two, _mm512_bslli_epi128::<8>(two));
                *k = _mm512_xor_si512(four, word);
            }
            put(&k, round, out);
            constant = if constant == 0x80 {
                0x1b
            } else {
                constant << 1
            };
        }
    }
}

/// Stores a round of all keys.
#[inline]
#[target_feature(enable = "avx512f")]
fn put(k: &State, round: usize, out: &mut [Four]) {
    for (k, out) in k.iter().zip(out) {
        // SAFETY: four blocks are one register; the store is unaligned.
        unsafe { _mm512_storeu_si512(out[round].as_mut_ptr().cast(), *k) };
    }
}

/// See [`super::Batch::groups`]. A group is four registers: two groups are in flight, each under its key.
#[target_feature(enable = "avx512f,vaes")]
pub(super) fn hash_groups(
    keys: &[Four],
    tweaks: Tweaks,
    offset: Block,
    x: &[[Block; GROUP]],
    y: &mut [[Block; GROUP]],
) {
    const { assert!(WIDE == 2 * GROUP) };
    let mut first = tweaks.first;
    let (x_pairs, x_last) = x.as_chunks::<2>();
    let (y_pairs, y_last) = y.as_chunks_mut::<2>();
    for (g, (x, y)) in x_pairs.iter().zip(y_pairs).enumerate() {
        let two = [key(keys, 2 * g), key(keys, 2 * g + 1)];
        pair(&two, first, tweaks, offset, x, y);
        first = first.wrapping_add(tweaks.group.wrapping_mul(2));
    }
    if let ([x], [y]) = (x_last, y_last) {
        let last = key(keys, 2 * x_pairs.len());
        let mut both = [[Block::ZERO; GROUP]; 2];
        pair(&[last, last], first, tweaks, offset, &[*x, *x], &mut both);
        *y = both[0];
    }
}

#[inline]
#[target_feature(enable = "avx512f,vaes")]
fn pair(
    keys: &[[Block; 11]; 2],
    first: u64,
    tweaks: Tweaks,
    offset: Block,
    x: &[[Block; GROUP]; 2],
    y: &mut [[Block; GROUP]; 2],
) {
    let offset = {
        // SAFETY: both are 16 plain bytes.
        let offset: __m128i = unsafe { core::mem::transmute(offset) };
        _mm512_broadcast_i32x4(offset)
    };
    let lane = |j: u64| tweaks.input.wrapping_mul(j) as i64;
    let lanes = _mm512_set_epi64(0, lane(3), 0, lane(2), 0, lane(1), 0, lane(0));
    let four = _mm512_set_epi64(0, lane(4), 0, lane(4), 0, lane(4), 0, lane(4));
    let (flat, _) = x.as_flattened().as_chunks::<WIDE>();
    let mut m = load(&flat[0]);
    for (g, m) in m.as_chunks_mut::<{ REGS / 2 }>().0.iter_mut().enumerate() {
        let base = first.wrapping_add(tweaks.group.wrapping_mul(g as u64)) as i64;
        let mut t = _mm512_add_epi64(lanes, _mm512_set_epi64(0, base, 0, base, 0, base, 0, base));
        for m in m {
            *m = _mm512_xor_si512(sigma(_mm512_xor_si512(*m, offset)), t);
            t = _mm512_add_epi64(t, four);
        }
    }
    let k = [broadcast(&keys[0]), broadcast(&keys[1])];
    let mut s = m;
    for (s, k) in s.as_chunks_mut::<{ REGS / 2 }>().0.iter_mut().zip(&k) {
        for s in s {
            *s = _mm512_xor_si512(*s, k[0]);
        }
    }
    for round in 1..10 {
        for (s, k) in s.as_chunks_mut::<{ REGS / 2 }>().0.iter_mut().zip(&k) {
            for s in s {
                *s = _mm512_aesenc_epi128(*s, k[round]);
            }
        }
    }
    for (s, k) in s.as_chunks_mut::<{ REGS / 2 }>().0.iter_mut().zip(&k) {
        for s in s {
            *s = _mm512_aesenclast_epi128(*s, k[10]);
        }
    }
    for (s, m) in s.iter_mut().zip(&m) {
        *s = _mm512_xor_si512(*s, *m);
    }
    let (flat, _) = y.as_flattened_mut().as_chunks_mut::<WIDE>();
    store(&s, &mut flat[0]);
}

#[target_feature(enable = "avx512f,vaes")]
pub(super) fn half_tree_level(
    keys: &[Four],
    g: usize,
    nodes: &mut [Block],
    fix_at: u64,
    fix: Block,
) -> LevelSums {
    if !(nodes.len() / 2).is_multiple_of(WIDE) {
        // The top of a tree.
        return super::aesni::half_tree_level(keys, g, nodes, fix_at, fix);
    }
    let k = broadcast(&key(keys, g));
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

    // From the top down, so that no parent is overwritten before it was read.
    let mut end = nodes.len() / 2;
    while end > 0 {
        let begin = end - WIDE;
        let (parents, _) = nodes[begin..end].as_chunks::<WIDE>();
        let mut p = load(&parents[0]);
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
        let (children, _) = nodes[2 * begin..2 * end].as_chunks_mut::<WIDE>();
        let [low, high] = children else {
            unreachable!("twice as many children as parents")
        };
        let (mut first, mut second) = ([zero; REGS], [zero; REGS]);
        for (i, (s, (m, p))) in s.iter().zip(m.iter().zip(&p)).enumerate() {
            let left = _mm512_xor_si512(*s, *m);
            left_sum = _mm512_xor_si512(left_sum, left);
            all_sum = _mm512_xor_si512(all_sum, *p);
            let right = _mm512_xor_si512(left, *p);
            let half = if i < REGS / 2 {
                &mut first
            } else {
                &mut second
            };
            half[2 * i % REGS] = _mm512_permutex2var_epi64(left, first_pairs, right);
            half[2 * i % REGS + 1] = _mm512_permutex2var_epi64(left, last_pairs, right);
        }
        store(&first, low);
        store(&second, high);
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
