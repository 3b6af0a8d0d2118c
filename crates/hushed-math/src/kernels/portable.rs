//! The kernels on 64-bit words, for any processor.
//!
//! Twiddles carry their Shoup word ⌊w·2^64/q⌋; a lazy product w·y is below q·(1 + y/2^64) for *any* word y, hence below
//! 2q (Harvey 2014). As q < 2^50, fourteen bits of a word are free, so the forward transform reduces nothing on the
//! way: a butterfly (x, y) → (x + wy, x + 2q − wy) adds at most 2q to the bound of x, which grows from q to (1 + 2·20)q
//! < 2^56 over the at most 20 layers. One reduction per word follows at the end.

use crate::modulus::{Modulus, csub};
use crate::ntt::Twiddles;

/// A constant factor and its Shoup word.
type Factor = [u64; 2];

/// Twiddles of one transform.
pub(crate) struct Tables {
    forward: Vec<Factor>,
    inverse: Vec<Factor>,
    /// n^−1, and n^−1 times the inverse twiddle of the last layer: the scaling costs no pass of its own.
    last: [Factor; 2],
}

impl Tables {
    pub(crate) fn new(modulus: &Modulus, twiddles: &Twiddles) -> Tables {
        let factor = |w: u64| [w, modulus.shoup(w)];
        let all = |words: &[u64]| words.iter().map(|&w| factor(w)).collect();
        let last = twiddles.inverse.get(1).copied().unwrap_or(1);
        Tables {
            forward: all(&twiddles.forward),
            inverse: all(&twiddles.inverse),
            last: [factor(twiddles.scale), factor(modulus.mul(twiddles.scale, last))],
        }
    }
}

/// [0, q) → [0, q), natural order → bit-reversed values. `a` holds the words of the blocks from number `first` on of
/// the layer with 4^`skipped` blocks. The whole transform is block 0 of layer 0.
pub(crate) fn forward(modulus: &Modulus, tables: &Tables, a: &mut [u64], skipped: u32, first: usize) {
    let q2 = 2 * modulus.value();
    let mut size = tables.forward.len() >> (2 * skipped);
    let mut index = (1 << (2 * skipped)) + first;
    while size > 1 {
        for (block, &[w, w_shoup]) in a.chunks_exact_mut(size).zip(&tables.forward[index..]) {
            let (low, high) = block.split_at_mut(size / 2);
            for (x, y) in low.iter_mut().zip(high) {
                let t = modulus.mul_shoup_lazy(*y, w, w_shoup);
                *y = *x + q2 - t;
                *x += t;
            }
        }
        size /= 2;
        index *= 2;
    }
    for x in a {
        *x = modulus.reduce(*x);
    }
}

/// [0, q) → [0, q), bit-reversed values → natural order. Between layers words are below 2q: a sum is reduced from 4q by
/// one conditional subtraction, a difference by its product.
pub(crate) fn inverse(modulus: &Modulus, tables: &Tables, a: &mut [u64]) {
    let (q, q2) = (modulus.value(), 2 * modulus.value());
    let mut blocks = a.len() / 2;
    while blocks > 1 {
        let stride = a.len() / (2 * blocks);
        for (block, &[w, w_shoup]) in a.chunks_exact_mut(2 * stride).zip(&tables.inverse[blocks..]) {
            let (low, high) = block.split_at_mut(stride);
            for (x, y) in low.iter_mut().zip(high) {
                let sum = csub(*x + *y, q2);
                *y = modulus.mul_shoup_lazy(*x + q2 - *y, w, w_shoup);
                *x = sum;
            }
        }
        blocks /= 2;
    }
    if a.len() > 1 {
        let [[s, s_shoup], [sw, sw_shoup]] = tables.last;
        let (low, high) = a.split_at_mut(a.len() / 2);
        for (x, y) in low.iter_mut().zip(high) {
            let (sum, difference) = (*x + *y, *x + q2 - *y);
            *x = csub(modulus.mul_shoup_lazy(sum, s, s_shoup), q);
            *y = csub(modulus.mul_shoup_lazy(difference, sw, sw_shoup), q);
        }
    }
}

#[inline(always)]
pub(crate) fn add_assign(modulus: &Modulus, a: &mut [u64], b: &[u64]) {
    for (x, &y) in a.iter_mut().zip(b) {
        *x = modulus.add(*x, y);
    }
}

#[inline(always)]
pub(crate) fn sub_assign(modulus: &Modulus, a: &mut [u64], b: &[u64]) {
    for (x, &y) in a.iter_mut().zip(b) {
        *x = modulus.sub(*x, y);
    }
}

#[inline(always)]
pub(crate) fn neg_assign(modulus: &Modulus, a: &mut [u64]) {
    for x in a {
        *x = modulus.neg(*x);
    }
}

pub(crate) fn mul_assign(modulus: &Modulus, a: &mut [u64], b: &[u64]) {
    for (x, &y) in a.iter_mut().zip(b) {
        *x = modulus.mul(*x, y);
    }
}

pub(crate) fn mul_add_assign(modulus: &Modulus, acc: &mut [u64], a: &[u64], b: &[u64]) {
    for ((x, &a), &b) in acc.iter_mut().zip(a).zip(b) {
        *x = modulus.add(*x, modulus.mul(a, b));
    }
}

pub(crate) fn mul_scalar_assign(modulus: &Modulus, a: &mut [u64], s: u64) {
    let s_shoup = modulus.shoup(s);
    for x in a {
        *x = csub(modulus.mul_shoup_lazy(*x, s, s_shoup), modulus.value());
    }
}

#[inline(always)]
pub(crate) fn reduce_signed(modulus: &Modulus, out: &mut [u64], x: &[i64]) {
    for (y, &x) in out.iter_mut().zip(x) {
        *y = modulus.reduce_signed(x);
    }
}

/// x + q if x < 0, by a mask.
#[inline(always)]
pub(crate) fn lift_signed(modulus: &Modulus, out: &mut [u64], x: &[i64]) {
    for (y, &x) in out.iter_mut().zip(x) {
        *y = (x as u64).wrapping_add(modulus.value() & (x >> 63) as u64);
    }
}

#[inline(always)]
pub(crate) fn lift_small(modulus: &Modulus, out: &mut [u64], x: &[i32]) {
    for (y, &x) in out.iter_mut().zip(x) {
        let x = i64::from(x);
        *y = (x as u64).wrapping_add(modulus.value() & (x >> 63) as u64);
    }
}

#[inline(always)]
pub(crate) fn reduce(modulus: &Modulus, out: &mut [u64], x: &[u64]) {
    for (y, &x) in out.iter_mut().zip(x) {
        *y = modulus.reduce(x);
    }
}

/// x − p if x > p/2, by a mask.
pub(crate) fn lift_centred(modulus: &Modulus, out: &mut [u64], x: &[u64], from: &Modulus) {
    let half = from.value() / 2;
    let p = modulus.reduce(from.value());
    for (y, &x) in out.iter_mut().zip(x) {
        let above = (half.wrapping_sub(x) as i64 >> 63) as u64;
        *y = modulus.sub(modulus.reduce(x), p & above);
    }
}

/// Sums of 128 bits: below q + t·q² < 2^128 for t < 2^27 terms, more limbs than memory holds.
pub(crate) fn dot_assign(modulus: &Modulus, acc: &mut [u64], a: &[&[u64]], b: &[&[u64]]) {
    const BLOCK: usize = 128;
    assert!(a.len() < 1 << 27, "sums of 128 bits");
    for (start, acc) in (0..).step_by(BLOCK).zip(acc.chunks_mut(BLOCK)) {
        let mut sums = [0_u128; BLOCK];
        for (a, b) in a.iter().zip(b) {
            let words = a[start..start + acc.len()].iter().zip(&b[start..start + acc.len()]);
            for (sum, (&a, &b)) in sums.iter_mut().zip(words) {
                *sum += u128::from(a) * u128::from(b);
            }
        }
        for (x, &sum) in acc.iter_mut().zip(&sums) {
            *x = modulus.add(*x, modulus.reduce_u128(sum));
        }
    }
}

#[inline(always)]
pub(crate) fn add(modulus: &Modulus, out: &mut [u64], a: &[u64], b: &[u64]) {
    for ((x, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *x = modulus.add(a, b);
    }
}

#[inline(always)]
pub(crate) fn sub(modulus: &Modulus, out: &mut [u64], a: &[u64], b: &[u64]) {
    for ((x, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *x = modulus.sub(a, b);
    }
}

pub(crate) fn mul(modulus: &Modulus, out: &mut [u64], a: &[u64], b: &[u64]) {
    for ((x, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *x = modulus.mul(a, b);
    }
}

pub(crate) fn mul_scalar(modulus: &Modulus, out: &mut [u64], a: &[u64], s: u64) {
    let s_shoup = modulus.shoup(s);
    for (x, &a) in out.iter_mut().zip(a) {
        *x = csub(modulus.mul_shoup_lazy(a, s, s_shoup), modulus.value());
    }
}

pub(crate) fn mul_scalar_add_assign(modulus: &Modulus, acc: &mut [u64], a: &[u64], s: u64) {
    let s_shoup = modulus.shoup(s);
    for (x, &a) in acc.iter_mut().zip(a) {
        let product = csub(modulus.mul_shoup_lazy(a, s, s_shoup), modulus.value());
        *x = modulus.add(*x, product);
    }
}

#[inline(always)]
pub(crate) fn add_scalar_assign(modulus: &Modulus, a: &mut [u64], s: u64) {
    for x in a {
        *x = modulus.add(*x, s);
    }
}

pub(crate) fn sub_mul_scalar_assign(modulus: &Modulus, a: &mut [u64], b: &[u64], s: u64) {
    let difference = DifferenceTimes::new(modulus, s);
    for (x, &b) in a.iter_mut().zip(b) {
        *x = difference.of(*x, b);
    }
}

pub(crate) fn mod_down_finish(modulus: &Modulus, out: &mut [u64], sum: &[u64], lifted: &[u64], inv: u64) {
    let difference = DifferenceTimes::new(modulus, inv);
    for ((x, &a), &b) in out.iter_mut().zip(sum).zip(lifted) {
        *x = difference.of(a, b);
    }
}

pub(crate) fn mod_down_finish_add_assign(modulus: &Modulus, acc: &mut [u64], sum: &[u64], lifted: &[u64], inv: u64) {
    let difference = DifferenceTimes::new(modulus, inv);
    for ((x, &a), &b) in acc.iter_mut().zip(sum).zip(lifted) {
        *x = modulus.add(*x, difference.of(a, b));
    }
}

/// (a − b)·s for a constant s.
struct DifferenceTimes<'a> {
    modulus: &'a Modulus,
    factor: Factor,
}

impl<'a> DifferenceTimes<'a> {
    fn new(modulus: &'a Modulus, s: u64) -> DifferenceTimes<'a> {
        let factor = [s, modulus.shoup(s)];
        DifferenceTimes { modulus, factor }
    }

    #[inline(always)]
    fn of(&self, a: u64, b: u64) -> u64 {
        let (q, [s, s_shoup]) = (self.modulus.value(), self.factor);
        csub(self.modulus.mul_shoup_lazy(a + q - b, s, s_shoup), q)
    }
}

/// Bounds as in [`dot_assign`].
pub(crate) fn dot_scalars_assign(modulus: &Modulus, acc: &mut [u64], a: &[&[u64]], s: &[u64]) {
    const BLOCK: usize = 128;
    assert!(a.len() < 1 << 27, "sums of 128 bits");
    for (start, acc) in (0..).step_by(BLOCK).zip(acc.chunks_mut(BLOCK)) {
        let mut sums = [0_u128; BLOCK];
        for (a, &s) in a.iter().zip(s) {
            for (sum, &a) in sums.iter_mut().zip(&a[start..start + acc.len()]) {
                *sum += u128::from(a) * u128::from(s);
            }
        }
        for (x, &sum) in acc.iter_mut().zip(&sums) {
            *x = modulus.add(*x, modulus.reduce_u128(sum));
        }
    }
}

pub(crate) fn dot_pair<const ACCUMULATE: bool>(
    modulus: &Modulus,
    out: [&mut [u64]; 2],
    d: &[&[u64]],
    keys: [&[&[u64]]; 2],
) {
    for (out, key) in out.into_iter().zip(keys) {
        if !ACCUMULATE {
            out.fill(0);
        }
        dot_assign(modulus, out, d, key);
    }
}

/// Sums of 128 bits, as in [`dot_assign`].
pub(crate) fn dot_pair_repeated(
    modulus: &Modulus,
    out: [&mut [u64]; 2],
    d: &[&[u64]],
    log_repeat: u32,
    keys: [&[&[u64]]; 2],
) {
    const BLOCK: usize = 128;
    assert!(d.len() < 1 << 27, "sums of 128 bits");
    for (out, keys) in out.into_iter().zip(keys) {
        let block = BLOCK.min(1 << log_repeat);
        for (start, out) in (0..).step_by(block).zip(out.chunks_mut(block)) {
            let mut sums = [0_u128; BLOCK];
            for (d, key) in d.iter().zip(keys) {
                let d = u128::from(d[start >> log_repeat]);
                for (sum, &k) in sums.iter_mut().zip(&key[start..start + out.len()]) {
                    *sum += d * u128::from(k);
                }
            }
            for (x, &sum) in out.iter_mut().zip(&sums) {
                *x = modulus.reduce_u128(sum);
            }
        }
    }
}

pub(crate) fn tensor<const ACCUMULATE: bool>(modulus: &Modulus, out: [&mut [u64]; 3], x: [&[u64]; 2], y: [&[u64]; 2]) {
    let [out0, out1, out2] = out;
    for i in 0..out0.len() {
        let ([x0, x1], [y0, y1]) = ([x[0][i], x[1][i]], [y[0][i], y[1][i]]);
        let middle = u128::from(x0) * u128::from(y1) + u128::from(x1) * u128::from(y0);
        let products = [modulus.mul(x0, y0), modulus.reduce_u128(middle), modulus.mul(x1, y1)];
        for (out, product) in [&mut *out0, &mut *out1, &mut *out2].into_iter().zip(products) {
            out[i] = if ACCUMULATE { modulus.add(out[i], product) } else { product };
        }
    }
}
