//! Arithmetic of residues in registers, by floating-point multiply-adds.
//!
//! Residues below 2^50 are integers that a double holds exactly, and a fused multiply-add rounds once. So the product
//! of two of them is exact as h + l, h = RN(x·y), l = x·y − h by one fused multiply-subtract; and with c = ⌊h/q⌉ the
//! remainder
//!
//! ```text
//! x·y − c·q = (h − c·q) + l
//! ```
//!
//! is free of rounding: h − c·q is a small integer, hence exact (van der Hoeven, Lecerf and Quintin 2016, §3; the
//! number theoretic transforms of FLINT are built on it). It takes six operations. The estimate of c is off by one
//! half, for the rounding, plus x·y/q·2^−52, as 1/q and h are each rounded once: for |x·y| ≤ 2^50·q the remainder is
//! below 3/4·q in size, never q.
//!
//! Rounding to an integer adds and subtracts 1.5·2^52, which is right for numbers up to 2^51. So a constant factor w,
//! taken from (−q/2, q/2), may be multiplied by anything up to 4q ≤ 2^52; the remainder for |x| ≤ Y·q is below (1/2 +
//! Y/8)·q.
//!
//! Every result is brought to [0, q) before it is stored as an integer, so that all kernels store the same words. No
//! branch and no index depends on a residue, and no number is denormal, infinite or NaN, so the time of these
//! instructions does not depend on their arguments.

use super::lanes::Lanes;
use crate::modulus::Modulus;

/// 1.5·2^52: a 52-bit integer, sign included, becomes its last bits when added to it.
pub(super) const ROUND: f64 = 6_755_399_441_055_744.0;

/// 2^52: the same for 52-bit integers without a sign.
pub(super) const INTEGER: f64 = 4_503_599_627_370_496.0;

/// Remainders, each below 3/4·q, that are added to a residue before the sum is reduced: below 7q < 2^53, exact.
pub(super) const TOGETHER: usize = 8;

/// Scalars of one modulus.
#[derive(Clone, Copy)]
pub(super) struct Constants {
    pub(super) q: u64,
    /// 1/q.
    pub(super) inverse: f64,
}

impl Constants {
    pub(super) fn new(modulus: &Modulus) -> Constants {
        Constants { q: modulus.value(), inverse: 1.0 / modulus.value() as f64 }
    }
}

/// w as a number in (−q/2, q/2).
pub(super) fn centred(modulus: &Modulus, w: u64) -> f64 {
    modulus.centre(w) as f64
}

/// The constants in registers.
#[derive(Clone, Copy)]
pub(super) struct Registers<L: Lanes> {
    pub(super) q: L::F,
    pub(super) inverse: L::F,
    pub(super) round: L::F,
    pub(super) integer: L::F,
    pub(super) q_word: L::I,
}

impl<L: Lanes> Registers<L> {
    /// # Safety
    /// The processor has the instruction set of `L`, as for all that follows.
    #[inline(always)]
    pub(super) unsafe fn new(c: &Constants) -> Self {
        // SAFETY: guaranteed by the caller.
        unsafe {
            Registers {
                q: L::splat(c.q as f64),
                inverse: L::splat(c.inverse),
                round: L::splat(ROUND),
                integer: L::splat(INTEGER),
                q_word: L::splat_word(c.q),
            }
        }
    }

    /// Words below 2^52 as numbers.
    #[inline(always)]
    pub(super) unsafe fn number(&self, x: L::I) -> L::F {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let word = L::or(x, L::as_words(self.integer));
            L::sub(L::as_numbers(word), self.integer)
        }
    }

    /// Signed words below 2^51 in size as numbers.
    #[inline(always)]
    pub(super) unsafe fn signed_number(&self, x: L::I) -> L::F {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let word = L::add_words(x, L::as_words(self.round));
            L::sub(L::as_numbers(word), self.round)
        }
    }

    /// Words from memory as numbers.
    #[inline(always)]
    pub(super) unsafe fn load(&self, from: *const u64) -> L::F {
        // SAFETY: guaranteed by the caller.
        unsafe { self.number(L::load(from)) }
    }

    /// Integers in (−q, q) as words in [0, q).
    #[inline(always)]
    pub(super) unsafe fn word(&self, x: L::F) -> L::I {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let bits = L::as_words(L::add(x, self.round));
            self.lift(L::sub_words(bits, L::as_words(self.round)))
        }
    }

    /// Brings integers in (−q, q) to [0, q). A remainder of zero is +0.
    #[inline(always)]
    pub(super) unsafe fn positive(&self, x: L::F) -> L::F {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let q = L::and(L::negative(L::as_words(x)), L::as_words(self.q));
            L::add(x, L::as_numbers(q))
        }
    }

    /// x + q where x < 0.
    #[inline(always)]
    pub(super) unsafe fn lift(&self, x: L::I) -> L::I {
        // SAFETY: guaranteed by the caller.
        unsafe { L::add_words(x, L::and(L::negative(x), self.q_word)) }
    }

    /// Integers of any size below 2^53, up to 2^51·q, as words in [0, q).
    #[inline(always)]
    pub(super) unsafe fn reduced_word(&self, x: L::F) -> L::I {
        // SAFETY: guaranteed by the caller.
        unsafe { self.word(self.reduce(x)) }
    }

    /// x − ⌊x/q⌉·q, in size below (1/2 + 2^−49)·q for |x| < 2^53.
    #[inline(always)]
    pub(super) unsafe fn reduce(&self, x: L::F) -> L::F {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let c = L::sub(L::mul_add(x, self.inverse, self.round), self.round);
            L::minus_mul_add(c, self.q, x)
        }
    }

    /// x·y minus a multiple of q, for |x·y| ≤ 2^50·q: below 3/4·q in size.
    #[inline(always)]
    pub(super) unsafe fn mul(&self, x: L::F, y: L::F) -> L::F {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let high = L::mul(x, y);
            let low = L::mul_sub(x, y, high);
            let c = L::sub(L::mul_add(high, self.inverse, self.round), self.round);
            L::add(L::minus_mul_add(c, self.q, high), low)
        }
    }

    /// w and w/q, for [`Registers::times`].
    #[inline(always)]
    pub(super) unsafe fn factor(&self, w: L::F) -> [L::F; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe { [w, L::mul(w, self.inverse)] }
    }

    /// As [`Registers::mul`], by a constant: the quotient does not have to wait for the product.
    #[inline(always)]
    pub(super) unsafe fn times(&self, x: L::F, [w, ratio]: [L::F; 2]) -> L::F {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let high = L::mul(x, w);
            let low = L::mul_sub(x, w, high);
            let c = L::sub(L::mul_add(x, ratio, self.round), self.round);
            L::add(L::minus_mul_add(c, self.q, high), low)
        }
    }
}

/// One function for each instruction set, with one generic body, and the choice between them.
macro_rules! kernel {
    ($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) = $body:ident $(::<$flag:ident>)?) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "what the body takes")]
        #[cfg(target_arch = "aarch64")]
        fn $name $(<const $flag: bool>)? (_: crate::machine::cpu::HaveFma, $($argument: $type),*) {
            // SAFETY: every processor of this architecture has the instructions.
            unsafe { $body::<super::lanes::Four $(, $flag)?>($($argument),*) }
        }

        $(#[$meta])*
        #[allow(clippy::too_many_arguments, reason = "what the body takes")]
        #[cfg(target_arch = "x86_64")]
        fn $name $(<const $flag: bool>)? (have: crate::machine::cpu::HaveFma, $($argument: $type),*) {
            #[target_feature(enable = "avx2,fma")]
            #[allow(clippy::too_many_arguments, reason = "what the body takes")]
            fn four $(<const $flag: bool>)? ($($argument: $type),*) {
                // SAFETY: the instruction set is enabled here.
                unsafe { $body::<super::lanes::Four $(, $flag)?>($($argument),*) }
            }
            #[target_feature(enable = "avx2,fma,avx512f,avx512dq")]
            #[allow(clippy::too_many_arguments, reason = "what the body takes")]
            fn eight $(<const $flag: bool>)? ($($argument: $type),*) {
                // SAFETY: the instruction set is enabled here.
                unsafe { $body::<super::lanes::Eight $(, $flag)?>($($argument),*) }
            }
            if have.wide() {
                // SAFETY: the token proves the instruction set.
                unsafe { eight $(::<$flag>)? ($($argument),*) }
            } else {
                // SAFETY: the token proves the instruction set.
                unsafe { four $(::<$flag>)? ($($argument),*) }
            }
        }
    };
}
pub(super) use kernel;
