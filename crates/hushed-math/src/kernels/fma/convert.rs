//! Change of residue number system: the sums, which are most of its time. Terms and quotients are those of the portable kernel.

use super::lanes::Lanes;
use super::{Constants, Registers, TOGETHER, centred, kernel};
use crate::cpu::HaveFma;
use crate::kernels::convert::{self, Plan};

/// Registers of one target whose sums are kept together.
const GROUP: usize = 4;

/// As [`crate::kernels::convert::combine`].
pub(crate) fn combine(have: HaveFma, plan: &Plan, terms: &[&[u64]], out: &mut [&mut [u64]]) {
    let length = terms[0].len();
    let whole = length - length % (GROUP * have.lanes());
    for (target, out) in plan.targets.iter().zip(out.iter_mut()) {
        let c = Constants::new(&target.modulus);
        let factors = target.factors.iter().map(|&w| centred(&target.modulus, w));
        combine_one(
            have,
            &c,
            &factors.collect::<Vec<_>>(),
            terms,
            &mut out[..whole],
        );
    }
    if whole < length {
        let terms: Vec<&[u64]> = terms.iter().map(|x| &x[whole..]).collect();
        let mut out: Vec<&mut [u64]> = out.iter_mut().map(|out| &mut out[whole..]).collect();
        convert::combine(plan, &terms, &mut out);
    }
}

kernel! {
    /// Σ terms·factors for one target.
    fn combine_one(c: &Constants, factors: &[f64], terms: &[&[u64]], out: &mut [u64]) = combine_body
}

#[inline(always)]
unsafe fn combine_body<L: Lanes>(
    c: &Constants,
    factors: &[f64],
    terms: &[&[u64]],
    out: &mut [u64],
) {
    assert!(out.len().is_multiple_of(GROUP * L::LANES), "whole groups");
    assert!(terms.len() == factors.len() && terms.iter().all(|x| x.len() >= out.len()));
    // SAFETY: the caller's; every access is within slices of that length at least.
    unsafe {
        let r = Registers::<L>::new(c);
        for at in (0..out.len()).step_by(GROUP * L::LANES) {
            let mut sums = [L::splat(0.0); GROUP];
            for (i, (terms, &factor)) in terms.iter().zip(factors).enumerate() {
                let factor = r.factor(L::splat(factor));
                for (g, sum) in sums.iter_mut().enumerate() {
                    // Below 2^50, of another modulus: as a factor's multiplicand it may be.
                    let term = r.load(terms.as_ptr().add(at + g * L::LANES));
                    *sum = L::add(*sum, r.times(term, factor));
                }
                if i % TOGETHER == TOGETHER - 1 {
                    for sum in &mut sums {
                        *sum = r.reduce(*sum);
                    }
                }
            }
            for (g, &sum) in sums.iter().enumerate() {
                L::store(out.as_mut_ptr().add(at + g * L::LANES), r.reduced_word(sum));
            }
        }
    }
}
