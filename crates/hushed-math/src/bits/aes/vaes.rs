//! VAES on 512-bit registers: four blocks per instruction, 32 in flight.

use super::shared::{Four, GROUP, LevelSums, Rounds, Tweaks, key};
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
fn permute<const N: usize>(k: &[__m512i; 11], s: &mut [__m512i; N]) {
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

/// A counter: its low and its high word, between which nothing is carried.
type Counter = [u64; 2];

/// The words of `AES(start + j·step)`, j = 0, 1, …, by N registers in flight.
#[target_feature(enable = "avx512f,vaes")]
pub(super) fn counter<const N: usize>(rounds: &Rounds, start: Counter, step: Counter, out: &mut [u64]) {
    let k = broadcast(&rounds.0);
    let (mut at, four) = counters(start, step);
    for chunk in out.chunks_mut(8 * N) {
        let mut s = next::<N>(&mut at, four);
        permute(&k, &mut s);
        if chunk.len() == 8 * N {
            store_words(&s, chunk.as_chunks_mut::<8>().0);
        } else {
            let mut padded = [[0_u64; 8]; N];
            store_words(&s, &mut padded);
            chunk.copy_from_slice(&padded.as_flattened()[..chunk.len()]);
        }
    }
}

/// Masks each word of `AES(start + j·step)`, j = 0, 1, …, and writes those below q, in order, to the front of `out`, as
/// long as the words of 16 blocks fit. Returns the number of blocks used and of residues written.
#[target_feature(enable = "avx512f,vaes")]
pub(super) fn residues(
    rounds: &Rounds,
    start: Counter,
    step: Counter,
    [q, mask]: [u64; 2],
    out: &mut [u64],
) -> (u64, usize) {
    let k = broadcast(&rounds.0);
    let (mut at, four) = counters(start, step);
    let (q, mask) = (_mm512_set1_epi64(q as i64), _mm512_set1_epi64(mask as i64));
    let (mut used, mut kept) = (0, 0);
    while kept + 32 <= out.len() {
        let mut s = next::<4>(&mut at, four);
        permute(&k, &mut s);
        for s in s {
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

/// N registers of counters from `at` on, which moves behind them.
#[inline]
#[target_feature(enable = "avx512f")]
fn next<const N: usize>(at: &mut __m512i, four: __m512i) -> [__m512i; N] {
    let mut s = [*at; N];
    for s in &mut s {
        *s = *at;
        *at = _mm512_add_epi64(*at, four);
    }
    s
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_words<const N: usize>(s: &[__m512i; N], words: &mut [[u64; 8]]) {
    for (s, words) in s.iter().zip(words) {
        // SAFETY: eight words are one register; the store is unaligned.
        unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), *s) }
    }
}

/// As [`super::aesni::expand_many`], four keys per register and thirty-two in flight.
#[target_feature(enable = "avx512f,avx512bw,vaes")]
pub(super) fn expand_many(keys: &[Block], out: &mut [Four]) {
    let rotated = _mm512_set1_epi32(0x0c0f_0e0d);
    let mut padded = [Block::ZERO; WIDE];
    for (keys, out) in keys.chunks(WIDE).zip(out.chunks_mut(REGS)) {
        padded[..keys.len()].copy_from_slice(keys);
        let mut k = load(&padded);
        // A few keys are not worth work on all eight registers.
        let k = &mut k[..keys.len().div_ceil(4)];
        put(k, 0, out);
        let mut constant = 1i32;
        for round in 1..11 {
            let c = _mm512_set1_epi32(constant);
            for k in &mut *k {
                let word = _mm512_aesenclast_epi128(_mm512_shuffle_epi8(*k, rotated), c);
                let two = _mm512_xor_si512(*k, _mm512_bslli_epi128::<4>(*k));
                let four = _mm512_xor_si512(two, _mm512_bslli_epi128::<8>(two));
                *k = _mm512_xor_si512(four, word);
            }
            put(k, round, out);
            constant = if constant == 0x80 { 0x1b } else { constant << 1 };
        }
    }
}

/// Stores a round of all keys.
#[inline]
#[target_feature(enable = "avx512f")]
fn put(k: &[__m512i], round: usize, out: &mut [Four]) {
    for (k, out) in k.iter().zip(out) {
        // SAFETY: four blocks are one register; the store is unaligned.
        unsafe { _mm512_storeu_si512(out[round].as_mut_ptr().cast(), *k) };
    }
}

/// A group of sixteen blocks.
type Group = [__m512i; REGS / 2];

/// See [`super::Batch::groups`]. Two groups are in flight: under two keys, or with two offsets under one key.
#[target_feature(enable = "avx512f,vaes")]
pub(super) fn hash_groups<const N: usize>(
    keys: &[Four],
    from: usize,
    tweaks: Tweaks,
    offsets: [Block; N],
    x: &[[Block; GROUP]],
    y: [&mut [[Block; GROUP]]; N],
) {
    const { assert!(WIDE == 2 * GROUP) };
    let offsets = offsets.map(|offset| broadcast_one(&offset));
    let (groups, step) = match N {
        1 => (x.len() / 2 * 2, 2),
        _ => (x.len(), 1),
    };
    let mut first = tweaks.first;
    for g in (0..groups).step_by(step) {
        let k = round_keys(keys, from + g);
        let (k1, x1, first1, offset1) = match N {
            1 => (&round_keys(keys, from + g + 1), &x[g + 1], first.wrapping_add(tweaks.group), offsets[0]),
            _ => (&k, &x[g], first, offsets[1]),
        };
        let m = [relabelled(&x[g], offsets[0], first, tweaks.input), relabelled(x1, offset1, first1, tweaks.input)];
        let [s0, s1] = feed_forward([&k, k1], m);
        store_group(&s0, &mut y[0][g]);
        match N {
            1 => store_group(&s1, &mut y[0][g + 1]),
            _ => store_group(&s1, &mut y[1][g]),
        }
        first = first.wrapping_add(tweaks.group.wrapping_mul(step as u64));
    }
    if groups < x.len() {
        let k = round_keys(keys, from + groups);
        let m = relabelled(&x[groups], offsets[0], first, tweaks.input);
        let [s, _] = feed_forward([&k, &k], [m, m]);
        store_group(&s, &mut y[0][groups]);
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn broadcast_one(block: &Block) -> __m512i {
    // SAFETY: a block is 16 bytes; the load is unaligned.
    unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(core::ptr::from_ref(block).cast())) }
}

/// The round keys of key g, each four times.
#[inline]
#[target_feature(enable = "avx512f")]
fn round_keys(keys: &[Four], g: usize) -> [__m512i; 11] {
    let (four, lane) = (&keys[g / 4], g % 4);
    core::array::from_fn(|round| broadcast_one(&four[round][lane]))
}

/// `σ(x[j] ⊕ offset) ⊕ (first + j·step)`.
#[inline]
#[target_feature(enable = "avx512f")]
fn relabelled(x: &[Block; GROUP], offset: __m512i, first: u64, step: u64) -> Group {
    let lane = |j: u64| first.wrapping_add(step.wrapping_mul(j)) as i64;
    let four = step.wrapping_mul(4) as i64;
    let four = _mm512_set_epi64(0, four, 0, four, 0, four, 0, four);
    let mut tweak = _mm512_set_epi64(0, lane(3), 0, lane(2), 0, lane(1), 0, lane(0));
    let mut m = [_mm512_setzero_si512(); REGS / 2];
    for (i, m) in m.iter_mut().enumerate() {
        // SAFETY: register i covers blocks 4i..4i+4 of 16; the load is unaligned.
        let x = unsafe { _mm512_loadu_si512(x.as_ptr().add(4 * i).cast()) };
        *m = _mm512_xor_si512(sigma(_mm512_xor_si512(x, offset)), tweak);
        tweak = _mm512_add_epi64(tweak, four);
    }
    m
}

/// π(m) ⊕ m of two groups, each under its key.
#[inline]
#[target_feature(enable = "avx512f,vaes")]
fn feed_forward(k: [&[__m512i; 11]; 2], m: [Group; 2]) -> [Group; 2] {
    let mut s = m;
    for (s, k) in s.iter_mut().zip(k) {
        for s in s {
            *s = _mm512_xor_si512(*s, k[0]);
        }
    }
    for round in 1..10 {
        for (s, k) in s.iter_mut().zip(k) {
            for s in s {
                *s = _mm512_aesenc_epi128(*s, k[round]);
            }
        }
    }
    for ((s, m), k) in s.iter_mut().zip(&m).zip(k) {
        for (s, m) in s.iter_mut().zip(m) {
            *s = _mm512_xor_si512(_mm512_aesenclast_epi128(*s, k[10]), *m);
        }
    }
    s
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store_group(s: &Group, y: &mut [Block; GROUP]) {
    for (i, s) in s.iter().enumerate() {
        // SAFETY: as in `relabelled`.
        unsafe { _mm512_storeu_si512(y.as_mut_ptr().add(4 * i).cast(), *s) }
    }
}

/// See [`super::Batch::each`], for one key per input: a register of four keys is applied to four inputs.
#[target_feature(enable = "avx512f,vaes")]
pub(super) fn hash_each_alone(keys: &[Four], first: u64, x: &[Block], y: &mut [Block]) {
    let mut at = first;
    let (chunks, tail) = x.as_chunks::<WIDE>();
    let (y_chunks, y_tail) = y.as_chunks_mut::<WIDE>();
    for ((x, y), keys) in chunks.iter().zip(y_chunks).zip(keys.chunks(REGS)) {
        each_of(keys, at, x, y);
        at = at.wrapping_add(WIDE as u64);
    }
    if !tail.is_empty() {
        let (mut padded, mut hashed) = ([Block::ZERO; WIDE], [Block::ZERO; WIDE]);
        padded[..tail.len()].copy_from_slice(tail);
        each_of(&keys[chunks.len() * REGS..], at, &padded, &mut hashed);
        y_tail.copy_from_slice(&hashed[..tail.len()]);
        Block::wipe(&mut padded);
        Block::wipe(&mut hashed);
    }
}

/// Thirty-two inputs, with as many keys or the last ones repeated.
#[inline]
#[target_feature(enable = "avx512f,vaes")]
fn each_of(keys: &[Four], first: u64, x: &[Block; WIDE], y: &mut [Block; WIDE]) {
    let lane = |j: u64| first.wrapping_add(j) as i64;
    let four = _mm512_set_epi64(0, 4, 0, 4, 0, 4, 0, 4);
    let mut tweak = _mm512_set_epi64(0, lane(3), 0, lane(2), 0, lane(1), 0, lane(0));
    let mut m = load(x);
    for m in &mut m {
        *m = _mm512_xor_si512(sigma(*m), tweak);
        tweak = _mm512_add_epi64(tweak, four);
    }
    let round_key = |i: usize, round: usize| {
        let four = &keys[i.min(keys.len() - 1)][round];
        // SAFETY: four blocks are one register; the load is unaligned.
        unsafe { _mm512_loadu_si512(four.as_ptr().cast()) }
    };
    let mut s = m;
    for (i, s) in s.iter_mut().enumerate() {
        *s = _mm512_xor_si512(*s, round_key(i, 0));
    }
    for round in 1..10 {
        for (i, s) in s.iter_mut().enumerate() {
            *s = _mm512_aesenc_epi128(*s, round_key(i, round));
        }
    }
    for (i, (s, m)) in s.iter_mut().zip(&m).enumerate() {
        *s = _mm512_xor_si512(_mm512_aesenclast_epi128(*s, round_key(i, 10)), *m);
    }
    store(&s, y);
}

#[target_feature(enable = "avx512f,vaes")]
pub(super) fn half_tree_level(keys: &[Four], g: usize, nodes: &mut [Block], fix_at: u64, fix: Block) -> LevelSums {
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
        let [low, high] = children else { unreachable!("twice as many children as parents") };
        let (mut first, mut second) = ([zero; REGS], [zero; REGS]);
        for (i, (s, (m, p))) in s.iter().zip(m.iter().zip(&p)).enumerate() {
            let left = _mm512_xor_si512(*s, *m);
            left_sum = _mm512_xor_si512(left_sum, left);
            all_sum = _mm512_xor_si512(all_sum, *p);
            let right = _mm512_xor_si512(left, *p);
            let half = if i < REGS / 2 { &mut first } else { &mut second };
            half[2 * i % REGS] = _mm512_permutex2var_epi64(left, first_pairs, right);
            half[2 * i % REGS + 1] = _mm512_permutex2var_epi64(left, last_pairs, right);
        }
        store(&first, low);
        store(&second, high);
        end = begin;
    }
    LevelSums { left: fold(left_sum), all: fold(all_sum) }
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
