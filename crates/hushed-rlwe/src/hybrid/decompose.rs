//! The digits of a polynomial modulo all primes of the extended modulus, which rotations of one ciphertext share.

use hushed_math::{Coeff, Eval, RnsPoly};
use rayon::prelude::*;

use super::gadget::Gadget;
use super::raise::Raised;
use crate::error::RlweError;
use crate::message::check_limbs;
use crate::params::RlweParams;

/// The digits of one polynomial.
pub struct Decomposed {
    pub(super) gadget: Gadget,
    pub(super) limbs: usize,
    /// Digit i modulo the `limbs` primes, then modulo the gadget's special ones.
    pub(super) digits: Vec<RnsPoly<Eval>>,
}

impl Decomposed {
    /// Ciphertext primes of the polynomial.
    pub fn limbs(&self) -> usize {
        self.limbs
    }

    /// Limb `j` of each digit.
    ///
    /// # Panics
    /// If there is no such limb.
    pub fn limb(&self, j: usize) -> Vec<&[u64]> {
        self.digits.iter().map(|digit| digit.limb(j)).collect()
    }

    /// The gadget of the keys that can be applied to it.
    pub fn gadget(&self) -> &Gadget {
        &self.gadget
    }
}

/// Decomposes `a`, a polynomial over a prefix of the ciphertext primes that is no longer than the gadget.
///
/// # Errors
/// [`RlweError::LimbCount`], [`RlweError::Limbs`], [`RlweError::IncompatibleParameters`].
pub fn decompose(params: &RlweParams, gadget: &Gadget, a: &RnsPoly<Eval>) -> Result<Decomposed, RlweError> {
    let raised = Raised::new(params, gadget, a)?;
    let limbs = a.ids().len();
    let ids = params.extended_ids_with(limbs, gadget.special());
    let scratch = |_| RnsPoly::scratch(params.basis(), &ids);
    let mut digits: Vec<RnsPoly<Eval>> = raised.ranges().iter().map(scratch).collect();
    let mut rows: Vec<_> = digits.iter_mut().map(RnsPoly::limbs_mut).collect();
    let [_, special] = raised.tiles();
    let work: Vec<(usize, Vec<Vec<&mut [u64]>>)> = (0..special.end)
        .map(|tile| {
            let count = raised.ids(tile).len();
            let limbs = rows.iter_mut().map(|row| row.by_ref().take(count).map(|(_, limb)| limb).collect());
            (tile, limbs.collect())
        })
        .collect();
    drop(rows);
    work.into_par_iter().for_each(|(tile, mut limbs)| {
        raised.write(tile, &mut limbs);
        // Modulo its own primes a digit is `a` itself.
        for (range, limbs) in raised.ranges().iter().zip(&mut limbs) {
            for (id, limb) in raised.ids(tile).iter().zip(limbs) {
                if range.contains(id) {
                    limb.copy_from_slice(a.limb(*id));
                }
            }
        }
    });
    Ok(Decomposed { gadget: gadget.clone(), limbs, digits })
}

/// ModRaise: takes `low`, residues of coefficients modulo q_0, as integers in (−q_0/2, q_0/2), to `limbs` ciphertext
/// primes and the special ones of a raised gadget. The result has a single digit.
///
/// # Errors
/// [`RlweError::GadgetMismatch`] if the gadget is not raised; [`RlweError::LimbCount`], [`RlweError::Limbs`],
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
        return Err(RlweError::LimbCount { given: limbs, available: gadget.limbs() });
    }
    check_limbs(params, low, 1)?;
    let basis = params.basis();
    let ids = params.extended_ids_with(limbs, gadget.special());
    let mut digit = RnsPoly::scratch(basis, &ids);
    let work: Vec<_> = digit.limbs_mut().collect();
    work.into_par_iter().for_each(|(id, limb)| {
        let ntt = basis.ntt(id);
        ntt.pointwise().lift_centred(limb, low.limb(0), basis.modulus(0));
        ntt.forward(limb);
    });
    Ok(Decomposed { gadget: gadget.clone(), limbs, digits: vec![digit] })
}
