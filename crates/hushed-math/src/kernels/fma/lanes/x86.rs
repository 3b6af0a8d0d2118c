//! Registers of 256 and of 512 bits.

use super::{Lanes, instructions};
use std::arch::x86_64::*;

/// AVX2 and FMA.
#[derive(Clone, Copy)]
pub(in super::super) struct Four;

/// AVX-512 F and DQ.
#[derive(Clone, Copy)]
pub(in super::super) struct Eight;

impl Lanes for Four {
    type F = __m256d;
    type I = __m256i;
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f64) -> __m256d {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm256_set1_pd(x) }
    }

    #[inline(always)]
    unsafe fn splat_word(x: u64) -> __m256i {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm256_set1_epi64x(x as i64) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u64) -> __m256i {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u64, x: __m256i) {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm256_storeu_si256(to.cast(), x) }
    }

    instructions! {
        as_words(x: F) -> I = _mm256_castpd_si256(x);
        as_numbers(x: I) -> F = _mm256_castsi256_pd(x);
        add(a: F, b: F) -> F = _mm256_add_pd(a, b);
        sub(a: F, b: F) -> F = _mm256_sub_pd(a, b);
        mul(a: F, b: F) -> F = _mm256_mul_pd(a, b);
        mul_add(a: F, b: F, c: F) -> F = _mm256_fmadd_pd(a, b, c);
        mul_sub(a: F, b: F, c: F) -> F = _mm256_fmsub_pd(a, b, c);
        minus_mul_add(a: F, b: F, c: F) -> F = _mm256_fnmadd_pd(a, b, c);
        add_words(a: I, b: I) -> I = _mm256_add_epi64(a, b);
        sub_words(a: I, b: I) -> I = _mm256_sub_epi64(a, b);
        and(a: I, b: I) -> I = _mm256_and_si256(a, b);
        or(a: I, b: I) -> I = _mm256_or_si256(a, b);
        negative(a: I) -> I = _mm256_cmpgt_epi64(_mm256_setzero_si256(), a);
        shift_26(a: I) -> I = _mm256_srli_epi64::<26>(a);
        shift_51(a: I) -> I = _mm256_srli_epi64::<51>(a);
    }

    #[inline(always)]
    unsafe fn transpose(rows: &mut [__m256d; 8]) {
        let [a, b, c, d, ..] = *rows;
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (ab, ba) = (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b));
            let (cd, dc) = (_mm256_unpacklo_pd(c, d), _mm256_unpackhi_pd(c, d));
            rows[0] = _mm256_permute2f128_pd::<0x20>(ab, cd);
            rows[1] = _mm256_permute2f128_pd::<0x20>(ba, dc);
            rows[2] = _mm256_permute2f128_pd::<0x31>(ab, cd);
            rows[3] = _mm256_permute2f128_pd::<0x31>(ba, dc);
        }
    }
}

impl Lanes for Eight {
    type F = __m512d;
    type I = __m512i;
    const LANES: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f64) -> __m512d {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_set1_pd(x) }
    }

    #[inline(always)]
    unsafe fn splat_word(x: u64) -> __m512i {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_set1_epi64(x as i64) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u64) -> __m512i {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u64, x: __m512i) {
        // SAFETY: guaranteed by the caller.
        unsafe { _mm512_storeu_si512(to.cast(), x) }
    }

    instructions! {
        as_words(x: F) -> I = _mm512_castpd_si512(x);
        as_numbers(x: I) -> F = _mm512_castsi512_pd(x);
        add(a: F, b: F) -> F = _mm512_add_pd(a, b);
        sub(a: F, b: F) -> F = _mm512_sub_pd(a, b);
        mul(a: F, b: F) -> F = _mm512_mul_pd(a, b);
        mul_add(a: F, b: F, c: F) -> F = _mm512_fmadd_pd(a, b, c);
        mul_sub(a: F, b: F, c: F) -> F = _mm512_fmsub_pd(a, b, c);
        minus_mul_add(a: F, b: F, c: F) -> F = _mm512_fnmadd_pd(a, b, c);
        add_words(a: I, b: I) -> I = _mm512_add_epi64(a, b);
        sub_words(a: I, b: I) -> I = _mm512_sub_epi64(a, b);
        and(a: I, b: I) -> I = _mm512_and_si512(a, b);
        or(a: I, b: I) -> I = _mm512_or_si512(a, b);
        negative(a: I) -> I = _mm512_srai_epi64::<63>(a);
        shift_26(a: I) -> I = _mm512_srli_epi64::<26>(a);
        shift_51(a: I) -> I = _mm512_srli_epi64::<51>(a);
    }

    #[inline(always)]
    unsafe fn transpose(rows: &mut [__m512d; 8]) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let [a, b, c, d, e, f, g, h] = *rows;
            // Columns 0 2 4 6, and 1 3 5 7, of two rows, in lanes of 128 bits.
            let even = [
                _mm512_unpacklo_pd(a, b),
                _mm512_unpacklo_pd(c, d),
                _mm512_unpacklo_pd(e, f),
                _mm512_unpacklo_pd(g, h),
            ];
            let odd = [
                _mm512_unpackhi_pd(a, b),
                _mm512_unpackhi_pd(c, d),
                _mm512_unpackhi_pd(e, f),
                _mm512_unpackhi_pd(g, h),
            ];
            [rows[0], rows[2], rows[4], rows[6]] = columns(even);
            [rows[1], rows[3], rows[5], rows[7]] = columns(odd);
        }
    }
}

/// Four columns of eight rows, from lanes of 128 bits with two rows of a column each.
#[inline(always)]
unsafe fn columns([ab, cd, ef, gh]: [__m512d; 4]) -> [__m512d; 4] {
    // SAFETY: guaranteed by the caller.
    unsafe {
        // Columns 0 and 2 of these, and 1 and 3, of four rows.
        let even = [_mm512_shuffle_f64x2::<0x88>(ab, cd), _mm512_shuffle_f64x2::<0x88>(ef, gh)];
        let odd = [_mm512_shuffle_f64x2::<0xdd>(ab, cd), _mm512_shuffle_f64x2::<0xdd>(ef, gh)];
        [
            _mm512_shuffle_f64x2::<0x88>(even[0], even[1]),
            _mm512_shuffle_f64x2::<0x88>(odd[0], odd[1]),
            _mm512_shuffle_f64x2::<0xdd>(even[0], even[1]),
            _mm512_shuffle_f64x2::<0xdd>(odd[0], odd[1]),
        ]
    }
}
