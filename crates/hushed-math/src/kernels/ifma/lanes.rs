//! Arithmetic of residues in registers, by 52-bit multiply-adds.
//!
//! `madd52lo/hi(c, a, b)` multiplies the *low 52 bits* of a and b and adds the low or high half of the product to c. So
//! a word is read modulo 2^52, and this kernel never clears the upper twelve bits in between: "x < b" below refers to
//! the value modulo 2^52, which is exact as long as every true value stays in [0, 2^52). Only comparisons need clean
//! words, and they come last. With 4q < 2^52:
//!
//! * product by a constant w with w' = ⌊w·2^52/q⌋ (Shoup; Harvey 2014): `wy − ⌊w'y/2^52⌋·q` < q·(1 + y/2^52) < 2q for
//!   every y < 2^52; three multiply-adds;
//! * reduction with μ = ⌊2^52/q⌋ (Barrett): `x − ⌊μx/2^52⌋·q` < 2q for every x < 2^52, as the estimate loses less
//!   than x/2^52 to μ and less than 1 to the floor; two multiply-adds, where a conditional subtraction would need a
//!   clean word, hence three instructions.

use crate::modulus::Modulus;
use std::arch::x86_64::*;

pub(super) const MASK: u64 = (1 << 52) - 1;

/// How much room q leaves below 2^52, which decides how often a transform reduces.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Room {
    /// q < 2^50: words up to 4q.
    Four,
    /// q < 2^49: words up to 8q.
    Eight,
    /// q < 2^46: words up to 64q.
    Sixty,
}

impl Room {
    pub(super) fn of(modulus: &Modulus) -> Room {
        match modulus.bits() {
            0..=46 => Room::Sixty,
            47..=49 => Room::Eight,
            _ => Room::Four,
        }
    }
}

/// Scalars of one modulus.
#[derive(Clone, Copy)]
pub(super) struct Constants {
    pub(super) q: u64,
    /// ⌊2^52/q⌋.
    pub(super) mu: u64,
}

impl Constants {
    pub(super) fn new(modulus: &Modulus) -> Constants {
        Constants { q: modulus.value(), mu: (1 << 52) / modulus.value() }
    }
}

/// ⌊w·2^52/q⌋ for w < q.
pub(super) fn shoup52(w: u64, q: u64) -> u64 {
    ((u128::from(w) << 52) / u128::from(q)) as u64
}

/// A constant factor in every lane: w and w'.
#[derive(Clone, Copy)]
pub(super) struct Factor {
    pub(super) w: __m512i,
    pub(super) shoup: __m512i,
}

/// The constants in registers.
#[derive(Clone, Copy)]
pub(super) struct Lanes {
    pub(super) q: __m512i,
    /// 2^52 − q: its products are those of −q modulo 2^52.
    pub(super) minus_q: __m512i,
    /// 2q.
    pub(super) q2: __m512i,
    /// 4q, if it fits.
    pub(super) q4: __m512i,
    pub(super) one: __m512i,
    pub(super) two: __m512i,
    pub(super) mu: __m512i,
    pub(super) mask: __m512i,
}

impl Lanes {
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn new(c: &Constants) -> Lanes {
        Lanes {
            q: splat(c.q),
            minus_q: splat((1 << 52) - c.q),
            q2: splat(2 * c.q),
            q4: splat(4 * c.q),
            one: splat(1),
            two: splat(2),
            mu: splat(c.mu),
            mask: splat(MASK),
        }
    }

    /// w·y minus a multiple of q, in [0, 2q), for y < 2^52.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn mul(&self, y: __m512i, f: Factor) -> __m512i {
        let zero = _mm512_setzero_si512();
        let quotient = _mm512_madd52hi_epu64(zero, y, f.shoup);
        let product = _mm512_madd52lo_epu64(zero, y, f.w);
        _mm512_madd52lo_epu64(product, quotient, self.minus_q)
    }

    /// [`Lanes::mul`] on each.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn mul_all<const COUNT: usize>(&self, y: &mut [__m512i; COUNT], f: Factor) {
        for y in y {
            *y = self.mul(*y, f);
        }
    }

    /// x < 2^52 reduced to [0, 2q).
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn shrink(&self, x: __m512i) -> __m512i {
        let quotient = _mm512_madd52hi_epu64(_mm512_setzero_si512(), x, self.mu);
        _mm512_madd52lo_epu64(x, quotient, self.minus_q)
    }

    /// Reduces x < 2q with dirty upper bits to [0, q), clean.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn finish(&self, x: __m512i) -> __m512i {
        csub(_mm512_and_si512(x, self.mask), self.q)
    }

    /// (x, y) → (x + wy, x − wy): adds 2q to the bound of x. `y` < 2^52.
    ///
    /// The product is added to x; the difference is then 2x + 2q − (x + wy), whose first two terms are one multiply-add
    /// by 2: five instructions, where a separate product, two sums and a difference would be six.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn forward(&self, x: __m512i, y: __m512i, f: Factor) -> (__m512i, __m512i) {
        let quotient = _mm512_madd52hi_epu64(_mm512_setzero_si512(), y, f.shoup);
        let sum = _mm512_madd52lo_epu64(x, y, f.w);
        let sum = _mm512_madd52lo_epu64(sum, quotient, self.minus_q);
        let twice = _mm512_madd52lo_epu64(self.q2, x, self.two);
        (sum, _mm512_sub_epi64(twice, sum))
    }

    /// As `forward`, with x < 2^52 reduced first: both results are below 4q.
    ///
    /// Both quotients begin off by one: the product is added to x + q, minus q, and the difference is twice x + q minus
    /// that sum. This takes two more instructions, one of them an addition.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn forward_reduced(&self, x: __m512i, y: __m512i, f: Factor) -> (__m512i, __m512i) {
        // 2^52 − 1, whose product with 2^52 − q is q.
        let excess = _mm512_madd52hi_epu64(self.mask, x, self.mu);
        let raised = _mm512_madd52lo_epu64(x, excess, self.minus_q);
        let quotient = _mm512_madd52hi_epu64(self.one, y, f.shoup);
        let sum = _mm512_madd52lo_epu64(raised, y, f.w);
        let sum = _mm512_madd52lo_epu64(sum, quotient, self.minus_q);
        (sum, _mm512_sub_epi64(_mm512_add_epi64(raised, raised), sum))
    }
}

#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn splat(word: u64) -> __m512i {
    _mm512_set1_epi64(word as i64)
}

/// For clean a < 2b: a or a − b, whichever is in [0, b).
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn csub(a: __m512i, b: __m512i) -> __m512i {
    // Compare and masked subtraction rather than subtraction and minimum: Intel's minimum of words costs three.
    _mm512_mask_sub_epi64(a, _mm512_cmpge_epu64_mask(a, b), a, b)
}

/// Eight words at `at`.
///
/// # Safety
/// They must be readable.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn load(at: *const u64) -> __m512i {
    // SAFETY: by the contract of this function; no alignment needed.
    unsafe { _mm512_loadu_si512(at.cast()) }
}

/// Stores eight words at `at`.
///
/// # Safety
/// They must be writable.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn store(at: *mut u64, value: __m512i) {
    // SAFETY: by the contract of this function; no alignment needed.
    unsafe { _mm512_storeu_si512(at.cast(), value) }
}

/// Two words at `at`, each in all lanes.
///
/// # Safety
/// They must be readable.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn load_factor(at: *const u64) -> Factor {
    // SAFETY: by the contract of this function.
    unsafe { Factor { w: splat(*at), shoup: splat(*at.add(1)) } }
}

/// Two words at `at`, then their w': w alternating over the lanes.
///
/// # Safety
/// The four words must be readable.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn load_pair(at: *const u64) -> Factor {
    // SAFETY: by the contract of this function; no alignment needed.
    unsafe {
        Factor {
            w: _mm512_broadcast_i64x2(_mm_loadu_si128(at.cast())),
            shoup: _mm512_broadcast_i64x2(_mm_loadu_si128(at.add(2).cast())),
        }
    }
}

/// Four words at `at`, then their w': w twice over the lanes.
///
/// # Safety
/// The eight words must be readable.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn load_four(at: *const u64) -> Factor {
    // SAFETY: by the contract of this function; no alignment needed.
    unsafe {
        Factor {
            w: _mm512_broadcast_i64x4(_mm256_loadu_si256(at.cast())),
            shoup: _mm512_broadcast_i64x4(_mm256_loadu_si256(at.add(4).cast())),
        }
    }
}

/// Eight words at `at`, then their w'.
///
/// # Safety
/// The sixteen words must be readable.
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) unsafe fn load_eight(at: *const u64) -> Factor {
    // SAFETY: by the contract of this function; no alignment needed.
    unsafe { Factor { w: load(at), shoup: load(at.add(8)) } }
}

/// Lane i of the result is lane `lanes[i]` of a (0 to 7) or b (8 to 15).
#[inline]
#[target_feature(enable = "avx512f")]
pub(super) fn pick(a: __m512i, b: __m512i, lanes: [i64; 8]) -> __m512i {
    let [l0, l1, l2, l3, l4, l5, l6, l7] = lanes;
    _mm512_permutex2var_epi64(a, _mm512_setr_epi64(l0, l1, l2, l3, l4, l5, l6, l7), b)
}
