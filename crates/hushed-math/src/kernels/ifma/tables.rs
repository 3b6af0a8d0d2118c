//! Twiddles in the order in which the vector transforms read them, and few of them: a basis has many primes, whose
//! tables would otherwise take more of the cache, and more time to fetch, than the polynomial itself.
//!
//! A transform has log2(n) layers. The last five or six (an even number must remain) work within a *group* of 32 or 64
//! words, four or eight registers. Layer s (of stride s) has n/2s twiddles; with C = group/2s of them per group,
//!
//! ```text
//! w[n/2s + C·g + i] = w[n/2s + C·g]·w[i],   0 ≤ i < C,
//! ```
//!
//! as `w[k]` = ψ^rev(k) and the bits of the three indices do not overlap. So for strides 4, 2, 1, which have most of
//! the twiddles, a group has one *base* each, multiplied by *constants* of the prime: one more product per butterfly,
//! and 20 words per group where all twiddles of the tail would take 126. For n = 2^16 that is 176 KiB, not 1.1 MiB.
//!
//! Twiddles are pairs (w, w').
//!
//! ```text
//! record      pairs 0, 1, 2     bases of strides 4, 2, 1
//!             pairs 3 ..        strides 32 (one, if the group has it), 16 (one or two), 8 (two or four)
//! constants   for each two registers a = 0..8, b = 8..16 of a group, u_s,i that of the i-th block of stride s in them:
//!             words 0..8        w of stride 1 in the order of lanes a0 b0 | a4 b4 | a2 b2 | a6 b6, words 8..16 their w'
//!             words 16..20      w of stride 2 for a0 b0 a4 b4,                            words 20..24 their w'
//!             words 24, 25      w of stride 4 for a, b,                                   words 26, 27 their w'
//! ```

use super::lanes::{Constants, Room, shoup52};
use crate::modulus::Modulus;
use crate::ntt::Twiddles;
use crate::words::Words;

/// Words of constants for two registers.
pub(super) const CONSTANTS: usize = 32;

/// Least degree with two layers above the tail.
pub(crate) const MIN_N: usize = 128;

/// Largest block, in words, that is transformed to the end before the next is touched: 32 KiB, within any L1 cache.
pub(super) const CACHED: usize = 4096;

/// Words that the first pass over a polynomial prefetches ahead: the processor detects streams anew on every page of
/// memory, and too late.
pub(super) const AHEAD: usize = 384;

/// Twiddles of one direction.
pub(super) struct Direction {
    /// Pairs (w, w') for block k of the layer with 2^l blocks at pair 2^l + k, for the layers above the tail.
    pub(super) pairs: Words,
    /// Records of the groups.
    pub(super) records: Words,
    /// Constants, one set for each two registers of a group.
    pub(super) constants: Words,
}

/// Twiddles and constants of one transform.
pub(crate) struct Tables {
    pub(super) n: usize,
    /// Layers of the tail: 5 or 6, so that the rest is even.
    pub(super) tail: u32,
    pub(super) room: Room,
    pub(super) constants: Constants,
    pub(super) forward: Direction,
    pub(super) inverse: Direction,
    /// (w, w') of n^−1 and of n^−1 times the inverse twiddle of the one-block layer.
    pub(super) last: [u64; 4],
}

impl Tables {
    /// `twiddles` of a degree of at least [`MIN_N`].
    pub(crate) fn new(modulus: &Modulus, twiddles: &Twiddles) -> Tables {
        let n = twiddles.forward.len();
        assert!(n >= MIN_N, "two layers above the tail");
        let log_n = n.trailing_zeros();
        let q = modulus.value();
        let scaled = modulus.mul(twiddles.scale, twiddles.inverse[1]);
        let tail = if log_n % 2 == 1 { 5 } else { 6 };
        Tables {
            n,
            tail,
            room: Room::of(modulus),
            constants: Constants::new(modulus),
            forward: Direction::new(&twiddles.forward, tail, q),
            inverse: Direction::new(&twiddles.inverse, tail, q),
            last: [twiddles.scale, shoup52(twiddles.scale, q), scaled, shoup52(scaled, q)],
        }
    }

    /// Words of a group.
    pub(super) fn group(&self) -> usize {
        1 << self.tail
    }

    /// Words of a record.
    pub(super) fn record(&self) -> usize {
        record(self.group())
    }
}

/// Three bases, and one pair for every two registers in each layer of stride 8 and more.
fn record(group: usize) -> usize {
    2 * (3 + group / 8 - 1)
}

impl Direction {
    fn new(w: &[u64], tail: u32, q: u64) -> Direction {
        let (n, group) = (w.len(), 1 << tail);
        let pair = |w: u64| [w, shoup52(w, q)];
        let mut pairs = Words::zero(2 * n / group);
        for (pairs, &w) in pairs.chunks_exact_mut(2).zip(w) {
            pairs.copy_from_slice(&pair(w));
        }
        let mut records = Words::zero(n / group * record(group));
        for (g, record) in records.chunks_exact_mut(record(group)).enumerate() {
            // Block i of stride s in group g is block C·g + i of the layer with n/2s blocks.
            let twiddle = |s: usize, i: usize| w[n / (2 * s) + group / (2 * s) * g + i];
            let bases = [4, 2, 1].map(|s| (s, 0));
            let strides = (3..tail).rev().map(|bit| 1 << bit);
            let wide = strides.flat_map(|s| (0..group / (2 * s)).map(move |i| (s, i)));
            let all = bases.into_iter().chain(wide);
            for (slot, (s, i)) in record.chunks_exact_mut(2).zip(all) {
                slot.copy_from_slice(&pair(twiddle(s, i)));
            }
        }
        let mut constants = Words::zero(group / 16 * CONSTANTS);
        for (two, set) in constants.chunks_exact_mut(CONSTANTS).enumerate() {
            let constant = |s: usize, i: usize| w[8 / s * two + i];
            for (lane, i) in [0, 4, 2, 6, 1, 5, 3, 7].into_iter().enumerate() {
                set[lane] = constant(1, i);
            }
            for (lane, i) in [0, 2, 1, 3].into_iter().enumerate() {
                set[16 + lane] = constant(2, i);
            }
            set[24] = constant(4, 0);
            set[25] = constant(4, 1);
            for (from, to, count) in [(0, 8, 8), (16, 20, 4), (24, 26, 2)] {
                for i in 0..count {
                    set[to + i] = shoup52(set[from + i], q);
                }
            }
        }
        Direction { pairs, records, constants }
    }
}
