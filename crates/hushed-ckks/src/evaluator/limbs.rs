//! Loops over limbs, in parallel.

use hushed_math::{Eval, NttTables, RnsPoly};
use rayon::prelude::*;

use crate::ciphertext::Ciphertext;
use crate::encoding::ConstantResidue;

/// The part of a ciphertext that a limb belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    B,
    A,
}

impl Part {
    /// That part of `ct`.
    pub(super) fn of(self, ct: &Ciphertext) -> &RnsPoly<Eval> {
        match self {
            Self::B => &ct.b,
            Self::A => &ct.a,
        }
    }
}

/// Calls `f` with each limb of `poly`, its index and the transform of its prime. Ciphertexts are over prefixes, so limb
/// j is prime j.
pub(super) fn each(poly: &mut RnsPoly<Eval>, f: impl Fn(usize, &NttTables, &mut [u64]) + Sync) {
    let basis = poly.basis().clone();
    let limbs: Vec<_> = poly.limbs_mut().collect();
    limbs.into_par_iter().for_each(|(id, limb)| f(id, basis.ntt(id), limb));
}

/// Calls `f` with each limb of both parts.
pub(super) fn each_part(ct: &mut Ciphertext, f: impl Fn(Part, usize, &NttTables, &mut [u64]) + Sync) {
    let basis = ct.basis().clone();
    let b = ct.b.limbs_mut().map(|(id, limb)| (Part::B, id, limb));
    let a = ct.a.limbs_mut().map(|(id, limb)| (Part::A, id, limb));
    let limbs: Vec<_> = b.chain(a).collect();
    limbs.into_par_iter().for_each(|(part, id, limb)| f(part, id, basis.ntt(id), limb));
}

/// A ciphertext of `limbs` primes like `ct`, whose residues are yet to be written.
pub(super) fn blank(ct: &Ciphertext, limbs: usize) -> Ciphertext {
    let ids: Vec<usize> = (0..limbs).collect();
    Ciphertext {
        b: RnsPoly::scratch(ct.basis(), &ids),
        a: RnsPoly::scratch(ct.basis(), &ids),
        scale: ct.scale,
        noise: ct.noise,
    }
}

/// Drops all primes but the first `limbs`, in place.
pub(super) fn truncate(ct: &mut Ciphertext, limbs: usize) {
    if limbs == ct.limbs() {
        return;
    }
    for part in [&mut ct.b, &mut ct.a] {
        let stand_in = RnsPoly::scratch(part.basis(), &[0]);
        *part = std::mem::replace(part, stand_in).truncate_limbs(limbs);
    }
}

/// acc ← acc + constant·from, one residue per half-limb.
pub(super) fn add_multiple(ntt: &NttTables, acc: &mut [u64], from: &[u64], c: ConstantResidue) {
    let half = acc.len() / 2;
    let (first, second) = acc.split_at_mut(half);
    ntt.pointwise().mul_scalar_add_assign(first, &from[..half], c.first);
    ntt.pointwise().mul_scalar_add_assign(second, &from[half..], c.second);
}

/// acc ← acc + Σ constant·from, as [`add_multiple`] of each.
pub(super) fn add_combination(ntt: &NttTables, acc: &mut [u64], from: &[&[u64]], constants: &[ConstantResidue]) {
    if let ([from], [c]) = (from, constants) {
        return add_multiple(ntt, acc, from, *c);
    }
    let half = acc.len() / 2;
    let (first, second) = acc.split_at_mut(half);
    let (low, high): (Vec<_>, Vec<_>) = from.iter().map(|x| x.split_at(half)).unzip();
    let (by_first, by_second): (Vec<_>, Vec<_>) = constants.iter().map(|c| (c.first, c.second)).unzip();
    ntt.pointwise().dot_scalars_assign(first, &low, &by_first);
    ntt.pointwise().dot_scalars_assign(second, &high, &by_second);
}
