//! Masks made from secret bits.
//!
//! `(bit & 1).wrapping_neg()` alone does not keep a choice free of branches: the compiler knows that the mask is zero
//! or all ones, and turns a loop that applies one mask to a row into a test of the bit and a jump past the row. Every
//! mask here goes through an optimisation barrier, after which the compiler must treat it as an arbitrary word.

use core::ops::{BitAnd, Not};

/// All zeros or all ones, for a secret bit 0 or 1. No `Debug`, no comparison.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Mask(pub(super) u64);

impl Mask {
    /// All ones if bit 0 of `bit` is set; the other bits are ignored.
    #[inline(always)]
    pub fn from_bit(bit: u64) -> Mask {
        Mask(barrier(bit & 1).wrapping_neg())
    }

    /// All ones if `a == b`, without comparing.
    #[inline(always)]
    pub fn from_eq(a: u64, b: u64) -> Mask {
        let differ = a ^ b;
        // Bit 63 of d | −d is set unless d is zero.
        Mask::from_bit(((differ | differ.wrapping_neg()) >> 63) ^ 1)
    }

    /// One mask per bit of `word`, least significant first. One barrier serves all of them: they pass it in memory, so
    /// that making and using them can still be vectorised.
    #[inline(always)]
    pub fn from_word(word: u64) -> [Mask; 64] {
        let mut masks = Mask::from_public_word(word);
        barrier_of(&mut masks);
        masks
    }

    /// [`Mask::from_bit`] for a public bit, without the barrier.
    #[inline(always)]
    pub fn from_public_bit(bit: u64) -> Mask {
        Mask((bit & 1).wrapping_neg())
    }

    /// [`Mask::from_word`] for public bits, without the barrier.
    #[inline(always)]
    pub fn from_public_word(word: u64) -> [Mask; 64] {
        core::array::from_fn(|i| Mask::from_public_bit(word >> i))
    }

    /// All ones at place `at`, zeros elsewhere, with one barrier as in [`Mask::from_word`].
    #[inline(always)]
    pub fn one_hot<const N: usize>(at: u64) -> [Mask; N] {
        let mut masks: [Mask; N] = core::array::from_fn(|i| {
            let differ = i as u64 ^ at;
            // Below 2^63, so that only zero borrows up to bit 63.
            Mask(((differ & (u64::MAX >> 1)).wrapping_sub(1) >> 63).wrapping_neg())
        });
        barrier_of(&mut masks);
        masks
    }

    /// −x under all ones, x under zeros.
    #[inline(always)]
    pub fn negate(self, x: u64) -> u64 {
        (x ^ self.0).wrapping_sub(self.0)
    }

    /// `on` under all ones, `off` under zeros.
    #[inline(always)]
    pub fn select(self, on: u64, off: u64) -> u64 {
        off ^ ((on ^ off) & self.0)
    }
}

/// The word if the mask is all ones, else zero.
impl BitAnd<Mask> for u64 {
    type Output = u64;
    #[inline(always)]
    fn bitand(self, mask: Mask) -> u64 {
        self & mask.0
    }
}

impl Not for Mask {
    type Output = Mask;
    #[inline(always)]
    fn not(self) -> Mask {
        Mask(!self.0)
    }
}

/// `x`, about which the compiler now knows nothing. `pure` lets it drop or move the barrier, not look through it.
#[inline(always)]
fn barrier(mut x: u64) -> u64 {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
    // SAFETY: no instruction at all.
    unsafe {
        core::arch::asm!("/* {0} */", inout(reg) x, options(pure, nomem, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
    {
        x = core::hint::black_box(x);
    }
    x
}

/// The same for words in memory: the compiler must assume that all of them may have changed.
#[inline(always)]
fn barrier_of<const N: usize>(masks: &mut [Mask; N]) {
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
    // SAFETY: no instruction at all; the pointer only tells the compiler which memory to forget.
    unsafe {
        core::arch::asm!("/* {0} */", in(reg) masks.as_mut_ptr(), options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
    core::hint::black_box(masks);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bits::Block;

    #[test]
    fn masks_are_what_they_are_made_of() {
        for bit in [0, 1, 2, 3, u64::MAX] {
            let mask = Mask::from_bit(bit);
            let set = bit & 1 == 1;
            assert_eq!(7 & mask, if set { 7 } else { 0 });
            assert_eq!(7 & !mask, if set { 0 } else { 7 });
            assert_eq!(mask.negate(5), if set { 5u64.wrapping_neg() } else { 5 });
            assert_eq!(mask.select(3, 9), if set { 3 } else { 9 });
            let block = Block(u128::MAX - 77);
            assert!(block & mask == if set { block } else { Block::ZERO });
        }
    }

    #[test]
    fn equality_at_its_edges() {
        let values = [0, 1, 2, 1 << 63, (1 << 63) - 1, u64::MAX - 1, u64::MAX];
        for a in values {
            for b in values {
                assert_eq!(1 & Mask::from_eq(a, b), u64::from(a == b), "{a} {b}");
            }
        }
    }

    #[test]
    fn one_place_is_hot() {
        for at in 0..20 {
            for (i, mask) in Mask::one_hot::<16>(at).into_iter().enumerate() {
                assert_eq!(1 & mask, u64::from(i as u64 == at));
            }
        }
    }

    #[test]
    fn a_word_gives_its_bits() {
        for word in [0, 1, 1 << 63, 0xdead_beef_0123_4567, u64::MAX] {
            for (i, mask) in Mask::from_word(word).into_iter().enumerate() {
                assert_eq!(1 & mask, (word >> i) & 1);
            }
        }
    }
}
