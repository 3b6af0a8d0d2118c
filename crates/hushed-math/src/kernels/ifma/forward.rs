//! Cooley–Tukey, two layers a pass over memory, the last three or four in registers.
//!
//! Bounds: a butterfly adds 2q to the bound of its first input, and takes any second input below 2^52. `ROOM` is the
//! multiple of q below 2^52:
//!
//! * 4: reduce the first input in every layer: 2q → 4q;
//! * 8: in every other layer, the first of a pass: (6q →) 2q → 4q → 6q;
//! * 64: never: q + 2·20·q over the at most 20 layers.
//!
//! Cost of a butterfly: five instructions on the two ports that multiply, seven with a reduction ([`Lanes::forward`]).

use super::tables::{CACHED, RECORD, Tables};
use super::{Factor, Lanes, load, load_factor, load_four, load_pair, pick, store};
use std::arch::x86_64::*;

/// Transforms `count` blocks, from number `first` on, of the layer with 4^`skipped` blocks.
///
/// # Safety
/// The processor has AVX-512 F, DQ and IFMA; a block of that layer has at least 32 words, `a` points to those of all
/// `count` blocks and nothing else uses them; `first` + `count` ≤ 4^`skipped`.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
pub(super) unsafe fn transform<const ROOM: u8>(
    tables: &Tables,
    a: *mut u64,
    skipped: u32,
    first: usize,
    count: usize,
) {
    let lanes = Lanes::new(&tables.constants);
    let pairs = tables.forward.pairs.as_ptr();
    let tail = 1 << tables.tail;
    let (mut size, mut blocks) = (tables.n >> (2 * skipped), 1 << (2 * skipped));
    let (mut first, mut count) = (first, count);
    // SAFETY: count·size words throughout, and blocks·size = n; a layer with `blocks` blocks reads the pairs
    // `blocks..2·blocks`, the one below twice as many, up to pair n/8 at the least tail; records and words are cut in 16.
    unsafe {
        while size > CACHED {
            for k in 0..count {
                let index = blocks + first + k;
                pass::<ROOM>(&lanes, a.add(k * size), size, pairs, index);
            }
            size /= 4;
            (blocks, first, count) = (4 * blocks, 4 * first, 4 * count);
        }
        for k in 0..count {
            let block = a.add(k * size);
            let (mut inner_size, mut inner) = (size, 1);
            while inner_size > tail {
                for i in 0..inner {
                    let index = (blocks + first + k) * inner + i;
                    pass::<ROOM>(&lanes, block.add(i * inner_size), inner_size, pairs, index);
                }
                inner_size /= 4;
                inner *= 4;
            }
            let records = tables.forward.records.as_ptr();
            let records = records.add((first + k) * size / 16 * RECORD);
            for g in 0..size / 16 {
                let (block, record) = (block.add(16 * g), records.add(RECORD * g));
                if tables.tail == 4 {
                    tail16::<ROOM, true>(&lanes, block, record);
                } else {
                    tail16::<ROOM, false>(&lanes, block, record);
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
unsafe fn pass<const ROOM: u8>(
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

/// The layers of strides (8,) 4, 2, 1 of 16 words, ending in [0, q).
///
/// # Safety
/// As [`transform`]; `block` has 16 words, `record` 32.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn tail16<const ROOM: u8, const EIGHT: bool>(
    l: &Lanes,
    block: *mut u64,
    record: *const u64,
) {
    // SAFETY: by the contract of this function.
    unsafe {
        let (mut a, mut b) = (load(block), load(block.add(8)));
        if EIGHT {
            (a, b) = butterfly::<ROOM, 1>(l, a, b, load_factor(record.add(28)));
        }
        // Lanes alternate between a and b, so that twiddles repeat with a period that a load can broadcast.
        // x = a0 b0 a1 b1 a2 b2 a3 b3, y the same of 4 to 7.
        let f = load_pair(record.add(24));
        let (low, high) = ([0, 8, 1, 9, 2, 10, 3, 11], [4, 12, 5, 13, 6, 14, 7, 15]);
        let (x, y) = (pick(a, b, low), pick(a, b, high));
        let (x, y) = butterfly::<ROOM, 0>(l, x, y, f);
        // x = a0 b0 a4 b4 a1 b1 a5 b5, y the same plus 2.
        let f = load_four(record.add(16));
        let (low, high) = ([0, 1, 8, 9, 2, 3, 10, 11], [4, 5, 12, 13, 6, 7, 14, 15]);
        let (x, y) = (pick(x, y, low), pick(x, y, high));
        let (x, y) = butterfly::<ROOM, 1>(l, x, y, f);
        // x = a0 b0 a4 b4 a2 b2 a6 b6, y the same plus 1.
        let f = Factor {
            w: load(record),
            shoup: load(record.add(8)),
        };
        let (x, y) = (
            _mm512_shuffle_i64x2::<0x44>(x, y),
            _mm512_shuffle_i64x2::<0xee>(x, y),
        );
        let (x, y) = butterfly::<ROOM, 0>(l, x, y, f);
        let (x, y) = (l.finish(l.shrink(x)), l.finish(l.shrink(y)));
        store(block, pick(x, y, [0, 8, 4, 12, 2, 10, 6, 14]));
        store(block.add(8), pick(x, y, [1, 9, 5, 13, 3, 11, 7, 15]));
    }
}

/// One butterfly in a layer of this parity, counted so that a pass has the layers 0, 1 and the tail (1,) 0, 1, 0.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
fn butterfly<const ROOM: u8, const PARITY: u8>(
    l: &Lanes,
    x: __m512i,
    y: __m512i,
    f: Factor,
) -> (__m512i, __m512i) {
    let reduce = match ROOM {
        4 => true,
        8 => PARITY == 0,
        _ => false,
    };
    if reduce {
        l.forward_reduced(x, y, f)
    } else {
        l.forward(x, y, f)
    }
}
