//! AES-NI: one block per instruction, eight in flight.

use super::shared::{Four, GROUP, LevelSums, Rounds, Tweaks, key};
use crate::bits::{Block, Mask};
use core::arch::x86_64::*;

/// Blocks in flight: hides the latency of `aesenc` on every core since Haswell.
const WIDE: usize = 8;

#[inline(always)]
fn from_block(b: Block) -> __m128i {
    // SAFETY: both are 16 plain bytes.
    unsafe { core::mem::transmute(b) }
}

#[inline(always)]
fn to_block(v: __m128i) -> Block {
    // SAFETY: both are 16 plain bytes.
    unsafe { core::mem::transmute(v) }
}

/// The key schedule of FIPS 197.
#[target_feature(enable = "aes,sse2")]
pub(super) fn expand(key: Block) -> Rounds {
    macro_rules! next {
        ($prev:expr, $rcon:literal) => {{
            let mut k = $prev;
            let assist = _mm_shuffle_epi32::<0xff>(_mm_aeskeygenassist_si128::<$rcon>(k));
            k = _mm_xor_si128(k, _mm_slli_si128::<4>(k));
            k = _mm_xor_si128(k, _mm_slli_si128::<8>(k));
            _mm_xor_si128(k, assist)
        }};
    }
    let k0 = from_block(key);
    let k1 = next!(k0, 0x01);
    let k2 = next!(k1, 0x02);
    let k3 = next!(k2, 0x04);
    let k4 = next!(k3, 0x08);
    let k5 = next!(k4, 0x10);
    let k6 = next!(k5, 0x20);
    let k7 = next!(k6, 0x40);
    let k8 = next!(k7, 0x80);
    let k9 = next!(k8, 0x1b);
    let k10 = next!(k9, 0x36);
    Rounds([k0, k1, k2, k3, k4, k5, k6, k7, k8, k9, k10].map(to_block))
}

#[inline]
#[target_feature(enable = "aes,sse2")]
fn permute(rounds: &[Block; 11], s: &mut [__m128i; WIDE]) {
    let k = from_block(rounds[0]);
    s.iter_mut().for_each(|s| *s = _mm_xor_si128(*s, k));
    for k in &rounds[1..10] {
        let k = from_block(*k);
        s.iter_mut().for_each(|s| *s = _mm_aesenc_si128(*s, k));
    }
    let k = from_block(rounds[10]);
    s.iter_mut().for_each(|s| *s = _mm_aesenclast_si128(*s, k));
}

#[inline]
#[target_feature(enable = "sse2")]
fn sigma(x: __m128i) -> __m128i {
    let high = _mm_and_si128(x, _mm_set_epi64x(-1, 0));
    _mm_xor_si128(_mm_shuffle_epi32::<0x4e>(x), high)
}

/// Up to eight blocks as registers, the rest zero.
#[inline]
#[target_feature(enable = "sse2")]
fn load(blocks: &[Block]) -> [__m128i; WIDE] {
    let mut s = [_mm_setzero_si128(); WIDE];
    s.iter_mut().zip(blocks).for_each(|(s, b)| *s = from_block(*b));
    s
}

#[inline]
#[target_feature(enable = "sse2")]
fn store(s: &[__m128i; WIDE], blocks: &mut [Block]) {
    s.iter().zip(blocks).for_each(|(s, b)| *b = to_block(*s));
}

#[target_feature(enable = "aes,sse2")]
pub(super) fn encrypt(rounds: &Rounds, blocks: &mut [Block]) {
    for chunk in blocks.chunks_mut(WIDE) {
        let mut s = load(chunk);
        permute(&rounds.0, &mut s);
        store(&s, chunk);
    }
}

/// `out[i]` = the schedule of `keys[i]`, eight in flight.
///
/// SubWord and RotWord use `aesenclast` on four equal columns, where ShiftRows moves nothing and the round constant is
/// the round key: `aeskeygenassist` takes a dozen micro-operations.
#[target_feature(enable = "aes,sse2,ssse3")]
pub(super) fn expand_many(keys: &[Block], out: &mut [Four]) {
    let rotated = _mm_set1_epi32(0x0c0f_0e0d);
    for (keys, out) in keys.chunks(WIDE).zip(out.chunks_mut(WIDE / 4)) {
        let mut k = load(keys);
        for (k, out) in k.as_chunks::<4>().0.iter().zip(out.iter_mut()) {
            out[0] = k.map(to_block);
        }
        let mut constant = 1i32;
        for round in 1..11 {
            let c = _mm_set1_epi32(constant);
            for k in &mut k {
                let word = _mm_aesenclast_si128(_mm_shuffle_epi8(*k, rotated), c);
                let two = _mm_xor_si128(*k, _mm_slli_si128::<4>(*k));
                let four = _mm_xor_si128(two, _mm_slli_si128::<8>(two));
                *k = _mm_xor_si128(four, word);
            }
            for (k, out) in k.as_chunks::<4>().0.iter().zip(out.iter_mut()) {
                out[round] = k.map(to_block);
            }
            constant = if constant == 0x80 { 0x1b } else { constant << 1 };
        }
    }
}

/// See [`super::Batch::groups`].
#[target_feature(enable = "aes,sse2")]
pub(super) fn hash_groups<const N: usize>(
    keys: &[Four],
    from: usize,
    tweaks: Tweaks,
    offsets: [Block; N],
    x: &[[Block; GROUP]],
    mut y: [&mut [[Block; GROUP]]; N],
) {
    let mut first = tweaks.first;
    for (g, x) in x.iter().enumerate() {
        let rounds = key(keys, from + g);
        for (offset, y) in offsets.iter().zip(&mut y) {
            let offset = from_block(*offset);
            let mut index = first;
            for (x, y) in x.chunks(WIDE).zip(y[g].chunks_mut(WIDE)) {
                let mut m = load(x);
                for m in &mut m {
                    let tweak = _mm_set_epi64x(0, index as i64);
                    *m = _mm_xor_si128(sigma(_mm_xor_si128(*m, offset)), tweak);
                    index = index.wrapping_add(tweaks.input);
                }
                let mut s = m;
                permute(&rounds, &mut s);
                for (s, m) in s.iter_mut().zip(&m) {
                    *s = _mm_xor_si128(*s, *m);
                }
                store(&s, y);
            }
        }
        first = first.wrapping_add(tweaks.group);
    }
}

/// See [`super::Batch::each`].
#[target_feature(enable = "aes,sse2")]
pub(super) fn hash_each(keys: &[Four], first: u64, share: usize, skip: usize, x: &[Block], y: &mut [Block]) {
    let mut index = first;
    let mut at = skip;
    for (x, y) in x.chunks(WIDE).zip(y.chunks_mut(WIDE)) {
        // If the last chunk is short, its last key fills the lanes that are not stored.
        let mut places = [(0, 0); WIDE];
        for (i, place) in places.iter_mut().enumerate() {
            let g = (at + i.min(x.len() - 1)) / share;
            *place = (g / 4, g % 4);
        }
        let mut m = load(x);
        for m in &mut m {
            *m = _mm_xor_si128(sigma(*m), _mm_set_epi64x(0, index as i64));
            index = index.wrapping_add(1);
        }
        let mut s = m;
        for (s, (four, lane)) in s.iter_mut().zip(places) {
            *s = _mm_xor_si128(*s, from_block(keys[four][0][lane]));
        }
        #[expect(clippy::needless_range_loop, reason = "a round of eight keys, each in another place")]
        for round in 1..10 {
            for (s, (four, lane)) in s.iter_mut().zip(places) {
                *s = _mm_aesenc_si128(*s, from_block(keys[four][round][lane]));
            }
        }
        for ((s, m), (four, lane)) in s.iter_mut().zip(&m).zip(places) {
            let last = from_block(keys[four][10][lane]);
            *s = _mm_xor_si128(_mm_aesenclast_si128(*s, last), *m);
        }
        store(&s, y);
        at += WIDE;
    }
}

#[target_feature(enable = "aes,sse2")]
pub(super) fn half_tree_level(keys: &[Four], g: usize, nodes: &mut [Block], fix_at: u64, fix: Block) -> LevelSums {
    let mut sums = LevelSums { left: Block::ZERO, all: Block::ZERO };
    let rounds = key(keys, g);
    // From the top down, so that no parent is overwritten before it was read.
    let mut end = nodes.len() / 2;
    while end > 0 {
        let begin = (end - 1) / WIDE * WIDE;
        let mut parents = [Block::ZERO; WIDE];
        for (i, (p, x)) in parents.iter_mut().zip(&nodes[begin..end]).enumerate() {
            *p = *x ^ (fix & Mask::from_eq((begin + i) as u64, fix_at));
        }
        let m = load(&parents).map(|p| sigma(p));
        let mut s = m;
        permute(&rounds, &mut s);
        let pairs = nodes[2 * begin..2 * end].as_chunks_mut::<2>().0;
        for (i, pair) in pairs.iter_mut().enumerate() {
            let left = to_block(_mm_xor_si128(s[i], m[i]));
            sums.left ^= left;
            sums.all ^= parents[i];
            *pair = [left, left ^ parents[i]];
        }
        end = begin;
    }
    sums
}
