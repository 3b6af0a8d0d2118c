//! The forward transform, and what both directions share.
//!
//! Blocks are numbered as a heap: block k of a layer, with the twiddle of entry k, becomes blocks 2k and 2k + 1 of the
//! next. Layers go over memory two at a time (radix 4). The last 2·log2(lanes) of them work in registers on a *tile* of
//! lanes² words: `lanes` rows, half of the layers between rows, then a transposition, and the other half between the
//! former columns.
//!
//! Between layers, numbers stay in the words' places as the bits of doubles. Of the four that meet in two layers, three
//! are multiplied and come out below (1/2 + Y/8)·q; the fourth is reduced. So all stay below 2.2q: 1/2 + 0.775 + (1/2 +
//! 2.975/8) for Y = 2.2.

use super::lanes::Lanes;
use super::registers::{Constants, Registers, centred, kernel};
use crate::machine::cpu::HaveFma;
use crate::modulus::Modulus;
use crate::ntt::Twiddles;

/// Least degree: two layers above the largest tile.
pub(crate) const MIN_N: usize = 256;

/// Words of a block that is finished before the next is begun: half of the smallest first-level cache.
pub(super) const CACHED: usize = 2048;

/// Twiddles of one transform.
pub(crate) struct Tables {
    have: HaveFma,
    pub(super) constants: Constants,
    pub(super) n: usize,
    pub(super) forward: Direction,
    pub(super) inverse: Direction,
    /// n^−1, and n^−1 times the inverse twiddle of the one-block layer.
    pub(super) last: [f64; 2],
}

/// Twiddles of one direction, in (−q/2, q/2).
pub(super) struct Direction {
    /// Twiddles of the heap's blocks, for the layers down to rows of a tile.
    pub(super) blocks: Vec<f64>,
    /// For each tile the twiddles of its last layers: layer by layer, then by place in a row, for all rows.
    pub(super) columns: Vec<f64>,
}

impl Direction {
    fn new(modulus: &Modulus, words: &[u64], lanes: usize) -> Direction {
        let rows = words.len() / lanes;
        let mut columns = Vec::with_capacity(words.len());
        for first in (rows..2 * rows).step_by(lanes) {
            for layer in 0..lanes.trailing_zeros() {
                for place in 0..1 << layer {
                    let at = (first..first + lanes).map(|row| (row << layer) + place);
                    columns.extend(at.map(|at| centred(modulus, words[at])));
                }
            }
        }
        Direction { columns, blocks: words[..rows].iter().map(|&w| centred(modulus, w)).collect() }
    }

    /// The twiddles of the tile that is block k.
    #[inline(always)]
    pub(super) fn of_tile<L: Lanes>(&self, k: usize) -> &[f64] {
        let (tiles, size) = (self.blocks.len() / L::LANES, L::LANES * (L::LANES - 1));
        &self.columns[(k - tiles) * size..][..size]
    }
}

impl Tables {
    /// `twiddles` of a degree of at least [`MIN_N`].
    pub(crate) fn new(have: HaveFma, modulus: &Modulus, twiddles: &Twiddles) -> Tables {
        let n = twiddles.forward.len();
        assert!(n >= MIN_N, "two layers above the tiles");
        let lanes = if have.wide() { 8 } else { 4 };
        let scaled = modulus.mul(twiddles.scale, twiddles.inverse[1]);
        Tables {
            have,
            constants: Constants::new(modulus),
            n,
            forward: Direction::new(modulus, &twiddles.forward, lanes),
            inverse: Direction::new(modulus, &twiddles.inverse, lanes),
            last: [centred(modulus, twiddles.scale), centred(modulus, scaled)],
        }
    }

    pub(super) fn have(&self) -> HaveFma {
        self.have
    }
}

/// As [`crate::kernels::portable::forward`]; blocks of at least 64 words.
pub(crate) fn forward(tables: &Tables, a: &mut [u64], skipped: u32, first: usize) {
    let size = tables.n >> (2 * skipped);
    assert!(size >= 64 && a.len().is_multiple_of(size), "whole blocks");
    assert!(first + a.len() / size <= 1 << (2 * skipped), "blocks of the layer");
    for (i, block) in a.chunks_exact_mut(size).enumerate() {
        forward_block(tables.have, tables, block, (1 << (2 * skipped)) + first + i);
    }
}

kernel! {
    /// Transforms block `k` to its end.
    fn forward_block(tables: &Tables, a: &mut [u64], k: usize) = forward_body
}

#[inline(always)]
unsafe fn forward_body<L: Lanes>(tables: &Tables, a: &mut [u64], k: usize) {
    let tile = L::LANES * L::LANES;
    let cached = CACHED.min(a.len());
    let mut integers = true;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let r = Registers::<L>::new(&tables.constants);
        forward_layers(&r, tables, a, k, cached, &mut integers);
        let k = k * (a.len() / cached);
        for (i, block) in a.chunks_exact_mut(cached).enumerate() {
            let mut integers = integers;
            forward_layers(&r, tables, block, k + i, tile, &mut integers);
            let k = (k + i) * (cached / tile);
            for (i, words) in block.chunks_exact_mut(tile).enumerate() {
                if integers {
                    forward_tile::<L, true>(&r, tables, words, k + i);
                } else {
                    forward_tile::<L, false>(&r, tables, words, k + i);
                }
            }
        }
    }
}

/// The layers of block `k`, down to blocks of `end` words.
#[inline(always)]
unsafe fn forward_layers<L: Lanes>(
    r: &Registers<L>,
    tables: &Tables,
    a: &mut [u64],
    mut k: usize,
    end: usize,
    integers: &mut bool,
) {
    let mut size = a.len();
    // SAFETY: guaranteed by the caller.
    unsafe {
        while size > end {
            let single = (size / end).trailing_zeros() % 2 == 1;
            for (i, block) in a.chunks_exact_mut(size).enumerate() {
                match (single, *integers) {
                    (true, true) => forward_one::<L, true>(r, tables, block, k + i),
                    (true, false) => forward_one::<L, false>(r, tables, block, k + i),
                    (false, true) => forward_two::<L, true>(r, tables, block, k + i),
                    (false, false) => forward_two::<L, false>(r, tables, block, k + i),
                }
            }
            let layers = if single { 1 } else { 2 };
            size >>= layers;
            k <<= layers;
            *integers = false;
        }
    }
}

#[inline(always)]
pub(super) unsafe fn load<L: Lanes, const INTEGERS: bool>(r: &Registers<L>, from: *const u64) -> L::F {
    // SAFETY: guaranteed by the caller.
    unsafe { if INTEGERS { r.load(from) } else { L::as_numbers(L::load(from)) } }
}

/// One layer; the sums are not reduced, which is allowed only in a first layer.
#[inline(always)]
unsafe fn forward_one<L: Lanes, const INTEGERS: bool>(r: &Registers<L>, tables: &Tables, a: &mut [u64], k: usize) {
    let half = a.len() / 2;
    let p = a.as_mut_ptr();
    // SAFETY: guaranteed by the caller; both halves have a multiple of the lanes.
    unsafe {
        let w = r.factor(L::splat(tables.forward.blocks[k]));
        for j in (0..half).step_by(L::LANES) {
            let mut x = r.reduce(load::<L, INTEGERS>(r, p.add(j)));
            let mut y = load::<L, INTEGERS>(r, p.add(j + half));
            butterfly(r, &mut x, &mut y, w);
            L::store(p.add(j), L::as_words(x));
            L::store(p.add(j + half), L::as_words(y));
        }
    }
}

/// Two layers.
#[inline(always)]
unsafe fn forward_two<L: Lanes, const INTEGERS: bool>(r: &Registers<L>, tables: &Tables, a: &mut [u64], k: usize) {
    let quarter = a.len() / 4;
    let p = a.as_mut_ptr();
    let w = &tables.forward.blocks;
    // SAFETY: guaranteed by the caller; the quarters have a multiple of the lanes.
    unsafe {
        let w = [w[k], w[2 * k], w[2 * k + 1]];
        let w = [r.factor(L::splat(w[0])), r.factor(L::splat(w[1])), r.factor(L::splat(w[2]))];
        for j in (0..quarter).step_by(L::LANES) {
            let [p0, p1, p2, p3] = [p.add(j), p.add(j + quarter), p.add(j + 2 * quarter), p.add(j + 3 * quarter)];
            let mut x0 = r.reduce(load::<L, INTEGERS>(r, p0));
            let mut x1 = load::<L, INTEGERS>(r, p1);
            let mut x2 = load::<L, INTEGERS>(r, p2);
            let mut x3 = load::<L, INTEGERS>(r, p3);
            butterfly(r, &mut x0, &mut x2, w[0]);
            butterfly(r, &mut x1, &mut x3, w[0]);
            butterfly(r, &mut x0, &mut x1, w[1]);
            butterfly(r, &mut x2, &mut x3, w[2]);
            L::store(p0, L::as_words(x0));
            L::store(p1, L::as_words(x1));
            L::store(p2, L::as_words(x2));
            L::store(p3, L::as_words(x3));
        }
    }
}

/// The last layers of block `k`, of lanes² words, ending with words in [0, q).
#[inline(always)]
unsafe fn forward_tile<L: Lanes, const INTEGERS: bool>(r: &Registers<L>, tables: &Tables, a: &mut [u64], k: usize) {
    let p = a.as_mut_ptr();
    // SAFETY: guaranteed by the caller; the tile has as many rows as lanes.
    unsafe {
        let mut x = [L::splat(0.0); 8];
        for (i, x) in x.iter_mut().take(L::LANES).enumerate() {
            *x = load::<L, INTEGERS>(r, p.add(i * L::LANES));
        }
        for layer in 0..L::LOG {
            let stride = L::LANES >> (layer + 1);
            for i in 0..L::LANES {
                if i & stride == 0 {
                    let at = (k << layer) + i / (2 * stride);
                    let w = r.factor(L::splat(*tables.forward.blocks.get_unchecked(at)));
                    pair(r, &mut x, i, stride, w, layer % 2 == 0);
                }
            }
        }
        L::transpose(&mut x);
        let mut w = tables.forward.of_tile::<L>(k).as_ptr();
        for layer in 0..L::LOG {
            let stride = L::LANES >> (layer + 1);
            for first in (0..L::LANES).step_by(2 * stride) {
                let factor = r.factor(L::as_numbers(L::load(w.cast())));
                w = w.add(L::LANES);
                for i in first..first + stride {
                    pair(r, &mut x, i, stride, factor, (layer + L::LOG) % 2 == 0);
                }
            }
        }
        L::transpose(&mut x);
        for (i, &x) in x.iter().take(L::LANES).enumerate() {
            L::store(p.add(i * L::LANES), r.reduced_word(x));
        }
    }
}

/// Registers i and i + stride of a tile.
#[inline(always)]
unsafe fn pair<L: Lanes>(r: &Registers<L>, x: &mut [L::F; 8], i: usize, stride: usize, w: [L::F; 2], reduce: bool) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (mut low, mut high) = (x[i], x[i + stride]);
        if reduce {
            low = r.reduce(low);
        }
        butterfly(r, &mut low, &mut high, w);
        x[i] = low;
        x[i + stride] = high;
    }
}

/// (x, y) → (x + w·y, x − w·y).
#[inline(always)]
unsafe fn butterfly<L: Lanes>(r: &Registers<L>, x: &mut L::F, y: &mut L::F, w: [L::F; 2]) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let t = r.times(*y, w);
        (*x, *y) = (L::add(*x, t), L::sub(*x, t));
    }
}
