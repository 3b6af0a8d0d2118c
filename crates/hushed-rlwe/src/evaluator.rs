//! What a party without the secret does to ciphertexts: automorphisms ([`crate::galois`]) and modulus switching.
//! Everything here is public to whoever computes it; nothing is erased.

use hushed_math::{Eval, RnsPoly};

use crate::ciphertext::Ciphertext;
use crate::error::RlweError;
use crate::keys::GaloisKeys;
use crate::message::check_limbs;
use crate::params::RlweParams;

/// The ciphertext of m(X^`g`) from one of m(X).
///
/// # Errors
/// [`RlweError::MissingGaloisKey`], [`RlweError::IncompatibleParameters`], [`RlweError::Limbs`].
pub fn automorphism(ct: &Ciphertext, g: usize, keys: &GaloisKeys) -> Result<Ciphertext, RlweError> {
    ct.check(keys.params())?;
    let mut out = Ciphertext::zero(keys.params(), ct.limbs());
    add_automorphism(&mut out, ct, g, keys)?;
    Ok(out)
}

/// acc += the ciphertext of m(X^`g`), for `ct` of m(X): what a step of InterLeave ends with.
///
/// # Errors
/// As [`automorphism`].
pub fn add_automorphism(
    acc: &mut Ciphertext,
    ct: &Ciphertext,
    g: usize,
    keys: &GaloisKeys,
) -> Result<(), RlweError> {
    ct.check(keys.params())?;
    add_automorphism_of(acc, Some(&ct.b), &ct.a, g, keys)
}

/// As [`add_automorphism`], of the ciphertext (`b`, `a`), whose b is zero if it is none.
///
/// # Errors
/// As there.
pub fn add_automorphism_of(
    acc: &mut Ciphertext,
    b: Option<&RnsPoly<Eval>>,
    a: &RnsPoly<Eval>,
    g: usize,
    keys: &GaloisKeys,
) -> Result<(), RlweError> {
    let key = keys.get(g)?;
    let limbs = a.ids().len();
    if limbs > keys.limbs() {
        return Err(RlweError::LimbCount {
            given: limbs,
            available: keys.limbs(),
        });
    }
    for poly in b.into_iter().chain([a, &acc.b, &acc.a]) {
        check_limbs(keys.params(), poly, limbs)?;
    }
    keys.with_workspace(|workspace| workspace.add_automorphism(acc, b, a, key))
}

/// Drops primes from the end until `limbs` are left, rounding: the phase is divided by the dropped primes.
///
/// # Errors
/// [`RlweError::LimbCount`] unless 1 ≤ `limbs` ≤ those of `ct`, [`RlweError::Limbs`].
pub fn modulus_switch(
    params: &RlweParams,
    ct: Ciphertext,
    limbs: usize,
) -> Result<Ciphertext, RlweError> {
    ct.check(params)?;
    if limbs == 0 || limbs > ct.limbs() {
        return Err(RlweError::LimbCount {
            given: limbs,
            available: ct.limbs(),
        });
    }
    let Ciphertext { mut b, mut a } = ct;
    while b.ids().len() > limbs {
        b = b.divide_by_last_and_round();
        a = a.divide_by_last_and_round();
    }
    Ok(Ciphertext { b, a })
}
