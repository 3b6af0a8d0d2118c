//! The tile of [`crate::kernels::points`] on numbers, with the two sums of words of `gemm.rs`.

use super::gemm::{Finish, Sums};
use super::lanes::Lanes;
use super::registers::kernel;
use crate::kernels::points::{self, GROUP, LEFT, RIGHT, TERMS};
use crate::machine::cpu::HaveFma;
use crate::modulus::Modulus;

/// sums += left·right.
pub(crate) fn points(have: HaveFma, modulus: &Modulus, left: &[u64], right: &[u64], sums: &mut points::Sums) {
    let terms = left.len() / (LEFT * GROUP);
    assert!(terms <= TERMS && left.len() == terms * LEFT * GROUP);
    assert_eq!(right.len(), terms * RIGHT * GROUP);
    tile(have, &Finish::full(modulus), left, right, sums);
}

kernel! {
    /// Two panels of one length.
    fn tile(c: &Finish, left: &[u64], right: &[u64], sums: &mut points::Sums) = tile_body
}

/// # Safety
/// The processor has the instruction set of `L`; both panels have the same number of terms.
#[inline(always)]
unsafe fn tile_body<L: Lanes>(c: &Finish, left: &[u64], right: &[u64], sums: &mut points::Sums) {
    for at in (0..GROUP).step_by(L::LANES) {
        // Six sums, or twelve where there are 32 registers.
        // SAFETY: guaranteed by the caller.
        unsafe {
            match L::LANES {
                8 => {
                    lines::<L, 2>(c, left, right, sums, 0, at);
                    lines::<L, 2>(c, left, right, sums, 2, at);
                }
                _ => (0..LEFT).for_each(|l| lines::<L, 1>(c, left, right, sums, l, at)),
            }
        }
    }
}

/// Left lines `first .. first + R` times all right lines, for a register of points from `at` on.
///
/// # Safety
/// As [`tile_body`].
#[inline(always)]
unsafe fn lines<L: Lanes, const R: usize>(
    c: &Finish,
    left: &[u64],
    right: &[u64],
    out: &mut points::Sums,
    first: usize,
    at: usize,
) {
    let terms = left.len() / (LEFT * GROUP);
    // SAFETY: guaranteed by the caller.
    unsafe {
        let all = &Sums::<L>::new(c);
        let number = |p: *const u64| L::as_numbers(L::load(p));
        let mut sums = [[[L::splat_word(0); 2]; RIGHT]; R];
        for i in 0..terms {
            let left = left.as_ptr().add((i * LEFT + first) * GROUP + at);
            let right = right.as_ptr().add(i * RIGHT * GROUP + at);
            let r: [L::F; RIGHT] = std::array::from_fn(|j| number(right.add(j * GROUP)));
            for (l, sums) in sums.iter_mut().enumerate() {
                let x = number(left.add(l * GROUP));
                for (sums, &w) in sums.iter_mut().zip(&r) {
                    all.add(sums, x, w);
                }
            }
        }
        let out = out.iter_mut().skip(first * RIGHT);
        for (&sums, out) in sums.iter().flatten().zip(out) {
            all.finish(sums, terms, out.as_mut_ptr().add(at));
        }
    }
}
