//! Inner products of digits with keys, division by the special primes, and key switches built from the two.

use std::sync::Arc;

use hushed_math::{Automorphism, Eval, RnsPoly};
use rayon::prelude::*;

use super::decompose::Decomposed;
use super::key::SwitchKey;
use super::key_use::KeyUse;
use super::pass::{Parts, Pass, Step};
use super::raise::{prepare, terms};
use super::tiles::{self, tile_length};
use crate::error::RlweError;
use crate::params::RlweParams;

/// The most limbs of a division that are converted together.
const TILE: usize = 4;

/// Both parts of a ciphertext modulo Q·P, whose phase is P times the message.
#[derive(Clone)]
pub struct Extended {
    /// The number of special primes, which are the last limbs.
    pub special: usize,
    /// The masked message.
    pub b: RnsPoly<Eval>,
    /// The uniform part.
    pub a: RnsPoly<Eval>,
}

impl Extended {
    /// Zero, over the first `limbs` ciphertext primes and the first `special` special primes.
    pub fn zero(params: &RlweParams, limbs: usize, special: usize) -> Self {
        let ids = params.extended_ids_with(limbs, special);
        Self { special, b: RnsPoly::zero(params.basis(), &ids), a: RnsPoly::zero(params.basis(), &ids) }
    }

    /// The number of ciphertext primes.
    pub fn limbs(&self) -> usize {
        self.b.ids().len() - self.special
    }

    /// Limb j of both parts of each polynomial, for each j below `limbs`.
    pub fn by_limb<'a>(polys: impl IntoIterator<Item = &'a mut Self>, limbs: usize) -> Vec<Vec<[&'a mut [u64]; 2]>> {
        let mut out: Vec<Vec<[&mut [u64]; 2]>> = (0..limbs).map(|_| Vec::new()).collect();
        for Self { b, a, .. } in polys {
            let both = b.limbs_mut().zip(a.limbs_mut());
            for (limb, ((_, b), (_, a))) in out.iter_mut().zip(both) {
                limb.push([b, a]);
            }
        }
        out
    }

    /// Divides both parts by P with rounding, giving (b, a) modulo Q.
    ///
    /// # Errors
    /// As [`mod_down`].
    pub fn mod_down(self, params: &RlweParams) -> Result<(RnsPoly<Eval>, RnsPoly<Eval>), RlweError> {
        Ok((mod_down(params, self.b, self.special)?, mod_down(params, self.a, self.special)?))
    }
}

/// Σ_i d_i·(b_i, a_i) for the digits of one polynomial, over its primes and the gadget's special ones.
///
/// # Errors
/// [`RlweError::GadgetMismatch`] if the digits have another gadget; [`RlweError::IncompatibleParameters`].
pub fn inner_product(digits: &Decomposed, key: &SwitchKey) -> Result<Extended, RlweError> {
    let mut products = inner_product_many(&[digits], key)?;
    products.pop().ok_or(RlweError::Count { given: 0, expected: 1 })
}

/// Inner products of several polynomials of equal length with one key, whose uniform half is expanded only once.
///
/// # Errors
/// As [`inner_product`]; [`RlweError::LimbCount`] if lengths differ.
pub fn inner_product_many(many: &[&Decomposed], key: &SwitchKey) -> Result<Vec<Extended>, RlweError> {
    let Some(first) = many.first() else {
        return Ok(Vec::new());
    };
    for digits in many {
        if digits.gadget != *key.gadget() {
            return Err(RlweError::GadgetMismatch);
        }
        if digits.limbs != first.limbs {
            return Err(RlweError::LimbCount { given: digits.limbs, available: first.limbs });
        }
    }
    let params = key.params();
    let (limbs, special) = (first.limbs, key.gadget().special());
    let ids = params.extended_ids_with(limbs, special);
    let foreign = |d: &RnsPoly<Eval>| d.ids() != ids || !std::ptr::eq(d.basis().as_ref(), params.basis().as_ref());
    if many.iter().any(|digits| digits.digits.iter().any(foreign)) {
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
    Extended::by_limb(&mut sums, ids.len())
        .into_par_iter()
        .enumerate()
        .for_each(|(j, mut sums)| key.multiply_limb(many, j, &mut sums));
    Ok(sums)
}

/// ⌊poly / P⌉, P being the first `special` special primes, for `poly` over a prefix of the ciphertext primes and those.
///
/// # Errors
/// [`RlweError::Limbs`], [`RlweError::IncompatibleParameters`].
pub fn mod_down(params: &RlweParams, poly: RnsPoly<Eval>, special: usize) -> Result<RnsPoly<Eval>, RlweError> {
    divide(params, &poly, special, 0)
}

/// ⌊poly / (P·q)⌉, where q is the last ciphertext prime of `poly`: a key switch and a rescaling in one division.
///
/// # Errors
/// [`RlweError::Limbs`], [`RlweError::IncompatibleParameters`], [`RlweError::LimbCount`] if there is only one
/// ciphertext prime.
pub fn mod_down_rescale(params: &RlweParams, poly: RnsPoly<Eval>, special: usize) -> Result<RnsPoly<Eval>, RlweError> {
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
        return Err(RlweError::LimbCount { given: limbs, available: params.q_len() });
    }
    let expected = params.extended_ids_with(limbs, special);
    if poly.ids() != expected {
        return Err(RlweError::Limbs { given: poly.ids().to_vec(), expected });
    }
    let basis = params.basis();
    if !Arc::ptr_eq(poly.basis(), basis) {
        return Err(RlweError::IncompatibleParameters);
    }
    let stay = limbs - rescaled;
    let tile = tile_length(stay, TILE);
    let down = tiles::down(params, [limbs, special, rescaled, tile])?;
    let mut dropped = terms(params, expected[stay..].iter().copied());
    let work: Vec<_> = dropped.limbs_mut().zip(stay..expected.len()).collect();
    work.into_par_iter().for_each(|((id, limb), place)| {
        basis.ntt(id).inverse_from(poly.limb(place), limb);
    });
    prepare(std::iter::once((&down.lift, &mut dropped)));
    let rows: Vec<&[u64]> = dropped.limbs().map(|(_, row)| row).collect();
    let mut out: RnsPoly<Eval> = RnsPoly::scratch(basis, &expected[..stay]);
    let mut limbs: Vec<_> = out.limbs_mut().collect();
    let tiles = limbs.par_chunks_mut(tile).zip(&down.lift.tiles);
    tiles.for_each(|(tile, converter)| {
        let mut targets: Vec<&mut [u64]> = tile.iter_mut().map(|(_, limb)| &mut **limb).collect();
        if let Some(converter) = converter {
            converter.combine(&rows, &mut targets);
        }
        for (id, limb) in tile {
            let ntt = basis.ntt(*id);
            ntt.forward(limb);
            // (lifted − sum)·(−1/P).
            let negated = ntt.modulus().neg(down.inverses[*id]);
            ntt.pointwise().sub_mul_scalar_assign(limb, poly.limb(*id), negated);
        }
    });
    Ok(out)
}

/// Switches `a`, a component under the key's source, to its target. Returns what to add to b, and the new a.
///
/// # Errors
/// As [`decompose`](super::decompose()) and [`inner_product`].
pub fn switch(a: &RnsPoly<Eval>, key: &SwitchKey) -> Result<Parts, RlweError> {
    one(a, [None, None], false, key, None)
}

/// (b, a) plus the switched `c`, a component under the key's source: relinearisation.
///
/// # Errors
/// As [`switch`].
pub fn switch_add([b, a]: [&RnsPoly<Eval>; 2], c: &RnsPoly<Eval>, key: &SwitchKey) -> Result<Parts, RlweError> {
    one(c, [Some(b), Some(a)], false, key, None)
}

/// As [`switch_add`], divided by the last prime with rounding; a single division does both.
///
/// # Errors
/// As [`switch`]; [`RlweError::LimbCount`] if there is only one prime.
pub fn switch_add_rescale([b, a]: [&RnsPoly<Eval>; 2], c: &RnsPoly<Eval>, key: &SwitchKey) -> Result<Parts, RlweError> {
    one(c, [Some(b), Some(a)], true, key, None)
}

fn one(
    switched: &RnsPoly<Eval>,
    added: [Option<&RnsPoly<Eval>>; 2],
    rescale: bool,
    key: &SwitchKey,
    turn: Option<Arc<Automorphism>>,
) -> Result<Parts, RlweError> {
    let pass = Pass { params: key.params(), switched, added, rescale };
    let mut results = pass.run(&[Step { key, turn }])?;
    results.pop().ok_or(RlweError::Count { given: 0, expected: 1 })
}

/// The ciphertext of m(X^g) from the ciphertext (b, a) of m, with the Galois key of g.
///
/// # Errors
/// [`RlweError::GadgetMismatch`] if the key is not a Galois key; otherwise as [`switch`].
pub fn automorphism(b: &RnsPoly<Eval>, a: &RnsPoly<Eval>, key: &SwitchKey) -> Result<Parts, RlweError> {
    one(a, [Some(b), None], false, key, Some(turn(key)?))
}

/// [`automorphism`] with each of several keys that share one gadget; the digits are made once (hoisting).
///
/// # Errors
/// As [`automorphism`]; [`RlweError::GadgetMismatch`] if gadgets differ.
pub fn automorphisms(b: &RnsPoly<Eval>, a: &RnsPoly<Eval>, keys: &[&SwitchKey]) -> Result<Vec<Parts>, RlweError> {
    let Some(first) = keys.first() else {
        return Ok(Vec::new());
    };
    let step = |key: &&'_ SwitchKey| turn(key).map(Some);
    let turns = keys.iter().map(step).collect::<Result<Vec<_>, _>>()?;
    let steps: Vec<Step<'_>> = keys.iter().zip(turns).map(|(key, turn)| Step { key, turn }).collect();
    let pass = Pass { params: first.params(), switched: a, added: [Some(b), None], rescale: false };
    pass.run(&steps)
}

/// The permutation of a Galois key.
fn turn(key: &SwitchKey) -> Result<Arc<Automorphism>, RlweError> {
    let KeyUse::Galois(g) = key.key_use() else {
        return Err(RlweError::GadgetMismatch);
    };
    Ok(key.params().basis().automorphism(g))
}
