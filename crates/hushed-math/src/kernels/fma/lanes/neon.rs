//! Pairs of registers of 128 bits: four lanes, as AVX2 has, so that everything is laid out as there. Of 32 registers
//! there are as many pairs as AVX2 has registers.

use super::{Lanes, instructions};
use std::arch::aarch64::*;

/// NEON, which every processor of this architecture has.
#[derive(Clone, Copy)]
pub(in super::super) struct Four;

impl Lanes for Four {
    type F = [float64x2_t; 2];
    type I = [uint64x2_t; 2];
    const LANES: usize = 4;

    #[inline(always)]
    unsafe fn splat(x: f64) -> Self::F {
        // SAFETY: guaranteed by the caller.
        unsafe { [vdupq_n_f64(x); 2] }
    }

    #[inline(always)]
    unsafe fn splat_word(x: u64) -> Self::I {
        // SAFETY: guaranteed by the caller.
        unsafe { [vdupq_n_u64(x); 2] }
    }

    #[inline(always)]
    unsafe fn load(from: *const u64) -> Self::I {
        // SAFETY: guaranteed by the caller.
        unsafe { [vld1q_u64(from), vld1q_u64(from.add(2))] }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u64, [low, high]: Self::I) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            vst1q_u64(to, low);
            vst1q_u64(to.add(2), high);
        }
    }

    instructions! {
        as_words(x: F) -> I = [vreinterpretq_u64_f64(x[0]), vreinterpretq_u64_f64(x[1])];
        as_numbers(x: I) -> F = [vreinterpretq_f64_u64(x[0]), vreinterpretq_f64_u64(x[1])];
        add(a: F, b: F) -> F = [vaddq_f64(a[0], b[0]), vaddq_f64(a[1], b[1])];
        sub(a: F, b: F) -> F = [vsubq_f64(a[0], b[0]), vsubq_f64(a[1], b[1])];
        mul(a: F, b: F) -> F = [vmulq_f64(a[0], b[0]), vmulq_f64(a[1], b[1])];
        mul_add(a: F, b: F, c: F) -> F = [vfmaq_f64(c[0], a[0], b[0]), vfmaq_f64(c[1], a[1], b[1])];
        // Not c − a·b negated, which makes −0 of a zero.
        mul_sub(a: F, b: F, c: F) -> F = [
            vfmaq_f64(vnegq_f64(c[0]), a[0], b[0]),
            vfmaq_f64(vnegq_f64(c[1]), a[1], b[1]),
        ];
        minus_mul_add(a: F, b: F, c: F) -> F = [vfmsq_f64(c[0], a[0], b[0]), vfmsq_f64(c[1], a[1], b[1])];
        add_words(a: I, b: I) -> I = [vaddq_u64(a[0], b[0]), vaddq_u64(a[1], b[1])];
        sub_words(a: I, b: I) -> I = [vsubq_u64(a[0], b[0]), vsubq_u64(a[1], b[1])];
        and(a: I, b: I) -> I = [vandq_u64(a[0], b[0]), vandq_u64(a[1], b[1])];
        or(a: I, b: I) -> I = [vorrq_u64(a[0], b[0]), vorrq_u64(a[1], b[1])];
        negative(a: I) -> I = [vcltzq_s64(vreinterpretq_s64_u64(a[0])), vcltzq_s64(vreinterpretq_s64_u64(a[1]))];
        shift_26(a: I) -> I = [vshrq_n_u64::<26>(a[0]), vshrq_n_u64::<26>(a[1])];
        shift_51(a: I) -> I = [vshrq_n_u64::<51>(a[0]), vshrq_n_u64::<51>(a[1])];
    }

    #[inline(always)]
    unsafe fn transpose(rows: &mut [Self::F; 8]) {
        let [a, b, c, d, ..] = *rows;
        // SAFETY: guaranteed by the caller.
        unsafe {
            rows[0] = [vzip1q_f64(a[0], b[0]), vzip1q_f64(c[0], d[0])];
            rows[1] = [vzip2q_f64(a[0], b[0]), vzip2q_f64(c[0], d[0])];
            rows[2] = [vzip1q_f64(a[1], b[1]), vzip1q_f64(c[1], d[1])];
            rows[3] = [vzip2q_f64(a[1], b[1]), vzip2q_f64(c[1], d[1])];
        }
    }
}
