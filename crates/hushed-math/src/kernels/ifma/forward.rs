//! Cooley–Tukey, two layers per pass over memory, the last five or six in registers.
//!
//! Bounds: a butterfly adds 2q to the bound of its first input, and takes any second input below 2^52. `ROOM` is the
//! multiple of q below 2^52:
//!
//! * 4: reduce the first input in every layer: 2q → 4q;
//! * 8: in every other layer, the first of a pass: (6q →) 2q → 4q → 6q;
//! * 64: never: q + 2·20·q over the at most 20 layers.
//!
//! A butterfly costs five instructions, four of them on the two ports that multiply, or seven with a reduction, five of
//! them there ([`Lanes::forward`]); the second factor in the layers of strides 4, 2 and 1 takes three more.

use super::lanes::{Factor, Lanes, load, load_eight, load_factor, load_four, load_pair, pick, store};
use super::tables::{AHEAD, CACHED, CONSTANTS, Tables};
use std::arch::x86_64::*;

/// Transforms `count` blocks, from number `first` on, of the layer with 4^`skipped` blocks; LOOSE as in
/// [`super::forward_loose`].
///
/// # Safety
/// The processor has AVX-512 F, DQ and IFMA; a block of that layer has at least one group of words, `a` points to those
/// of all `count` blocks and nothing else uses them; `first` + `count` ≤ 4^`skipped`.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
pub(super) unsafe fn transform<const ROOM: u8, const LOOSE: bool>(
    tables: &Tables,
    a: *mut u64,
    skipped: u32,
    first: usize,
    count: usize,
) {
    let lanes = Lanes::new(&tables.constants);
    let pairs = tables.forward.pairs.as_ptr();
    let (group, length) = (tables.group(), tables.record());
    let (mut size, mut blocks) = (tables.n >> (2 * skipped), 1 << (2 * skipped));
    let (mut first, mut count) = (first, count);
    // SAFETY: count·size words throughout, and blocks·size = n; a layer with `blocks` blocks reads the pairs
    // `blocks..2·blocks`, the one below twice as many, up to pair n/group; words are cut in groups, one record each.
    unsafe {
        while size > CACHED {
            for k in 0..count {
                let index = blocks + first + k;
                pass::<ROOM, AHEAD>(&lanes, a.add(k * size), size, pairs, index);
            }
            size /= 4;
            (blocks, first, count) = (4 * blocks, 4 * first, 4 * count);
        }
        for k in 0..count {
            let block = a.add(k * size);
            let (mut inner_size, mut inner) = (size, 1);
            while inner_size > group {
                for i in 0..inner {
                    let index = (blocks + first + k) * inner + i;
                    pass::<ROOM, 0>(&lanes, block.add(i * inner_size), inner_size, pairs, index);
                }
                inner_size /= 4;
                inner *= 4;
            }
            let constants = tables.forward.constants.as_ptr();
            let records = tables.forward.records.as_ptr();
            let records = records.add((first + k) * size / group * length);
            for g in 0..size / group {
                let (block, record) = (block.add(group * g), records.add(length * g));
                if tables.tail == 6 {
                    tail64::<ROOM, LOOSE>(&lanes, block, record, constants);
                } else {
                    tail32::<ROOM, LOOSE>(&lanes, block, record, constants);
                }
            }
        }
    }
}

/// Two layers of one block of `size` ≥ 32 words: twiddle `index` first, then 2·index and 2·index + 1 on the halves.
///
/// # Safety
/// As [`transform`]; `block` has `size` words, `pairs` the pairs up to 2·index + 1.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn pass<const ROOM: u8, const AHEAD: usize>(
    l: &Lanes,
    block: *mut u64,
    size: usize,
    pairs: *const u64,
    index: usize,
) {
    let quarter = size / 4;
    // SAFETY: the quarters are disjoint parts of the block, a multiple of 8 words each.
    unsafe {
        let outer = load_factor(pairs.add(2 * index));
        let low = load_factor(pairs.add(4 * index));
        let high = load_factor(pairs.add(4 * index + 2));
        for j in (0..quarter).step_by(8) {
            let at = [0, 1, 2, 3].map(|i| block.add(i * quarter + j));
            if AHEAD > 0 {
                for at in at {
                    _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(AHEAD).cast());
                }
            }
            let (x0, x2) = butterfly::<ROOM, 0>(l, load(at[0]), load(at[2]), outer);
            let (x1, x3) = butterfly::<ROOM, 0>(l, load(at[1]), load(at[3]), outer);
            let (x0, x1) = butterfly::<ROOM, 1>(l, x0, x1, low);
            let (x2, x3) = butterfly::<ROOM, 1>(l, x2, x3, high);
            store(at[0], x0);
            store(at[1], x1);
            store(at[2], x2);
            store(at[3], x3);
        }
    }
}

/// The layers of strides 32 to 1 of 64 words, ending in [0, q) unless LOOSE.
///
/// # Safety
/// As [`transform`]; `block` has 64 words, `record` 20, `constants` four sets.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn tail64<const ROOM: u8, const LOOSE: bool>(
    l: &Lanes,
    block: *mut u64,
    record: *const u64,
    constants: *const u64,
) {
    // SAFETY: by the contract of this function.
    unsafe {
        let f = |i: usize| load_factor(record.add(6 + 2 * i));
        let [x0, x1, x2, x3, x4, x5, x6, x7] = [0, 1, 2, 3, 4, 5, 6, 7].map(|i| load(block.add(8 * i)));
        let (x0, x4) = butterfly::<ROOM, 0>(l, x0, x4, f(0));
        let (x1, x5) = butterfly::<ROOM, 0>(l, x1, x5, f(0));
        let (x2, x6) = butterfly::<ROOM, 0>(l, x2, x6, f(0));
        let (x3, x7) = butterfly::<ROOM, 0>(l, x3, x7, f(0));
        let (x0, x2) = butterfly::<ROOM, 1>(l, x0, x2, f(1));
        let (x1, x3) = butterfly::<ROOM, 1>(l, x1, x3, f(1));
        let (x4, x6) = butterfly::<ROOM, 1>(l, x4, x6, f(2));
        let (x5, x7) = butterfly::<ROOM, 1>(l, x5, x7, f(2));
        let (x0, x1) = butterfly::<ROOM, 0>(l, x0, x1, f(3));
        let (x2, x3) = butterfly::<ROOM, 0>(l, x2, x3, f(4));
        let (x4, x5) = butterfly::<ROOM, 0>(l, x4, x5, f(5));
        let (x6, x7) = butterfly::<ROOM, 0>(l, x6, x7, f(6));
        let bases = [0, 2, 4].map(|i| load_factor(record.add(i)));
        let (a, b) = ([x0, x2, x4, x6], [x1, x3, x5, x7]);
        fine::<ROOM, LOOSE, 1, 0, 4>(l, a, b, bases, constants, block);
    }
}

/// The layers of strides 16 to 1 of 32 words, ending in [0, q) unless LOOSE.
///
/// # Safety
/// As [`transform`]; `block` has 32 words, `record` 12, `constants` two sets.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn tail32<const ROOM: u8, const LOOSE: bool>(
    l: &Lanes,
    block: *mut u64,
    record: *const u64,
    constants: *const u64,
) {
    // SAFETY: by the contract of this function.
    unsafe {
        let f = |i: usize| load_factor(record.add(6 + 2 * i));
        let [x0, x1, x2, x3] = [0, 1, 2, 3].map(|i| load(block.add(8 * i)));
        let (x0, x2) = butterfly::<ROOM, 0>(l, x0, x2, f(0));
        let (x1, x3) = butterfly::<ROOM, 0>(l, x1, x3, f(0));
        let (x0, x1) = butterfly::<ROOM, 1>(l, x0, x1, f(1));
        let (x2, x3) = butterfly::<ROOM, 1>(l, x2, x3, f(2));
        let bases = [0, 2, 4].map(|i| load_factor(record.add(i)));
        fine::<ROOM, LOOSE, 0, 1, 2>(l, [x0, x2], [x1, x3], bases, constants, block);
    }
}

/// The layers of strides 4, 2, 1 of 16·COUNT words, stored in [0, q) unless LOOSE; the first and the last have parity
/// `ODD`, the other `EVEN`. All the 16 words proceed together, because the steps of a single one wait for each other.
///
/// # Safety
/// As [`transform`]; `block` has 16·COUNT words, `constants` COUNT sets.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn fine<const ROOM: u8, const LOOSE: bool, const ODD: u8, const EVEN: u8, const COUNT: usize>(
    l: &Lanes,
    a: [__m512i; COUNT],
    b: [__m512i; COUNT],
    bases: [Factor; 3],
    constants: *const u64,
    block: *mut u64,
) {
    let (mut x, mut y) = (a, b);
    // SAFETY: by the contract of this function.
    unsafe {
        // Lanes alternate between a and b, so that twiddles repeat with a period that a load can broadcast.
        // x = a0 b0 a1 b1 a2 b2 a3 b3, y the same of 4 to 7.
        let (low, high) = ([0, 8, 1, 9, 2, 10, 3, 11], [4, 12, 5, 13, 6, 14, 7, 15]);
        for i in 0..COUNT {
            (x[i], y[i]) = (pick(x[i], y[i], low), pick(x[i], y[i], high));
        }
        l.mul_all(&mut y, bases[0]);
        for i in 0..COUNT {
            let f = load_pair(constants.add(CONSTANTS * i + 24));
            (x[i], y[i]) = butterfly::<ROOM, ODD>(l, x[i], y[i], f);
        }
        // x = a0 b0 a4 b4 a1 b1 a5 b5, y the same plus 2.
        let (low, high) = ([0, 1, 8, 9, 2, 3, 10, 11], [4, 5, 12, 13, 6, 7, 14, 15]);
        for i in 0..COUNT {
            (x[i], y[i]) = (pick(x[i], y[i], low), pick(x[i], y[i], high));
        }
        l.mul_all(&mut y, bases[1]);
        for i in 0..COUNT {
            let f = load_four(constants.add(CONSTANTS * i + 16));
            (x[i], y[i]) = butterfly::<ROOM, EVEN>(l, x[i], y[i], f);
        }
        // x = a0 b0 a4 b4 a2 b2 a6 b6, y the same plus 1.
        for i in 0..COUNT {
            (x[i], y[i]) = (_mm512_shuffle_i64x2::<0x44>(x[i], y[i]), _mm512_shuffle_i64x2::<0xee>(x[i], y[i]));
        }
        l.mul_all(&mut y, bases[2]);
        for i in 0..COUNT {
            let f = load_eight(constants.add(CONSTANTS * i));
            (x[i], y[i]) = butterfly::<ROOM, ODD>(l, x[i], y[i], f);
        }
        if !LOOSE {
            for i in 0..COUNT {
                x[i] = l.finish(l.shrink(x[i]));
                y[i] = l.finish(l.shrink(y[i]));
            }
        }
        for i in 0..COUNT {
            store(block.add(16 * i), pick(x[i], y[i], [0, 8, 4, 12, 2, 10, 6, 14]));
            store(block.add(16 * i + 8), pick(x[i], y[i], [1, 9, 5, 13, 3, 11, 7, 15]));
        }
    }
}

/// One butterfly in a layer of this parity: a pass has layers 0 and 1, and the tail continues in turn.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
fn butterfly<const ROOM: u8, const PARITY: u8>(l: &Lanes, x: __m512i, y: __m512i, f: Factor) -> (__m512i, __m512i) {
    let reduce = match ROOM {
        4 => true,
        8 => PARITY == 0,
        _ => false,
    };
    if reduce { l.forward_reduced(x, y, f) } else { l.forward(x, y, f) }
}
