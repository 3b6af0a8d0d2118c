//! Inner products of digits with keys, division by the special primes, and what is made of the two.

use hushed_math::{Coeff, Eval, RnsPoly};
use rayon::prelude::*;

use super::decompose::{Decomposed, decompose};
use super::key::SwitchKey;
use super::plan::KeyUse;
use crate::error::RlweError;
use crate::message::check_limbs;
use crate::params::RlweParams;

/// Both parts of a ciphertext modulo Q·P, its phase P times the message.
#[derive(Clone)]
pub struct Extended {
    /// Number of special primes, which are the last limbs.
    pub special: usize,
    /// The masked message.
    pub b: RnsPoly<Eval>,
    /// The uniform part.
    pub a: RnsPoly<Eval>,
}

impl Extended {
    /// Zero, over the first `limbs` ciphertext primes and the first `special` special ones.
    pub fn zero(params: &RlweParams, limbs: usize, special: usize) -> Self {
        let ids = params.extended_ids_with(limbs, special);
        Self {
            special,
            b: RnsPoly::zero(params.basis(), &ids),
            a: RnsPoly::zero(params.basis(), &ids),
        }
    }

    /// Number of ciphertext primes.
    pub fn limbs(&self) -> usize {
        self.b.ids().len() - self.special
    }

    /// Divides both parts by P, with rounding: (b, a) modulo Q.
    ///
    /// # Errors
    /// As [`mod_down`].
    pub fn mod_down(
        self,
        params: &RlweParams,
    ) -> Result<(RnsPoly<Eval>, RnsPoly<Eval>), RlweError> {
        Ok((
            mod_down(params, self.b, self.special)?,
            mod_down(params, self.a, self.special)?,
        ))
    }

    /// Divides both parts by P and the last ciphertext prime, with rounding.
    ///
    /// # Errors
    /// As [`mod_down_rescale`].
    pub fn mod_down_rescale(
        self,
        params: &RlweParams,
    ) -> Result<(RnsPoly<Eval>, RnsPoly<Eval>), RlweError> {
        Ok((
            mod_down_rescale(params, self.b, self.special)?,
            mod_down_rescale(params, self.a, self.special)?,
        ))
    }
}

/// Σ_i d_i·(b_i, a_i) for the digits of one polynomial, over its primes and the special ones of the gadget.
///
/// # Errors
/// [`RlweError::GadgetMismatch`] if the digits are those of another gadget, [`RlweError::IncompatibleParameters`].
pub fn inner_product(digits: &Decomposed, key: &SwitchKey) -> Result<Extended, RlweError> {
    let mut products = inner_product_many(&[digits], key)?;
    products.pop().ok_or(RlweError::Count {
        given: 0,
        expected: 1,
    })
}

/// Inner products of several polynomials of equal length with one key, whose uniform half is expanded once for all.
///
/// # Errors
/// As [`inner_product`]; [`RlweError::LimbCount`] if lengths differ.
pub fn inner_product_many(
    many: &[&Decomposed],
    key: &SwitchKey,
) -> Result<Vec<Extended>, RlweError> {
    let Some(first) = many.first() else {
        return Ok(Vec::new());
    };
    for digits in many {
        if digits.gadget != *key.gadget() {
            return Err(RlweError::GadgetMismatch);
        }
        if digits.limbs != first.limbs {
            return Err(RlweError::LimbCount {
                given: digits.limbs,
                available: first.limbs,
            });
        }
    }
    let params = key.params();
    let (limbs, special) = (first.limbs, key.gadget().special());
    let ids = params.extended_ids_with(limbs, special);
    if first
        .digits
        .iter()
        .any(|d| d.ids() != ids || !std::ptr::eq(d.basis().as_ref(), params.basis().as_ref()))
    {
        return Err(RlweError::IncompatibleParameters);
    }
    let mut sums: Vec<Extended> = many
        .iter()
        .map(|_| Extended {
            special,
            b: RnsPoly::scratch(params.basis(), &ids),
            a: RnsPoly::scratch(params.basis(), &ids),
        })
        .collect();
    // Transposed: for each prime, both limbs of each product.
    let mut by_limb: Vec<Vec<[&mut [u64]; 2]>> = ids.iter().map(|_| Vec::new()).collect();
    for sum in &mut sums {
        let pairs = sum.b.limbs_mut().zip(sum.a.limbs_mut());
        for (limb, ((_, b), (_, a))) in by_limb.iter_mut().zip(pairs) {
            limb.push([b, a]);
        }
    }
    by_limb
        .into_par_iter()
        .enumerate()
        .for_each(|(j, mut sums)| key.multiply_limb(many, j, &mut sums));
    Ok(sums)
}

/// ⌊poly / P⌉ for P the first `special` special primes, `poly` over a prefix of the ciphertext primes and those.
///
/// # Errors
/// [`RlweError::Limbs`], [`RlweError::IncompatibleParameters`].
pub fn mod_down(
    params: &RlweParams,
    poly: RnsPoly<Eval>,
    special: usize,
) -> Result<RnsPoly<Eval>, RlweError> {
    divide(params, &poly, special, 0)
}

/// ⌊poly / (P·q)⌉ for q the last ciphertext prime of `poly`: a key switch and a rescaling in one division.
///
/// # Errors
/// [`RlweError::Limbs`], [`RlweError::IncompatibleParameters`], [`RlweError::LimbCount`] if there is but one ciphertext prime.
pub fn mod_down_rescale(
    params: &RlweParams,
    poly: RnsPoly<Eval>,
    special: usize,
) -> Result<RnsPoly<Eval>, RlweError> {
    divide(params, &poly, special, 1)
}

fn divide(
    params: &RlweParams,
    poly: &RnsPoly<Eval>,
    special: usize,
    rescaled: usize,
) -> Result<RnsPoly<Eval>, RlweError> {
    let limbs = poly.ids().len().saturating_sub(special);
    if limbs <= rescaled || special > params.p_len() {
        return Err(RlweError::LimbCount {
            given: limbs,
            available: params.q_len(),
        });
    }
    let expected = params.extended_ids_with(limbs, special);
    if poly.ids() != expected {
        return Err(RlweError::Limbs {
            given: poly.ids().to_vec(),
            expected,
        });
    }
    let basis = params.basis();
    if !std::sync::Arc::ptr_eq(poly.basis(), basis) {
        return Err(RlweError::IncompatibleParameters);
    }
    let stay = limbs - rescaled;
    let down = params.tables().down(params, limbs, special, rescaled)?;
    let mut dropped: RnsPoly<Coeff> = RnsPoly::scratch(basis, &expected[stay..]);
    let work: Vec<_> = dropped.limbs_mut().enumerate().collect();
    work.into_par_iter().for_each(|(k, (id, limb))| {
        limb.copy_from_slice(poly.limb(stay + k));
        basis.plan(id).inverse(limb);
    });
    let sources: Vec<&[u64]> = dropped.limbs().map(|(_, limb)| limb).collect();
    let mut out: RnsPoly<Eval> = RnsPoly::scratch(basis, &expected[..stay]);
    let mut limbs = out.limbs_mut();
    let tiles: Vec<(&_, Vec<_>)> = down
        .lift
        .tiles
        .iter()
        .map(|(ids, converter)| (converter, limbs.by_ref().take(ids.len()).collect()))
        .collect();
    drop(limbs);
    tiles.into_par_iter().for_each(|(converter, mut tile)| {
        let mut targets: Vec<&mut [u64]> = tile.iter_mut().map(|(_, limb)| &mut **limb).collect();
        converter.convert(&sources, &mut targets);
        for (id, limb) in tile {
            let plan = basis.plan(id);
            plan.forward(limb);
            // (lifted − sum)·(−1/P).
            plan.pointwise().sub_assign(limb, poly.limb(id));
            plan.pointwise()
                .mul_scalar_assign(limb, down.negated_inverses[id]);
        }
    });
    Ok(out)
}

/// Switches `a`, which stands against the key's source, to its target: what is added to b, and the new a.
///
/// # Errors
/// As [`decompose`] and [`inner_product`].
pub fn switch(
    a: &RnsPoly<Eval>,
    key: &SwitchKey,
) -> Result<(RnsPoly<Eval>, RnsPoly<Eval>), RlweError> {
    let digits = decompose(key.params(), key.gadget(), a)?;
    inner_product(&digits, key)?.mod_down(key.params())
}

/// The ciphertext of m(X^g) from the one (b, a) of m, with the Galois key of g.
///
/// # Errors
/// [`RlweError::GadgetMismatch`] for a key that is no Galois key, else as [`switch`].
pub fn automorphism(
    b: &RnsPoly<Eval>,
    a: &RnsPoly<Eval>,
    key: &SwitchKey,
) -> Result<(RnsPoly<Eval>, RnsPoly<Eval>), RlweError> {
    let KeyUse::Galois(g) = key.key_use() else {
        return Err(RlweError::GadgetMismatch);
    };
    check_limbs(key.params(), b, a.ids().len())?;
    let (mut sum, part) = switch(a, key)?;
    sum.add_assign(b);
    Ok((sum.automorphism(g), part.automorphism(g)))
}
