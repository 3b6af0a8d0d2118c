//! Gentleman–Sande: the forward transform backwards, (x, y) → (x + y, w·(x − y)); the first five or six layers in
//! registers, then two per pass; n^−1 is in the twiddles of the last layer.
//!
//! Bounds: products are below 2q for any input. With `ROOM` = 4 a sum of two words below 2q is below 4q and reduced at
//! once. With 8 it waits one layer: 2q → 4q, then the sum of two of these is below 8q and reduced. With 64 nothing in
//! the first registers is reduced before the end, when it is below 64q; a pass begins below 4q, and of its results only
//! the sum of sums is reduced, as sums of products are below 4q anyway. A difference is x − y + (the bound of y).

use super::lanes::{Factor, Lanes, load, load_eight, load_factor, load_four, load_pair, pick, store};
use super::tables::{AHEAD, CACHED, CONSTANTS, Tables};
use std::arch::x86_64::*;

/// A layer, described by its inputs.
#[derive(Clone, Copy)]
enum Layer {
    /// Of stride 2^`log` within a group, up to 2^`last`.
    Group { log: u32, last: u32 },
    /// The first of a pass.
    First,
    /// The second of a pass: for the sums of the first, or for its products.
    Second { sums: bool },
}

impl Layer {
    /// log2 of the multiple of q that bounds the inputs.
    const fn log_bound(self, room: u8) -> u32 {
        match (room, self) {
            (64, Layer::Group { log: 0, .. }) => 1,
            (64, Layer::Group { log, .. }) => log,
            (64, Layer::First) => 2,
            (64, Layer::Second { sums }) => 1 + 2 * sums as u32,
            (4, _) | (_, Layer::First) => 1,
            _ => 1 + self.reduces(room) as u32,
        }
    }

    /// Whether its sums are reduced, to below 2q.
    const fn reduces(self, room: u8) -> bool {
        match (room, self) {
            (64, Layer::Group { log, last }) => log == last,
            (64, Layer::Second { sums }) => sums,
            (64, Layer::First) => false,
            (4, _) => true,
            (_, Layer::Group { log, last }) => (last - log).is_multiple_of(2),
            (_, Layer::First) => false,
            (_, Layer::Second { .. }) => true,
        }
    }
}

/// Transforms the n words at `from` to `a`.
///
/// # Safety
/// The processor has AVX-512 F, DQ and IFMA; `a` points to `tables.n` words that nothing else uses, `from` to as many,
/// the same or others.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
pub(super) unsafe fn transform<const ROOM: u8>(tables: &Tables, from: *const u64, a: *mut u64) {
    let lanes = Lanes::new(&tables.constants);
    let pairs = tables.inverse.pairs.as_ptr();
    let (group, length) = (tables.group(), tables.record());
    // The blocks that fit the cache, cut as in the forward transform; at least one pass is left for `last`.
    let (mut cached, mut blocks) = (tables.n, 1);
    while cached > CACHED {
        cached /= 4;
        blocks *= 4;
    }
    // SAFETY: as in the forward transform.
    unsafe {
        let constants = tables.inverse.constants.as_ptr();
        for k in 0..blocks {
            let (from, block) = (from.add(k * cached), a.add(k * cached));
            let records = tables.inverse.records.as_ptr();
            let records = records.add(k * cached / group * length);
            for g in 0..cached / group {
                let (from, block) = (from.add(group * g), block.add(group * g));
                for line in (0..group).step_by(8) {
                    _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(AHEAD + line).cast());
                }
                let record = records.add(length * g);
                if tables.tail == 6 {
                    tail64::<ROOM>(&lanes, from, block, record, constants);
                } else {
                    tail32::<ROOM>(&lanes, from, block, record, constants);
                }
            }
            let (mut size, mut inner) = (4 * group, cached / (4 * group));
            while size <= cached && size < tables.n {
                for i in 0..inner {
                    pass::<ROOM>(&lanes, block.add(i * size), size, pairs, (blocks + k) * inner + i);
                }
                size *= 4;
                inner /= 4;
            }
        }
        let mut size = 4 * cached;
        while size < tables.n {
            let blocks = tables.n / size;
            for k in 0..blocks {
                pass::<ROOM>(&lanes, a.add(k * size), size, pairs, blocks + k);
            }
            size *= 4;
        }
        last::<ROOM>(&lanes, a, tables, pairs);
    }
}

/// Two layers of one block: twiddles 2·index and 2·index + 1 on the halves first, then `index`.
///
/// # Safety
/// As [`transform`]; `block` has `size` ≥ 32 words, `pairs` the pairs up to 2·index + 1.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn pass<const ROOM: u8>(l: &Lanes, block: *mut u64, size: usize, pairs: *const u64, index: usize) {
    let quarter = size / 4;
    // SAFETY: the quarters are disjoint parts of the block, a multiple of 8 words each.
    unsafe {
        let outer = load_factor(pairs.add(2 * index));
        let low = load_factor(pairs.add(4 * index));
        let high = load_factor(pairs.add(4 * index + 2));
        for j in (0..quarter).step_by(8) {
            let at = [0, 1, 2, 3].map(|i| block.add(i * quarter + j));
            let (x0, x1) = butterfly::<ROOM>(l, load(at[0]), load(at[1]), low, Layer::First);
            let (x2, x3) = butterfly::<ROOM>(l, load(at[2]), load(at[3]), high, Layer::First);
            let (x0, x2) = butterfly::<ROOM>(l, x0, x2, outer, Layer::Second { sums: true });
            let (x1, x3) = butterfly::<ROOM>(l, x1, x3, outer, Layer::Second { sums: false });
            store(at[0], x0);
            store(at[1], x1);
            store(at[2], x2);
            store(at[3], x3);
        }
    }
}

/// The pass over all words: sums times n^−1, differences times n^−1·w, all to [0, q).
///
/// # Safety
/// As [`transform`].
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn last<const ROOM: u8>(l: &Lanes, a: *mut u64, tables: &Tables, pairs: *const u64) {
    let quarter = tables.n / 4;
    let offset = bound::<ROOM>(l, Layer::Second { sums: true });
    // SAFETY: the quarters are disjoint parts of the n words, a multiple of 8 each.
    unsafe {
        let scale = load_factor(tables.last.as_ptr());
        let scaled = load_factor(tables.last.as_ptr().add(2));
        let (low, high) = (load_factor(pairs.add(4)), load_factor(pairs.add(6)));
        for j in (0..quarter).step_by(8) {
            let at = [0, 1, 2, 3].map(|i| a.add(i * quarter + j));
            let (x0, x1) = butterfly::<ROOM>(l, load(at[0]), load(at[1]), low, Layer::First);
            let (x2, x3) = butterfly::<ROOM>(l, load(at[2]), load(at[3]), high, Layer::First);
            for (x, y, to_x, to_y) in [(x0, x2, at[0], at[2]), (x1, x3, at[1], at[3])] {
                let difference = _mm512_sub_epi64(_mm512_add_epi64(x, offset), y);
                store(to_x, l.finish(l.mul(_mm512_add_epi64(x, y), scale)));
                store(to_y, l.finish(l.mul(difference, scaled)));
            }
        }
    }
}

/// The layers of strides 1 to 32 of 64 words in [0, q), ending below 2q.
///
/// # Safety
/// As [`transform`]; `from` and `block` have 64 words, `record` 20, `constants` four sets.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn tail64<const ROOM: u8>(
    l: &Lanes,
    from: *const u64,
    block: *mut u64,
    record: *const u64,
    constants: *const u64,
) {
    const fn layer(log: u32) -> Layer {
        Layer::Group { log, last: 5 }
    }
    // SAFETY: by the contract of this function.
    unsafe {
        let f = |i: usize| load_factor(record.add(6 + 2 * i));
        let bases = [0, 2, 4].map(|i| load_factor(record.add(i)));
        let (a, b) = fine::<ROOM, 4>(l, from, bases, constants, [0, 1, 2].map(layer));
        let ([x0, x2, x4, x6], [x1, x3, x5, x7]) = (a, b);
        let (x0, x1) = butterfly::<ROOM>(l, x0, x1, f(3), layer(3));
        let (x2, x3) = butterfly::<ROOM>(l, x2, x3, f(4), layer(3));
        let (x4, x5) = butterfly::<ROOM>(l, x4, x5, f(5), layer(3));
        let (x6, x7) = butterfly::<ROOM>(l, x6, x7, f(6), layer(3));
        let (x0, x2) = butterfly::<ROOM>(l, x0, x2, f(1), layer(4));
        let (x1, x3) = butterfly::<ROOM>(l, x1, x3, f(1), layer(4));
        let (x4, x6) = butterfly::<ROOM>(l, x4, x6, f(2), layer(4));
        let (x5, x7) = butterfly::<ROOM>(l, x5, x7, f(2), layer(4));
        for (i, x, y) in [(0, x0, x4), (1, x1, x5), (2, x2, x6), (3, x3, x7)] {
            let (x, y) = butterfly::<ROOM>(l, x, y, f(0), layer(5));
            store(block.add(8 * i), x);
            store(block.add(8 * i + 32), y);
        }
    }
}

/// The layers of strides 1 to 16 of 32 words in [0, q), ending below 2q.
///
/// # Safety
/// As [`transform`]; `from` and `block` have 32 words, `record` 12, `constants` two sets.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn tail32<const ROOM: u8>(
    l: &Lanes,
    from: *const u64,
    block: *mut u64,
    record: *const u64,
    constants: *const u64,
) {
    const fn layer(log: u32) -> Layer {
        Layer::Group { log, last: 4 }
    }
    // SAFETY: by the contract of this function.
    unsafe {
        let f = |i: usize| load_factor(record.add(6 + 2 * i));
        let bases = [0, 2, 4].map(|i| load_factor(record.add(i)));
        let (a, b) = fine::<ROOM, 2>(l, from, bases, constants, [0, 1, 2].map(layer));
        let ([x0, x2], [x1, x3]) = (a, b);
        let (x0, x1) = butterfly::<ROOM>(l, x0, x1, f(1), layer(3));
        let (x2, x3) = butterfly::<ROOM>(l, x2, x3, f(2), layer(3));
        for (i, x, y) in [(0, x0, x2), (1, x1, x3)] {
            let (x, y) = butterfly::<ROOM>(l, x, y, f(0), layer(4));
            store(block.add(8 * i), x);
            store(block.add(8 * i + 16), y);
        }
    }
}

/// The layers of strides 1, 2, 4 of 16·COUNT words, as registers of the first and the last eight of each 16. All
/// proceed together, because the steps of a single one wait for each other.
///
/// # Safety
/// As [`transform`]; `block` has 16·COUNT words, `constants` COUNT sets.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn fine<const ROOM: u8, const COUNT: usize>(
    l: &Lanes,
    block: *const u64,
    bases: [Factor; 3],
    constants: *const u64,
    layers: [Layer; 3],
) -> ([__m512i; COUNT], [__m512i; COUNT]) {
    let mut x = [_mm512_setzero_si512(); COUNT];
    let mut y = x;
    // SAFETY: by the contract of this function.
    unsafe {
        // The lanes of the forward transform, backwards: x = a0 b0 a4 b4 a2 b2 a6 b6, y the same plus 1.
        let (low, high) = ([0, 8, 4, 12, 2, 10, 6, 14], [1, 9, 5, 13, 3, 11, 7, 15]);
        for i in 0..COUNT {
            let (a, b) = (load(block.add(16 * i)), load(block.add(16 * i + 8)));
            (x[i], y[i]) = (pick(a, b, low), pick(a, b, high));
        }
        for i in 0..COUNT {
            let f = load_eight(constants.add(CONSTANTS * i));
            (x[i], y[i]) = butterfly::<ROOM>(l, x[i], y[i], f, layers[0]);
        }
        l.mul_all(&mut y, bases[2]);
        // x = a0 b0 a4 b4 a1 b1 a5 b5, y the same plus 2.
        for i in 0..COUNT {
            (x[i], y[i]) = (_mm512_shuffle_i64x2::<0x44>(x[i], y[i]), _mm512_shuffle_i64x2::<0xee>(x[i], y[i]));
        }
        for i in 0..COUNT {
            let f = load_four(constants.add(CONSTANTS * i + 16));
            (x[i], y[i]) = butterfly::<ROOM>(l, x[i], y[i], f, layers[1]);
        }
        l.mul_all(&mut y, bases[1]);
        // x = a0 b0 a1 b1 a2 b2 a3 b3, y the same of 4 to 7.
        let (low, high) = ([0, 1, 4, 5, 8, 9, 12, 13], [2, 3, 6, 7, 10, 11, 14, 15]);
        for i in 0..COUNT {
            (x[i], y[i]) = (pick(x[i], y[i], low), pick(x[i], y[i], high));
        }
        for i in 0..COUNT {
            let f = load_pair(constants.add(CONSTANTS * i + 24));
            (x[i], y[i]) = butterfly::<ROOM>(l, x[i], y[i], f, layers[2]);
        }
        l.mul_all(&mut y, bases[0]);
        let (low, high) = ([0, 2, 4, 6, 8, 10, 12, 14], [1, 3, 5, 7, 9, 11, 13, 15]);
        for i in 0..COUNT {
            (x[i], y[i]) = (pick(x[i], y[i], low), pick(x[i], y[i], high));
        }
    }
    (x, y)
}

/// A multiple of q no smaller than the inputs of a layer.
#[inline]
#[target_feature(enable = "avx512f")]
fn bound<const ROOM: u8>(l: &Lanes, layer: Layer) -> __m512i {
    match layer.log_bound(ROOM) {
        1 => l.q2,
        2 => l.q4,
        log => _mm512_sll_epi64(l.q, _mm_cvtsi32_si128(log as i32)),
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
fn butterfly<const ROOM: u8>(l: &Lanes, x: __m512i, y: __m512i, f: Factor, layer: Layer) -> (__m512i, __m512i) {
    let sum = _mm512_add_epi64(x, y);
    let difference = _mm512_sub_epi64(_mm512_add_epi64(x, bound::<ROOM>(l, layer)), y);
    let sum = if layer.reduces(ROOM) { l.shrink(sum) } else { sum };
    (sum, l.mul(difference, f))
}
