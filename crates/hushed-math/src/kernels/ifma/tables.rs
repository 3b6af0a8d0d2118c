//! Twiddles in the order in which the vector transforms read them.
//!
//! A transform has log2(n) layers. The last three or four (an even number must remain) work within 16 words, two
//! registers, on a *record* of 32 words that holds their twiddles, so that the tail reads one stream. The others read
//! interleaved pairs (w, w') by broadcast.
//!
//! Record of the 16 words a = 0..8, b = 8..16, with twiddle u_s,i of the i-th block of stride s in it:
//!
//! ```text
//! words  0..8    w of stride 1 in the order of lanes a0 b0 | a4 b4 | a2 b2 | a6 b6, words 8..16 their w'
//! words 16..20   w of stride 2 for a0 b0 a4 b4,                            words 20..24 their w'
//! words 24, 25   w of stride 4 for a, b,                                   words 26, 27 their w'
//! words 28, 29   w and w' of stride 8
//! ```

use super::{Constants, Room, shoup52};
use crate::modulus::Modulus;
use crate::ntt::Twiddles;
use crate::words::Words;

/// Words of a record.
pub(super) const RECORD: usize = 32;

/// Least degree with a layer above the tail.
pub(crate) const MIN_N: usize = 32;

/// Largest block, in words, that is transformed to the end before the next is touched: 32 KiB, within any L1 cache.
pub(super) const CACHED: usize = 4096;

/// Twiddles, one direction.
pub(super) struct Direction {
    /// Pairs (w, w') for block k of the layer with 2^l blocks at pair 2^l + k.
    pub(super) pairs: Words,
    /// Records of the tail.
    pub(super) records: Words,
}

/// Twiddles and constants of one plan.
pub(crate) struct Tables {
    pub(super) n: usize,
    /// Layers of the tail: 3 or 4, so that the rest is even.
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
        assert!(n >= MIN_N, "a layer above the tail");
        let log_n = n.trailing_zeros();
        let q = modulus.value();
        let scaled = modulus.mul(twiddles.scale, twiddles.inverse[1]);
        Tables {
            n,
            tail: if log_n % 2 == 1 { 3 } else { 4 },
            room: Room::of(modulus),
            constants: Constants::new(modulus),
            forward: Direction::new(&twiddles.forward, q),
            inverse: Direction::new(&twiddles.inverse, q),
            last: [
                twiddles.scale,
                shoup52(twiddles.scale, q),
                scaled,
                shoup52(scaled, q),
            ],
        }
    }
}

impl Direction {
    fn new(w: &[u64], q: u64) -> Direction {
        let n = w.len();
        let mut pairs = Words::zero(n / 4);
        for (pair, &w) in pairs.chunks_exact_mut(2).zip(w) {
            pair.copy_from_slice(&[w, shoup52(w, q)]);
        }
        let mut records = Words::zero(n / 16 * RECORD);
        for (g, record) in records.chunks_exact_mut(RECORD).enumerate() {
            // Block i of stride s in group g is block 16/(2s)·g + i of the layer with n/(2s) blocks.
            let twiddle = |s: usize, i: usize| w[n / (2 * s) + 8 / s * g + i];
            for (lane, i) in [0, 4, 2, 6, 1, 5, 3, 7].into_iter().enumerate() {
                record[lane] = twiddle(1, i);
            }
            for (lane, i) in [0, 2, 1, 3].into_iter().enumerate() {
                record[16 + lane] = twiddle(2, i);
            }
            record[24] = twiddle(4, 0);
            record[25] = twiddle(4, 1);
            record[28] = twiddle(8, 0);
            for (from, to, count) in [(0, 8, 8), (16, 20, 4), (24, 26, 2), (28, 29, 1)] {
                for i in 0..count {
                    record[to + i] = shoup52(record[from + i], q);
                }
            }
        }
        Direction { pairs, records }
    }
}
