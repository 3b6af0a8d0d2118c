//! Several steps of a ciphertext's arithmetic in one pass: each word is read once and reduced once.
//!
//! Bounds are those of `limb`: one product leaves less than 3.5q before the last subtractions; a sum of two products
//! loses one more unit of ⌊ab/2^(k−1)⌋, and leaves less than 2^k + q + 2q³/2^(k+51) ≤ 3.25q.

use super::lanes::{Factor, Lanes, csub, shoup52, splat};
use super::limb::{Limb, Product, SHORT, TERMS, Wide};
use std::arch::x86_64::*;

/// Runs the block for every eight words: `$at` is their first index, `$ends` a mask of those below the length.
macro_rules! lanes {
    ($length:expr, |$at:ident, $ends:ident| $body:block) => {{
        let length = $length;
        for $at in (0..length).step_by(8) {
            let $ends: __mmask8 = if length - $at >= 8 { 0xff } else { (1 << (length - $at)) - 1 };
            $body
        }
    }};
}

/// As [`SHORT`], for digits of 52 bits: 3·(2^50 + 1) + 1 < 2^52.
const SHORT_LOOSE: usize = 3;

/// Moves of blocks of eight words, and the orders within them.
pub(crate) type Turn<'a> = (&'a [u32], &'a [[u64; 8]; 8]);

impl Limb {
    pub(crate) fn add(&self, out: &mut [u64], a: &[u64], b: &[u64]) {
        assert!(out.len() == a.len() && a.len() == b.len());
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { add(self, out, a, b) }
    }

    pub(crate) fn sub(&self, out: &mut [u64], a: &[u64], b: &[u64]) {
        assert!(out.len() == a.len() && a.len() == b.len());
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { sub(self, out, a, b) }
    }

    pub(crate) fn mul(&self, out: &mut [u64], a: &[u64], b: &[u64]) {
        assert!(out.len() == a.len() && a.len() == b.len());
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { mul(self, out, a, b) }
    }

    pub(crate) fn mul_scalar(&self, out: &mut [u64], a: &[u64], s: u64) {
        assert_eq!(out.len(), a.len());
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { mul_scalar::<false>(self, out, a, s) }
    }

    pub(crate) fn mul_scalar_add_assign(&self, acc: &mut [u64], a: &[u64], s: u64) {
        assert_eq!(acc.len(), a.len());
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { mul_scalar::<true>(self, acc, a, s) }
    }

    pub(crate) fn add_scalar_assign(&self, a: &mut [u64], s: u64) {
        // SAFETY: the token of `new` proves the instruction sets.
        unsafe { add_scalar_assign(self, a, s) }
    }

    pub(crate) fn sub_mul_scalar_assign(&self, a: &mut [u64], b: &[u64], s: u64) {
        assert_eq!(a.len(), b.len());
        let to = a.as_mut_ptr();
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal, and each word of `a` is read
        // before it is written.
        unsafe { sub_mul_scalar::<false>(self, a.len(), to, to, b.as_ptr(), s) }
    }

    pub(crate) fn mod_down_finish(&self, out: &mut [u64], sum: &[u64], lifted: &[u64], inv: u64) {
        assert!(out.len() == sum.len() && sum.len() == lifted.len());
        let (to, a, b) = (out.as_mut_ptr(), sum.as_ptr(), lifted.as_ptr());
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { sub_mul_scalar::<false>(self, out.len(), to, a, b, inv) }
    }

    pub(crate) fn mod_down_finish_add_assign(&self, acc: &mut [u64], sum: &[u64], lifted: &[u64], inv: u64) {
        assert!(acc.len() == sum.len() && sum.len() == lifted.len());
        let (to, a, b) = (acc.as_mut_ptr(), sum.as_ptr(), lifted.as_ptr());
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { sub_mul_scalar::<true>(self, acc.len(), to, a, b, inv) }
    }

    pub(crate) fn dot_scalars_assign(&self, acc: &mut [u64], a: &[&[u64]], s: &[u64]) {
        assert!(a.len() == s.len() && a.iter().all(|x| x.len() == acc.len()));
        for (a, s) in a.chunks(TERMS).zip(s.chunks(TERMS)) {
            // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
            unsafe { dot_scalars_assign(self, acc, a, s) }
        }
    }

    pub(crate) fn dot_pair<const ACCUMULATE: bool>(&self, out: [&mut [u64]; 2], d: &[&[u64]], keys: [&[&[u64]]; 2]) {
        let [out_b, out_a] = out;
        let [kb, ka] = keys;
        let length = out_b.len();
        assert!(out_a.len() == length && d.len() == kb.len() && d.len() == ka.len());
        assert!(d.iter().chain(kb).chain(ka).all(|x| x.len() == length));
        if !ACCUMULATE && d.is_empty() {
            out_b.fill(0);
            out_a.fill(0);
        }
        let (kb, ka) = (kb.chunks(TERMS), ka.chunks(TERMS));
        for (i, ((d, kb), ka)) in d.chunks(TERMS).zip(kb).zip(ka).enumerate() {
            // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
            unsafe {
                if ACCUMULATE || i > 0 {
                    dot_pair::<true, false>(self, out_b, out_a, d, 0, kb, ka);
                } else {
                    dot_pair::<false, false>(self, out_b, out_a, d, 0, kb, ka);
                }
            }
        }
    }

    pub(crate) fn dot_pair_repeated(&self, out: [&mut [u64]; 2], d: &[&[u64]], log_repeat: u32, keys: [&[&[u64]]; 2]) {
        let [out_b, out_a] = out;
        let [kb, ka] = keys;
        let length = out_b.len();
        // Whole registers, each of one repeated word.
        assert!(out_a.len() == length && length.is_multiple_of(8) && log_repeat >= 3);
        assert!(d.len() == kb.len() && d.len() == ka.len());
        assert!(kb.iter().chain(ka).all(|x| x.len() == length));
        let words = length.div_ceil(1 << log_repeat);
        assert!(d.iter().all(|x| x.len() >= words));
        if d.is_empty() {
            out_b.fill(0);
            out_a.fill(0);
        }
        let (kb, ka) = (kb.chunks(TERMS), ka.chunks(TERMS));
        for (i, ((d, kb), ka)) in d.chunks(TERMS).zip(kb).zip(ka).enumerate() {
            // SAFETY: the token of `new` proves the instruction sets; lengths are as asserted.
            unsafe {
                if i > 0 {
                    dot_pair::<true, true>(self, out_b, out_a, d, log_repeat, kb, ka);
                } else {
                    dot_pair::<false, true>(self, out_b, out_a, d, log_repeat, kb, ka);
                }
            }
        }
    }

    /// As `dot_pair`, with `added` added to the first sum. Block k of the results comes from the block of eight that
    /// contains word `moves[k]`, in the order `orders[moves[k] % 8]`; the operands begin at word `first`.
    pub(crate) fn dot_pair_turned(
        &self,
        out: [&mut [u64]; 2],
        d: &[&[u64]],
        keys: [&[&[u64]]; 2],
        added: Option<&[u64]>,
        turn: (&[u32], &[[u64; 8]; 8], usize),
    ) {
        let ([out_b, out_a], [kb, ka], (moves, orders, first)) = (out, keys, turn);
        let run = d.first().map_or(0, |d| d.len());
        assert!(d.len() == kb.len() && d.len() == ka.len() && d.len() <= TERMS);
        assert!(d.iter().chain(kb).chain(ka).chain(&added).all(|x| x.len() == run));
        assert!(out_b.len() == 8 * moves.len() && out_a.len() == out_b.len());
        let inside = |&from: &u32| {
            let at = (from as usize & !7).wrapping_sub(first);
            at < run && run - at >= 8
        };
        assert!(moves.len().is_multiple_of(2) && moves.iter().all(inside));
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal, and every block is inside.
        unsafe { dot_pair_turned(self, out_b, out_a, d, kb, ka, added, moves, orders, first) }
    }

    /// As `dot_pair`, with the blocks and orders of each d_i permuted by its turn, as in [`super::permute`]. Only the
    /// low 52 bits of the words of d_i count.
    pub(crate) fn dot_pair_of_turned(
        &self,
        [out_b, out_a]: [&mut [u64]; 2],
        d: &[&[u64]],
        turns: &[Turn<'_>],
        [kb, ka]: [&[&[u64]]; 2],
    ) {
        let length = out_b.len();
        assert!(out_a.len() == length && length.is_multiple_of(16));
        assert!(d.len() <= TERMS && [kb.len(), ka.len(), turns.len()] == [d.len(); 3]);
        assert!(kb.iter().chain(ka).all(|x| x.len() == length));
        assert!(turns.iter().all(|(moves, _)| 8 * moves.len() == length));
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal, except those of the d_i, whose
        // blocks are bounds-checked where they are read.
        unsafe { dot_pair_of_turned(self, out_b, out_a, d, turns, kb, ka) }
    }

    pub(crate) fn tensor<const ACCUMULATE: bool>(&self, out: [&mut [u64]; 3], x: [&[u64]; 2], y: [&[u64]; 2]) {
        let length = out[0].len();
        assert!(out.iter().all(|z| z.len() == length));
        assert!(x.iter().chain(&y).all(|z| z.len() == length));
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { tensor::<ACCUMULATE>(self, out, x, y) }
    }
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn add(limb: &Limb, out: &mut [u64], a: &[u64], b: &[u64]) {
    let q = Lanes::new(&limb.constants).q;
    let (to, a, b) = (out.as_mut_ptr(), a.as_ptr(), b.as_ptr());
    lanes!(out.len(), |at, ends| {
        // SAFETY: masked to words below the length of the three slices.
        unsafe {
            let sum = _mm512_add_epi64(read(ends, a.add(at)), read(ends, b.add(at)));
            write(ends, to.add(at), csub(sum, q));
        }
    });
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn sub(limb: &Limb, out: &mut [u64], a: &[u64], b: &[u64]) {
    let q = Lanes::new(&limb.constants).q;
    let (to, a, b) = (out.as_mut_ptr(), a.as_ptr(), b.as_ptr());
    lanes!(out.len(), |at, ends| {
        // SAFETY: masked to words below the length of the three slices.
        unsafe {
            let (x, y) = (read(ends, a.add(at)), read(ends, b.add(at)));
            let difference = _mm512_sub_epi64(x, y);
            let below = _mm512_cmplt_epu64_mask(x, y);
            write(ends, to.add(at), _mm512_mask_add_epi64(difference, below, difference, q));
        }
    });
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn mul(limb: &Limb, out: &mut [u64], a: &[u64], b: &[u64]) {
    let product = Product::new(limb);
    let (to, a, b) = (out.as_mut_ptr(), a.as_ptr(), b.as_ptr());
    lanes!(out.len(), |at, ends| {
        // SAFETY: masked to words below the length of the three slices.
        unsafe {
            let (x, y) = (read(ends, a.add(at)), read(ends, b.add(at)));
            write(ends, to.add(at), product.mul_add(_mm512_setzero_si512(), x, y));
        }
    });
}

/// out ← (out +) s·a. A product below 2q and a residue are below 3q.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn mul_scalar<const ACCUMULATE: bool>(limb: &Limb, out: &mut [u64], a: &[u64], s: u64) {
    let lanes = Lanes::new(&limb.constants);
    let factor = constant(s, limb.constants.q);
    let (to, a) = (out.as_mut_ptr(), a.as_ptr());
    lanes!(out.len(), |at, ends| {
        // SAFETY: masked to words below the length of both slices.
        unsafe {
            let product = lanes.mul(read(ends, a.add(at)), factor);
            let result = if ACCUMULATE {
                let sum = _mm512_add_epi64(product, read(ends, to.add(at)));
                csub(csub(_mm512_and_si512(sum, lanes.mask), lanes.q2), lanes.q)
            } else {
                lanes.finish(product)
            };
            write(ends, to.add(at), result);
        }
    });
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn add_scalar_assign(limb: &Limb, a: &mut [u64], s: u64) {
    let (q, s) = (Lanes::new(&limb.constants).q, splat(s));
    let to = a.as_mut_ptr();
    lanes!(a.len(), |at, ends| {
        // SAFETY: masked to words below the length.
        unsafe {
            let sum = _mm512_add_epi64(read(ends, to.add(at)), s);
            write(ends, to.add(at), csub(sum, q));
        }
    });
}

/// to ← (to +) (a − b)·s. The factor's other operand, a + q − b, is below 2q < 2^52.
///
/// # Safety
/// The processor has the instruction sets; the three pointers have `length` words; `a` may be `to`.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn sub_mul_scalar<const ACCUMULATE: bool>(
    limb: &Limb,
    length: usize,
    to: *mut u64,
    a: *const u64,
    b: *const u64,
    s: u64,
) {
    let lanes = Lanes::new(&limb.constants);
    let factor = constant(s, limb.constants.q);
    lanes!(length, |at, ends| {
        // SAFETY: masked to words below the length.
        unsafe {
            let raised = _mm512_add_epi64(read(ends, a.add(at)), lanes.q);
            let product = lanes.mul(_mm512_sub_epi64(raised, read(ends, b.add(at))), factor);
            let result = if ACCUMULATE {
                let sum = _mm512_add_epi64(product, read(ends, to.add(at)));
                csub(csub(_mm512_and_si512(sum, lanes.mask), lanes.q2), lanes.q)
            } else {
                lanes.finish(product)
            };
            write(ends, to.add(at), result);
        }
    });
}

/// acc + Σ s_i·a_i for at most [`TERMS`] terms.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn dot_scalars_assign(limb: &Limb, acc: &mut [u64], a: &[&[u64]], s: &[u64]) {
    const WIDTH: usize = 4;
    let wide = Wide::new(limb);
    let (length, to) = (acc.len(), acc.as_mut_ptr());
    for start in (0..length).step_by(8 * WIDTH) {
        let ends: [__mmask8; WIDTH] = std::array::from_fn(|k| ends(length, start + 8 * k));
        let mut low = [_mm512_setzero_si512(); WIDTH];
        let mut high = [_mm512_setzero_si512(); WIDTH];
        // SAFETY: masked to words below the length of all slices; addresses beyond it are not formed by `add`.
        unsafe {
            for k in 0..WIDTH {
                low[k] = read(ends[k], to.wrapping_add(start + 8 * k));
            }
            for (a, &s) in a.iter().zip(s) {
                let s = splat(s);
                for k in 0..WIDTH {
                    let x = read(ends[k], a.as_ptr().wrapping_add(start + 8 * k));
                    low[k] = _mm512_madd52lo_epu64(low[k], x, s);
                    high[k] = _mm512_madd52hi_epu64(high[k], x, s);
                }
            }
            for k in 0..WIDTH {
                let sum = reduce(&wide, a.len(), low[k], high[k]);
                write(ends[k], to.wrapping_add(start + 8 * k), sum);
            }
        }
    }
}

/// out_b ← (out_b +) Σ d_i·kb_i and out_a the same with ka_i, for at most [`TERMS`] terms. With REPEAT each word of d_i
/// stands for 2^`log_repeat` ≥ 8 equal ones, and lengths are multiples of 8.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn dot_pair<const ACCUMULATE: bool, const REPEAT: bool>(
    limb: &Limb,
    out_b: &mut [u64],
    out_a: &mut [u64],
    d: &[&[u64]],
    log_repeat: u32,
    kb: &[&[u64]],
    ka: &[&[u64]],
) {
    /// Registers of digits, with four sums each: enough chains of multiply-adds to fill their latency.
    const WIDTH: usize = 2;
    let wide = Wide::new(limb);
    let (length, to_b, to_a) = (out_b.len(), out_b.as_mut_ptr(), out_a.as_mut_ptr());
    for start in (0..length).step_by(8 * WIDTH) {
        let ends: [__mmask8; WIDTH] = std::array::from_fn(|k| ends(length, start + 8 * k));
        // Low and high sums, of b and of a.
        let mut b = [[_mm512_setzero_si512(); 2]; WIDTH];
        let mut a = [[_mm512_setzero_si512(); 2]; WIDTH];
        // SAFETY: masked to words below the length of all slices; addresses beyond it are not formed by `add`.
        unsafe {
            if ACCUMULATE {
                for k in 0..WIDTH {
                    b[k][0] = read(ends[k], to_b.wrapping_add(start + 8 * k));
                    a[k][0] = read(ends[k], to_a.wrapping_add(start + 8 * k));
                }
            }
            for ((d, kb), ka) in d.iter().zip(kb).zip(ka) {
                for k in 0..WIDTH {
                    let at = start + 8 * k;
                    let x = if !REPEAT {
                        read(ends[k], d.as_ptr().wrapping_add(at))
                    } else if at < length {
                        splat(*d.as_ptr().add(at >> log_repeat))
                    } else {
                        _mm512_setzero_si512()
                    };
                    let y = read(ends[k], kb.as_ptr().wrapping_add(at));
                    let z = read(ends[k], ka.as_ptr().wrapping_add(at));
                    b[k][0] = _mm512_madd52lo_epu64(b[k][0], x, y);
                    b[k][1] = _mm512_madd52hi_epu64(b[k][1], x, y);
                    a[k][0] = _mm512_madd52lo_epu64(a[k][0], x, z);
                    a[k][1] = _mm512_madd52hi_epu64(a[k][1], x, z);
                }
            }
            for k in 0..WIDTH {
                let at = start + 8 * k;
                let sum_b = reduce(&wide, d.len(), b[k][0], b[k][1]);
                let sum_a = reduce(&wide, d.len(), a[k][0], a[k][1]);
                write(ends[k], to_b.wrapping_add(at), sum_b);
                write(ends[k], to_a.wrapping_add(at), sum_a);
            }
        }
    }
}

/// See [`Limb::dot_pair_turned`]: two blocks at a time.
///
/// # Safety
/// Besides the instruction sets: equal lengths of all operands, at least 8 words from each block that `moves` names,
/// two blocks in each step, 8 words per move in `out_b` and `out_a`.
#[expect(clippy::too_many_arguments, reason = "slices of one loop")]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn dot_pair_turned(
    limb: &Limb,
    out_b: &mut [u64],
    out_a: &mut [u64],
    d: &[&[u64]],
    kb: &[&[u64]],
    ka: &[&[u64]],
    added: Option<&[u64]>,
    moves: &[u32],
    orders: &[[u64; 8]; 8],
    first: usize,
) {
    const WIDTH: usize = 2;
    let wide = Wide::new(limb);
    let (to_b, to_a) = (out_b.as_mut_ptr(), out_a.as_mut_ptr());
    for (k, moves) in moves.chunks_exact(WIDTH).enumerate() {
        let at: [usize; WIDTH] = std::array::from_fn(|i| (moves[i] as usize & !7) - first);
        let mut b = [[_mm512_setzero_si512(); 2]; WIDTH];
        let mut a = [[_mm512_setzero_si512(); 2]; WIDTH];
        // SAFETY: whole blocks, as the caller says.
        unsafe {
            if let Some(added) = added {
                for i in 0..WIDTH {
                    b[i][0] = read(0xff, added.as_ptr().add(at[i]));
                }
            }
            for ((d, kb), ka) in d.iter().zip(kb).zip(ka) {
                for i in 0..WIDTH {
                    let x = read(0xff, d.as_ptr().add(at[i]));
                    let y = read(0xff, kb.as_ptr().add(at[i]));
                    let z = read(0xff, ka.as_ptr().add(at[i]));
                    b[i][0] = _mm512_madd52lo_epu64(b[i][0], x, y);
                    b[i][1] = _mm512_madd52hi_epu64(b[i][1], x, y);
                    a[i][0] = _mm512_madd52lo_epu64(a[i][0], x, z);
                    a[i][1] = _mm512_madd52hi_epu64(a[i][1], x, z);
                }
            }
            for i in 0..WIDTH {
                let order = read(0xff, orders[moves[i] as usize & 7].as_ptr());
                let sum_b = reduce(&wide, d.len(), b[i][0], b[i][1]);
                let sum_a = reduce(&wide, d.len(), a[i][0], a[i][1]);
                let to = 8 * (WIDTH * k + i);
                write(0xff, to_b.add(to), _mm512_permutexvar_epi64(order, sum_b));
                write(0xff, to_a.add(to), _mm512_permutexvar_epi64(order, sum_a));
            }
        }
    }
}

/// See [`Limb::dot_pair_of_turned`].
///
/// # Safety
/// Besides the instruction sets: as many turns and parts of keys as digits, of `out_b.len()` words each, a multiple of
/// 16.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn dot_pair_of_turned(
    limb: &Limb,
    out_b: &mut [u64],
    out_a: &mut [u64],
    d: &[&[u64]],
    turns: &[Turn<'_>],
    kb: &[&[u64]],
    ka: &[&[u64]],
) {
    const WIDTH: usize = 2;
    let wide = Wide::new(limb);
    let (length, to_b, to_a) = (out_b.len(), out_b.as_mut_ptr(), out_a.as_mut_ptr());
    for start in (0..length).step_by(8 * WIDTH) {
        let mut b = [[_mm512_setzero_si512(); 2]; WIDTH];
        let mut a = [[_mm512_setzero_si512(); 2]; WIDTH];
        // SAFETY: whole registers below the length of all slices, as the caller says.
        unsafe {
            for (((d, (moves, orders)), kb), ka) in d.iter().zip(turns).zip(kb).zip(ka) {
                for k in 0..WIDTH {
                    let at = start + 8 * k;
                    let from = *moves.get_unchecked(at / 8) as usize;
                    let block = &d[from & !7..][..8];
                    let order = read(0xff, orders[from & 7].as_ptr());
                    let x = _mm512_permutexvar_epi64(order, read(0xff, block.as_ptr()));
                    let y = read(0xff, kb.as_ptr().add(at));
                    let z = read(0xff, ka.as_ptr().add(at));
                    b[k][0] = _mm512_madd52lo_epu64(b[k][0], x, y);
                    b[k][1] = _mm512_madd52hi_epu64(b[k][1], x, y);
                    a[k][0] = _mm512_madd52lo_epu64(a[k][0], x, z);
                    a[k][1] = _mm512_madd52hi_epu64(a[k][1], x, z);
                }
            }
            for k in 0..WIDTH {
                let sum = |[low, high]: [__m512i; 2]| match d.len() <= SHORT_LOOSE {
                    true => wide.reduce_short(low, high),
                    false => wide.reduce(low, high),
                };
                let at = start + 8 * k;
                write(0xff, to_b.add(at), sum(b[k]));
                write(0xff, to_a.add(at), sum(a[k]));
            }
        }
    }
}

/// (x0·y0, x0·y1 + x1·y0, x1·y1), added to `out` or stored there.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn tensor<const ACCUMULATE: bool>(limb: &Limb, out: [&mut [u64]; 3], x: [&[u64]; 2], y: [&[u64]; 2]) {
    let product = Product::new(limb);
    let zero = _mm512_setzero_si512();
    let length = out[0].len();
    let to = out.map(|z| z.as_mut_ptr());
    let (x, y) = (x.map(|z| z.as_ptr()), y.map(|z| z.as_ptr()));
    lanes!(length, |at, ends| {
        // SAFETY: masked to words below the length of all slices.
        unsafe {
            let x = [read(ends, x[0].add(at)), read(ends, x[1].add(at))];
            let y = [read(ends, y[0].add(at)), read(ends, y[1].add(at))];
            // As in a product: the high half of (x·2^(52−k))·(2y) is ⌊xy/2^(k−1)⌋.
            let high_x = [0, 1].map(|i| _mm512_sllv_epi64(x[i], product.shift));
            let high_y = [0, 1].map(|i| _mm512_add_epi64(y[i], y[i]));
            let add = |sum: [__m512i; 2], i: usize, j: usize| {
                [_mm512_madd52lo_epu64(sum[0], x[i], y[j]), _mm512_madd52hi_epu64(sum[1], high_x[i], high_y[j])]
            };
            let none = [zero; 2];
            let sums = [add(none, 0, 0), add(add(none, 0, 1), 1, 0), add(none, 1, 1)];
            for (to, [low, high]) in to.into_iter().zip(sums) {
                let mut z = product.reduce(low, high);
                if ACCUMULATE {
                    z = csub(_mm512_add_epi64(z, read(ends, to.add(at))), product.lanes.q);
                }
                write(ends, to.add(at), z);
            }
        }
    });
}

/// The sum modulo q of `terms` products and a residue.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
fn reduce(wide: &Wide, terms: usize, low: __m512i, high: __m512i) -> __m512i {
    if terms <= SHORT { wide.reduce_short(low, high) } else { wide.reduce(low, high) }
}

/// The factor s of [0, q) in every lane.
#[inline]
#[target_feature(enable = "avx512f")]
fn constant(s: u64, q: u64) -> Factor {
    Factor { w: splat(s), shoup: splat(shoup52(s, q)) }
}

/// A mask of the eight words from `at` on that are below the length.
#[inline]
fn ends(length: usize, at: usize) -> __mmask8 {
    match length.saturating_sub(at) {
        left @ 0..8 => (1 << left) - 1,
        _ => 0xff,
    }
}

/// The words of `ends` at `at`, zeros elsewhere.
///
/// # Safety
/// Those words must be readable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn read(ends: __mmask8, at: *const u64) -> __m512i {
    // SAFETY: by the contract of this function; words outside the mask are not touched.
    unsafe { _mm512_maskz_loadu_epi64(ends, at.cast()) }
}

/// Stores the words of `ends` at `at`.
///
/// # Safety
/// Those words must be writable.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn write(ends: __mmask8, at: *mut u64, value: __m512i) {
    // SAFETY: by the contract of this function; words outside the mask are not touched.
    unsafe { _mm512_mask_storeu_epi64(at.cast(), ends, value) }
}
