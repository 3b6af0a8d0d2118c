//! Arithmetic on whole limbs. Words in memory are clean and in [0, q); slices have any length, and their end is masked.

use super::lanes::{Constants, Factor, Lanes, MASK, csub, shoup52, splat};
use crate::machine::cpu::HaveIfma;
use crate::modulus::Modulus;
use std::arch::x86_64::*;

/// Terms of an inner product between reductions: the low halves, below 2^52 each, and one residue fit a word.
pub(super) const TERMS: usize = 4000;

/// Terms of an inner product short enough for one digit less: 15·(2^48 + 1) + 1 < 2^52.
pub(super) const SHORT: usize = 15;

/// Constants of one modulus; its existence proves that the kernel may run.
pub(crate) struct Limb {
    pub(super) constants: Constants,
    /// Bits of q.
    bits: u32,
    /// ⌊2^(51 + bits)/q⌋ < 2^52, for products.
    mu_product: u64,
    /// 2^52 and 2^104 modulo q, each with its w'.
    powers: [[u64; 2]; 2],
}

impl Limb {
    /// `_token`: every method relies on the instruction sets that it proves.
    pub(crate) fn new(_token: HaveIfma, modulus: &Modulus) -> Limb {
        let q = modulus.value();
        let power = |w: u64| [w, shoup52(w, q)];
        let low = modulus.reduce(1 << 52);
        Limb {
            constants: Constants::new(modulus),
            bits: modulus.bits(),
            mu_product: ((1_u128 << (51 + modulus.bits())) / u128::from(q)) as u64,
            powers: [power(low), power(modulus.mul(low, low))],
        }
    }

    pub(crate) fn add_assign(&self, a: &mut [u64], b: &[u64]) {
        assert_eq!(a.len(), b.len());
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { add_assign(&self.constants, a, b) }
    }

    pub(crate) fn sub_assign(&self, a: &mut [u64], b: &[u64]) {
        assert_eq!(a.len(), b.len());
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { sub_assign(&self.constants, a, b) }
    }

    pub(crate) fn neg_assign(&self, a: &mut [u64]) {
        // SAFETY: the token of `new` proves the instruction sets.
        unsafe { neg_assign(&self.constants, a) }
    }

    pub(crate) fn mul_assign(&self, a: &mut [u64], b: &[u64]) {
        assert_eq!(a.len(), b.len());
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { mul_assign(self, a, b) }
    }

    pub(crate) fn mul_add_assign(&self, acc: &mut [u64], a: &[u64], b: &[u64]) {
        assert!(acc.len() == a.len() && a.len() == b.len());
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { mul_add_assign(self, acc, a, b) }
    }

    pub(crate) fn mul_scalar_assign(&self, a: &mut [u64], s: u64) {
        // SAFETY: the token of `new` proves the instruction sets.
        unsafe { mul_scalar_assign(&self.constants, a, s) }
    }

    pub(crate) fn dot_assign(&self, acc: &mut [u64], a: &[&[u64]], b: &[&[u64]]) {
        assert_eq!(a.len(), b.len());
        assert!(a.iter().chain(b).all(|x| x.len() == acc.len()));
        for (a, b) in a.chunks(TERMS).zip(b.chunks(TERMS)) {
            // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
            unsafe { dot_assign(self, acc, a, b) }
        }
    }

    pub(crate) fn lift_centred(&self, out: &mut [u64], x: &[u64], from: &Modulus) {
        assert_eq!(out.len(), x.len());
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { lift_centred(&self.constants, out, x, from.value()) }
    }

    /// `back` is s·p mod q.
    pub(crate) fn sub_centred_mul_scalar_assign(&self, a: &mut [u64], x: &[u64], from: &Modulus, [s, back]: [u64; 2]) {
        assert_eq!(a.len(), x.len());
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { sub_centred_mul_scalar(&self.constants, a, x, from.value(), [s, back]) }
    }

    pub(crate) fn reduce_signed(&self, out: &mut [u64], x: &[i64]) {
        assert_eq!(out.len(), x.len());
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { reduce_signed(self, out, x) }
    }

    pub(crate) fn lift_signed(&self, out: &mut [u64], x: &[i64]) {
        assert_eq!(out.len(), x.len());
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { lift_signed(&self.constants, out, x) }
    }

    pub(crate) fn lift_small(&self, out: &mut [u64], x: &[i32]) {
        assert_eq!(out.len(), x.len());
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { lift_small(&self.constants, out, x) }
    }

    pub(crate) fn reduce(&self, out: &mut [u64], x: &[u64]) {
        assert_eq!(out.len(), x.len());
        // SAFETY: the token of `new` proves the instruction sets; lengths are equal.
        unsafe { reduce(self, out, x) }
    }
}

/// Stores `$value`, computed from the words of `$from` (pointers to slices of one length), to `$to`, eight words at a
/// time. The end is read as zeros beyond the slice and stored under a mask.
macro_rules! map {
    ($length:expr, $to:expr, [$($x:ident = $from:expr),*] => $value:expr) => {{
        let length = $length;
        let mut at = 0;
        while at + 8 <= length {
            // SAFETY: words at .. at + 8 of slices of this length.
            unsafe {
                $(let $x = _mm512_loadu_si512($from.add(at).cast());)*
                _mm512_storeu_si512($to.add(at).cast(), $value);
            }
            at += 8;
        }
        if at < length {
            let ends: __mmask8 = (1 << (length - at)) - 1;
            // SAFETY: only the words below the length are touched.
            unsafe {
                $(let $x = _mm512_maskz_loadu_epi64(ends, $from.add(at).cast());)*
                _mm512_mask_storeu_epi64($to.add(at).cast(), ends, $value);
            }
        }
    }};
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn add_assign(c: &Constants, a: &mut [u64], b: &[u64]) {
    let q = splat(c.q);
    let (pa, pb) = (a.as_mut_ptr(), b.as_ptr());
    map!(a.len(), pa, [x = pa, y = pb] => csub(_mm512_add_epi64(x, y), q));
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn sub_assign(c: &Constants, a: &mut [u64], b: &[u64]) {
    let q = splat(c.q);
    let (pa, pb) = (a.as_mut_ptr(), b.as_ptr());
    map!(a.len(), pa, [x = pa, y = pb] => {
        let difference = _mm512_sub_epi64(x, y);
        _mm512_mask_add_epi64(difference, _mm512_cmplt_epu64_mask(x, y), difference, q)
    });
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn neg_assign(c: &Constants, a: &mut [u64]) {
    let q = splat(c.q);
    let pa = a.as_mut_ptr();
    map!(a.len(), pa, [x = pa] => _mm512_maskz_sub_epi64(_mm512_test_epi64_mask(x, x), q, x));
}

/// The constants of a product in registers.
pub(super) struct Product {
    pub(super) lanes: Lanes,
    /// 52 − the bits k of q.
    pub(super) shift: __m512i,
    mu: __m512i,
}

impl Product {
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn new(limb: &Limb) -> Product {
        Product {
            lanes: Lanes::new(&limb.constants),
            shift: splat(u64::from(52 - limb.bits)),
            mu: splat(limb.mu_product),
        }
    }

    /// x + a·b mod q for residues. With k bits of q: the high half of (a·2^(52−k))·(2b) is ⌊ab/2^(k−1)⌋, without
    /// shifting across halves. The quotient is at most 2.5 too small (1 from that floor, ½ from μ as the factor is
    /// below 2^51, 1 from its own floor), so x + the remainder is below 3.5q < 2^52.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn mul_add(&self, x: __m512i, a: __m512i, b: __m512i) -> __m512i {
        let zero = _mm512_setzero_si512();
        let shifted = _mm512_sllv_epi64(a, self.shift);
        let high = _mm512_madd52hi_epu64(zero, shifted, _mm512_add_epi64(b, b));
        self.reduce(_mm512_madd52lo_epu64(x, a, b), high)
    }

    /// z mod q, from the low half of z and `high` ≈ z/2^(k−1) < 2^52, which gives the quotient; the remainder must stay
    /// below 4q.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn reduce(&self, low: __m512i, high: __m512i) -> __m512i {
        let quotient = _mm512_madd52hi_epu64(_mm512_setzero_si512(), high, self.mu);
        let r = _mm512_madd52lo_epu64(low, quotient, self.lanes.minus_q);
        let r = _mm512_and_si512(r, self.lanes.mask);
        csub(csub(r, self.lanes.q2), self.lanes.q)
    }
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn mul_assign(limb: &Limb, a: &mut [u64], b: &[u64]) {
    let product = Product::new(limb);
    let (pa, pb) = (a.as_mut_ptr(), b.as_ptr());
    map!(a.len(), pa, [x = pa, y = pb] => product.mul_add(_mm512_setzero_si512(), x, y));
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn mul_add_assign(limb: &Limb, acc: &mut [u64], a: &[u64], b: &[u64]) {
    let product = Product::new(limb);
    let (pc, pa, pb) = (acc.as_mut_ptr(), a.as_ptr(), b.as_ptr());
    map!(acc.len(), pc, [c = pc, x = pa, y = pb] => product.mul_add(c, x, y));
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn mul_scalar_assign(c: &Constants, a: &mut [u64], s: u64) {
    let lanes = Lanes::new(c);
    let factor = Factor { w: splat(s), shoup: splat(shoup52(s, c.q)) };
    let pa = a.as_mut_ptr();
    map!(a.len(), pa, [x = pa] => lanes.finish(lanes.mul(x, factor)));
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn lift_centred(c: &Constants, out: &mut [u64], x: &[u64], p: u64) {
    let lanes = Lanes::new(c);
    let half = splat(p / 2);
    let p = splat(p % c.q);
    let (to, from) = (out.as_mut_ptr(), x.as_ptr());
    map!(out.len(), to, [x = from] => {
        let r = lanes.finish(lanes.shrink(x));
        let above = _mm512_cmpgt_epu64_mask(x, half);
        let borrow = _mm512_mask_cmplt_epu64_mask(above, r, p);
        let r = _mm512_mask_sub_epi64(r, above, r, p);
        _mm512_mask_add_epi64(r, borrow, r, lanes.q)
    });
}

/// (a − x)·s, plus s·p where x > p/2 represents x − p. With k·q > p the difference a + kq − x is positive and below q +
/// p + q < 2^52; the product is below 2q, and the sum below 3q.
///
/// # Safety
/// As [`lift_centred`].
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn sub_centred_mul_scalar(c: &Constants, a: &mut [u64], x: &[u64], p: u64, [s, back]: [u64; 2]) {
    let lanes = Lanes::new(c);
    let (half, above_p) = (splat(p / 2), splat((p / c.q + 1) * c.q));
    let factor = Factor { w: splat(s), shoup: splat(shoup52(s, c.q)) };
    let back = splat(back);
    let (to, from) = (a.as_mut_ptr(), x.as_ptr());
    map!(a.len(), to, [a = to, x = from] => {
        let product = lanes.mul(_mm512_sub_epi64(_mm512_add_epi64(a, above_p), x), factor);
        let above = _mm512_cmpgt_epu64_mask(x, half);
        let sum = _mm512_and_si512(_mm512_mask_add_epi64(product, above, product, back), lanes.mask);
        csub(csub(sum, lanes.q2), lanes.q)
    });
}

/// Sums of products as two words: `low` + 2^52·`high`.
pub(super) struct Wide {
    pub(super) lanes: Lanes,
    powers: [Factor; 2],
}

impl Wide {
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn new(limb: &Limb) -> Wide {
        let [[w0, s0], [w1, s1]] = limb.powers;
        Wide {
            lanes: Lanes::new(&limb.constants),
            powers: [Factor { w: splat(w0), shoup: splat(s0) }, Factor { w: splat(w1), shoup: splat(s1) }],
        }
    }

    /// The sum modulo q, for any `low` and `high` < 2^63. In base 2^52 it has three digits; the upper two are
    /// multiplied by 2^52 and 2^104 mod q. Each term is below 2q, and no sum of two of them exceeds 4q < 2^52.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn reduce(&self, low: __m512i, high: __m512i) -> __m512i {
        let l = &self.lanes;
        let high = _mm512_add_epi64(high, _mm512_srli_epi64::<52>(low));
        let top = _mm512_srli_epi64::<52>(high);
        let upper = _mm512_add_epi64(l.mul(high, self.powers[0]), l.mul(top, self.powers[1]));
        let sum = _mm512_add_epi64(l.shrink(upper), l.shrink(low));
        l.finish(l.shrink(sum))
    }

    /// As `reduce`, for the sums of at most [`SHORT`] products and a residue: then `high` is below 2^52 with its carry,
    /// and no third digit is left. Both terms are below 2q.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn reduce_short(&self, low: __m512i, high: __m512i) -> __m512i {
        let l = &self.lanes;
        let high = _mm512_add_epi64(high, _mm512_srli_epi64::<52>(low));
        let sum = _mm512_add_epi64(l.shrink(low), l.mul(high, self.powers[0]));
        csub(csub(_mm512_and_si512(sum, l.mask), l.q2), l.q)
    }
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn reduce(limb: &Limb, out: &mut [u64], x: &[u64]) {
    let wide = Wide::new(limb);
    let (to, from) = (out.as_mut_ptr(), x.as_ptr());
    map!(out.len(), to, [x = from] => wide.reduce(x, _mm512_setzero_si512()));
}

/// x + 2^63 as a word, less 2^63 modulo q.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn reduce_signed(limb: &Limb, out: &mut [u64], x: &[i64]) {
    let wide = Wide::new(limb);
    let sign = splat(1 << 63);
    let offset = splat((1 << 63) % limb.constants.q);
    let (to, from) = (out.as_mut_ptr(), x.as_ptr());
    map!(out.len(), to, [x = from] => {
        let r = wide.reduce(_mm512_xor_si512(x, sign), _mm512_setzero_si512());
        let difference = _mm512_sub_epi64(r, offset);
        _mm512_mask_add_epi64(difference, _mm512_cmplt_epu64_mask(r, offset), difference, wide.lanes.q)
    });
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn lift_signed(c: &Constants, out: &mut [u64], x: &[i64]) {
    let q = splat(c.q);
    let (to, from) = (out.as_mut_ptr(), x.as_ptr());
    map!(out.len(), to, [x = from] => _mm512_mask_add_epi64(x, _mm512_movepi64_mask(x), x, q));
}

#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn lift_small(c: &Constants, out: &mut [u64], x: &[i32]) {
    let q = splat(c.q);
    let whole = out.len() - out.len() % 8;
    for at in (0..whole).step_by(8) {
        // SAFETY: eight numbers and words from `at` on, of slices of one length.
        unsafe {
            let x = _mm512_cvtepi32_epi64(_mm256_loadu_si256(x.as_ptr().add(at).cast()));
            let lifted = _mm512_mask_add_epi64(x, _mm512_movepi64_mask(x), x, q);
            _mm512_storeu_si512(out.as_mut_ptr().add(at).cast(), lifted);
        }
    }
    for (y, &x) in out[whole..].iter_mut().zip(&x[whole..]) {
        let x = i64::from(x);
        *y = (x as u64).wrapping_add(c.q & (x >> 63) as u64);
    }
}

/// acc + Σ a_i·b_i for at most [`TERMS`] terms: low halves add up to less than 4000·2^52 + 2^50 < 2^64, high halves,
/// below q²/2^52 < 2^48 each, to less than 2^60.
#[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
unsafe fn dot_assign(limb: &Limb, acc: &mut [u64], a: &[&[u64]], b: &[&[u64]]) {
    const { assert!(TERMS as u128 * (MASK as u128) + (1 << 50) < 1 << 64) }
    /// Registers of sums, low and high: enough chains of multiply-adds to fill their latency.
    const WIDTH: usize = 4;
    let wide = Wide::new(limb);
    let length = acc.len();
    let to = acc.as_mut_ptr();
    let mut at = 0;
    while at + 8 * WIDTH <= length {
        // SAFETY: words at .. at + 8·WIDTH of slices of this length.
        unsafe {
            let mut low = [_mm512_setzero_si512(); WIDTH];
            let mut high = [_mm512_setzero_si512(); WIDTH];
            for (i, sum) in low.iter_mut().enumerate() {
                *sum = _mm512_loadu_si512(to.add(at + 8 * i).cast());
            }
            for (a, b) in a.iter().zip(b) {
                for i in 0..WIDTH {
                    let x = _mm512_loadu_si512(a.as_ptr().add(at + 8 * i).cast());
                    let y = _mm512_loadu_si512(b.as_ptr().add(at + 8 * i).cast());
                    low[i] = _mm512_madd52lo_epu64(low[i], x, y);
                    high[i] = _mm512_madd52hi_epu64(high[i], x, y);
                }
            }
            for i in 0..WIDTH {
                let sum =
                    if a.len() <= SHORT { wide.reduce_short(low[i], high[i]) } else { wide.reduce(low[i], high[i]) };
                _mm512_storeu_si512(to.add(at + 8 * i).cast(), sum);
            }
        }
        at += 8 * WIDTH;
    }
    while at < length {
        let ends = if length - at >= 8 { 0xff } else { (1_u8 << (length - at)) - 1 };
        // SAFETY: only words below the length are touched.
        unsafe {
            let mut low = _mm512_maskz_loadu_epi64(ends, to.add(at).cast());
            let mut high = _mm512_setzero_si512();
            for (a, b) in a.iter().zip(b) {
                let x = _mm512_maskz_loadu_epi64(ends, a.as_ptr().add(at).cast());
                let y = _mm512_maskz_loadu_epi64(ends, b.as_ptr().add(at).cast());
                low = _mm512_madd52lo_epu64(low, x, y);
                high = _mm512_madd52hi_epu64(high, x, y);
            }
            _mm512_mask_storeu_epi64(to.add(at).cast(), ends, wide.reduce(low, high));
        }
        at += 8;
    }
}
