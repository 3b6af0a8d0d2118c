//! Digits of a polynomial under all primes of the extended modulus: what rotations of one ciphertext share.

use hushed_math::{Coeff, Eval, RnsPoly};
use rayon::prelude::*;

use super::gadget::Gadget;
use crate::error::RlweError;
use crate::message::check_limbs;
use crate::params::RlweParams;

/// The digits of one polynomial.
pub struct Decomposed {
    pub(super) gadget: Gadget,
    pub(super) limbs: usize,
    /// Digit i over the `limbs` primes, then the special ones of the gadget.
    pub(super) digits: Vec<RnsPoly<Eval>>,
}

impl Decomposed {
    /// Ciphertext primes of the polynomial.
    pub fn limbs(&self) -> usize {
        self.limbs
    }

    /// The gadget of the keys that it can be multiplied by.
    pub fn gadget(&self) -> &Gadget {
        &self.gadget
    }
}

/// The digits of `a`, a polynomial over a prefix of the ciphertext primes that is no longer than the gadget.
///
/// # Errors
/// [`RlweError::LimbCount`], [`RlweError::Limbs`], [`RlweError::IncompatibleParameters`].
pub fn decompose(
    params: &RlweParams,
    gadget: &Gadget,
    a: &RnsPoly<Eval>,
) -> Result<Decomposed, RlweError> {
    let limbs = a.ids().len();
    if limbs > gadget.limbs() {
        return Err(RlweError::LimbCount {
            given: limbs,
            available: gadget.limbs(),
        });
    }
    check_limbs(params, a, limbs)?;
    if gadget.is_raised() {
        return Err(RlweError::GadgetMismatch);
    }
    let basis = params.basis();
    let coefficients = inverse(a);
    let ids = params.extended_ids_with(limbs, gadget.special());
    let ranges: Vec<_> = gadget.digits_for(limbs).collect();
    let mut digits: Vec<RnsPoly<Eval>> = ranges
        .iter()
        .map(|_| RnsPoly::scratch(basis, &ids))
        .collect();
    let lifts: Vec<_> = ranges
        .iter()
        .map(|range| params.tables().up(params, range, limbs, gadget.special()))
        .collect::<Result<_, _>>()?;

    let (mut own, mut tiles) = (Vec::new(), Vec::new());
    for ((range, lift), digit) in ranges.iter().zip(&lifts).zip(&mut digits) {
        let (inside, mut outside): (Vec<_>, Vec<_>) =
            digit.limbs_mut().partition(|(id, _)| range.contains(id));
        own.extend(inside);
        for (ids, converter) in &lift.tiles {
            let targets: Vec<&mut [u64]> =
                outside.drain(..ids.len()).map(|(_, limb)| limb).collect();
            tiles.push((range, ids, converter, targets));
        }
    }
    // Under its own primes a digit is `a` itself.
    own.into_par_iter()
        .for_each(|(id, limb)| limb.copy_from_slice(a.limb(id)));
    tiles
        .into_par_iter()
        .for_each(|(range, ids, converter, mut targets)| {
            let sources: Vec<&[u64]> = range.clone().map(|j| coefficients.limb(j)).collect();
            converter.convert(&sources, &mut targets);
            for (&id, limb) in ids.iter().zip(targets) {
                basis.plan(id).forward(limb);
            }
        });
    Ok(Decomposed {
        gadget: gadget.clone(),
        limbs,
        digits,
    })
}

/// `low`, residues modulo q_0 of coefficients, as the integers of (−q_0/2, q_0/2), under `limbs` ciphertext primes and the
/// special ones of a raised gadget: ModRaise, and the only digit of the result.
///
/// # Errors
/// [`RlweError::GadgetMismatch`] for another gadget; [`RlweError::LimbCount`], [`RlweError::Limbs`],
/// [`RlweError::IncompatibleParameters`].
pub fn decompose_raised(
    params: &RlweParams,
    gadget: &Gadget,
    low: &RnsPoly<Coeff>,
    limbs: usize,
) -> Result<Decomposed, RlweError> {
    if !gadget.is_raised() {
        return Err(RlweError::GadgetMismatch);
    }
    if limbs == 0 || limbs > gadget.limbs() {
        return Err(RlweError::LimbCount {
            given: limbs,
            available: gadget.limbs(),
        });
    }
    check_limbs(params, low, 1)?;
    let basis = params.basis();
    let ids = params.extended_ids_with(limbs, gadget.special());
    let mut digit = RnsPoly::scratch(basis, &ids);
    let work: Vec<_> = digit.limbs_mut().collect();
    work.into_par_iter().for_each(|(id, limb)| {
        let plan = basis.plan(id);
        plan.pointwise()
            .lift_centred(limb, low.limb(0), basis.modulus(0));
        plan.forward(limb);
    });
    Ok(Decomposed {
        gadget: gadget.clone(),
        limbs,
        digits: vec![digit],
    })
}

/// Coefficients, limb by limb in parallel.
pub(super) fn inverse(poly: &RnsPoly<Eval>) -> RnsPoly<Coeff> {
    let mut out = RnsPoly::scratch(poly.basis(), poly.ids());
    let limbs: Vec<_> = out.limbs_mut().zip(poly.limbs()).collect();
    limbs.into_par_iter().for_each(|((id, out), (_, from))| {
        out.copy_from_slice(from);
        poly.basis().plan(id).inverse(out);
    });
    out
}
