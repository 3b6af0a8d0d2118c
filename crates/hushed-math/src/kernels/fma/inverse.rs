//! The inverse transform: the layers of `ntt.rs` in reverse, (x, y) → (x + y, w·(x − y)).
//!
//! Of the four numbers that meet in two layers, two leave as products; the sum of all four and the sum of two products
//! are reduced. A product multiplies a difference of two sums of two: from numbers below B·q it is below (1/2 +
//! 4B/8)·q, so that whatever is below q stays below q, and no multiplicand reaches 4q.

use super::lanes::Lanes;
use super::ntt::{CACHED, Tables, load};
use super::registers::{Registers, kernel};

/// As [`crate::kernels::portable::inverse`].
pub(crate) fn inverse(tables: &Tables, a: &mut [u64]) {
    assert_eq!(a.len(), tables.n, "one word a value");
    inverse_whole(tables.have(), tables, a);
}

kernel! {
    fn inverse_whole(tables: &Tables, a: &mut [u64]) = inverse_body
}

#[inline(always)]
unsafe fn inverse_body<L: Lanes>(tables: &Tables, a: &mut [u64]) {
    let (n, tile) = (a.len(), L::LANES * L::LANES);
    // The last pass goes over everything: two layers are left for it.
    let cached = CACHED.min(n / 4);
    // SAFETY: guaranteed by the caller.
    unsafe {
        let r = Registers::<L>::new(&tables.constants);
        for (i, block) in a.chunks_exact_mut(cached).enumerate() {
            let k = n / tile + i * (cached / tile);
            for (j, words) in block.chunks_exact_mut(tile).enumerate() {
                inverse_tile::<L>(&r, tables, words, k + j);
            }
            inverse_layers(&r, tables, block, n / cached + i, tile, cached);
        }
        inverse_layers(&r, tables, a, 1, cached, n / 4);
        inverse_two::<L, true>(&r, tables, a, 1);
    }
}

/// The layers from blocks of `size` words up to those of `end` words, within block `k`.
#[inline(always)]
unsafe fn inverse_layers<L: Lanes>(
    r: &Registers<L>,
    tables: &Tables,
    a: &mut [u64],
    k: usize,
    mut size: usize,
    end: usize,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        while size < end {
            let single = (end / size).trailing_zeros() % 2 == 1;
            size <<= if single { 1 } else { 2 };
            let k = k * (a.len() / size);
            for (i, block) in a.chunks_exact_mut(size).enumerate() {
                if single {
                    inverse_one(r, tables, block, k + i);
                } else {
                    inverse_two::<L, false>(r, tables, block, k + i);
                }
            }
        }
    }
}

/// One layer.
#[inline(always)]
unsafe fn inverse_one<L: Lanes>(r: &Registers<L>, tables: &Tables, a: &mut [u64], k: usize) {
    let half = a.len() / 2;
    let p = a.as_mut_ptr();
    // SAFETY: guaranteed by the caller; both halves have a multiple of the lanes.
    unsafe {
        let w = r.factor(L::splat(tables.inverse.blocks[k]));
        for j in (0..half).step_by(L::LANES) {
            let mut x = load::<L, false>(r, p.add(j));
            let mut y = load::<L, false>(r, p.add(j + half));
            butterfly(r, &mut x, &mut y, w);
            L::store(p.add(j), L::as_words(r.reduce(x)));
            L::store(p.add(j + half), L::as_words(y));
        }
    }
}

/// Two layers; the last two of a transform are scaled by n^−1 and leave words in [0, q).
#[inline(always)]
unsafe fn inverse_two<L: Lanes, const LAST: bool>(r: &Registers<L>, tables: &Tables, a: &mut [u64], k: usize) {
    let quarter = a.len() / 4;
    let p = a.as_mut_ptr();
    let w = &tables.inverse.blocks;
    // SAFETY: guaranteed by the caller; the quarters have a multiple of the lanes.
    unsafe {
        let w = [w[2 * k], w[2 * k + 1], w[k]];
        let scale = r.factor(L::splat(tables.last[0]));
        let w = [
            r.factor(L::splat(w[0])),
            r.factor(L::splat(w[1])),
            r.factor(L::splat(if LAST { tables.last[1] } else { w[2] })),
        ];
        for j in (0..quarter).step_by(L::LANES) {
            let [p0, p1, p2, p3] = [p.add(j), p.add(j + quarter), p.add(j + 2 * quarter), p.add(j + 3 * quarter)];
            let mut x0 = load::<L, false>(r, p0);
            let mut x1 = load::<L, false>(r, p1);
            let mut x2 = load::<L, false>(r, p2);
            let mut x3 = load::<L, false>(r, p3);
            butterfly(r, &mut x0, &mut x1, w[0]);
            butterfly(r, &mut x2, &mut x3, w[1]);
            butterfly(r, &mut x0, &mut x2, w[2]);
            butterfly(r, &mut x1, &mut x3, w[2]);
            if LAST {
                L::store(p0, r.word(r.times(x0, scale)));
                L::store(p1, r.word(r.times(x1, scale)));
                L::store(p2, r.word(x2));
                L::store(p3, r.word(x3));
            } else {
                L::store(p0, L::as_words(r.reduce(x0)));
                L::store(p1, L::as_words(r.reduce(x1)));
                L::store(p2, L::as_words(x2));
                L::store(p3, L::as_words(x3));
            }
        }
    }
}

/// The first layers of block `k`, of lanes² words in [0, q).
#[inline(always)]
unsafe fn inverse_tile<L: Lanes>(r: &Registers<L>, tables: &Tables, a: &mut [u64], k: usize) {
    let p = a.as_mut_ptr();
    // SAFETY: guaranteed by the caller; the tile has as many rows as lanes.
    unsafe {
        let mut x = [L::splat(0.0); 8];
        for (i, x) in x.iter_mut().take(L::LANES).enumerate() {
            *x = r.load(p.add(i * L::LANES));
        }
        L::transpose(&mut x);
        let mut w = tables.inverse.of_tile::<L>(k).as_ptr_range().end;
        for layer in (0..L::LOG).rev() {
            let stride = L::LANES >> (layer + 1);
            for first in (0..L::LANES).step_by(2 * stride).rev() {
                w = w.sub(L::LANES);
                let factor = r.factor(L::as_numbers(L::load(w.cast())));
                for i in first..first + stride {
                    pair(r, &mut x, i, stride, factor);
                }
            }
        }
        L::transpose(&mut x);
        for layer in (0..L::LOG).rev() {
            let stride = L::LANES >> (layer + 1);
            for i in 0..L::LANES {
                if i & stride == 0 {
                    let at = (k << layer) + i / (2 * stride);
                    let w = r.factor(L::splat(*tables.inverse.blocks.get_unchecked(at)));
                    pair(r, &mut x, i, stride, w);
                }
            }
        }
        for (i, &x) in x.iter().take(L::LANES).enumerate() {
            L::store(p.add(i * L::LANES), L::as_words(x));
        }
    }
}

/// Registers i and i + stride of a tile; every sum is reduced.
#[inline(always)]
unsafe fn pair<L: Lanes>(r: &Registers<L>, x: &mut [L::F; 8], i: usize, stride: usize, w: [L::F; 2]) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (mut low, mut high) = (x[i], x[i + stride]);
        butterfly(r, &mut low, &mut high, w);
        x[i] = r.reduce(low);
        x[i + stride] = high;
    }
}

/// (x, y) → (x + y, w·(x − y)).
#[inline(always)]
unsafe fn butterfly<L: Lanes>(r: &Registers<L>, x: &mut L::F, y: &mut L::F, w: [L::F; 2]) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let difference = L::sub(*x, *y);
        *x = L::add(*x, *y);
        *y = r.times(difference, w);
    }
}
