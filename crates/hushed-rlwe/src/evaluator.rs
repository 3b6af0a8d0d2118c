//! Automorphisms with hybrid key switching, and modulus switching.
//!
//! *Automorphism X → X^g.* Both parts are permuted; then a(X^g), which stands against s(X^g), is switched to s. With one
//! digit a prime, d_i = a(X^g) mod q_i as integers in (−q_i/2, q_i/2), lifted to every other prime and to P. The inner
//! products with the key, modulo Q·P, are divided by P with rounding:
//!
//! ```text
//! (b, a) ← (b(X^g), 0) + ⌊ P^-1 · Σ_i d_i·(b_i, a_i) ⌉
//! ```
//!
//! Transforms, for L primes: L inverse, L·L forward, then for the division by P 2 inverse and 2·L forward.

use hushed_math::{Coeff, Eval, RnsPoly};

use crate::ciphertext::Ciphertext;
use crate::error::RlweError;
use crate::keys::{GaloisKey, GaloisKeys};
use crate::message::check_limbs;
use crate::params::RlweParams;

/// The ciphertext of m(X^`g`) from one of m(X).
///
/// # Errors
/// [`RlweError::MissingGaloisKey`], [`RlweError::IncompatibleParameters`], [`RlweError::Limbs`].
pub fn automorphism(ct: &Ciphertext, g: usize, keys: &GaloisKeys) -> Result<Ciphertext, RlweError> {
    let params = keys.params();
    let key = keys.get(g)?;
    ct.check(params)?;
    let mut switched = key_switch(params, ct.a.automorphism(g), key)?;
    switched.b.add_assign(&ct.b.automorphism(g));
    Ok(switched)
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

/// The product with an unscaled plaintext (see [`crate::message::plain_signed`]).
///
/// # Errors
/// [`RlweError::IncompatibleParameters`], [`RlweError::Limbs`] if the plaintext carries other primes.
pub fn mul_plain(
    params: &RlweParams,
    ct: &Ciphertext,
    plain: &RnsPoly<Eval>,
) -> Result<Ciphertext, RlweError> {
    ct.check(params)?;
    check_limbs(params, plain, ct.limbs())?;
    let mut out = ct.clone();
    out.mul_plain_assign(plain);
    Ok(out)
}

/// ⌊P^-1·Σ_i d_i·(b_i, a_i)⌉ for the digits d_i of `a`, over the primes of `a`.
fn key_switch(
    params: &RlweParams,
    a: RnsPoly<Eval>,
    key: &GaloisKey,
) -> Result<Ciphertext, RlweError> {
    let limbs = a.ids().len();
    let basis = params.basis();
    if params.special_prime().is_none() {
        return Err(RlweError::NoSpecialPrime);
    }
    let extended = params.extended_ids(limbs);
    let coefficients = a.clone().into_coeff();
    let digits: Vec<RnsPoly<Eval>> = (0..limbs)
        .map(|i| extended_digit(params, &a, &coefficients, i, &extended))
        .collect();
    let zero = || RnsPoly::<Eval>::zero(basis, &extended);
    let (mut sum_b, mut sum_a) = (zero(), zero());
    for (j, &id) in extended.iter().enumerate() {
        let pointwise = basis.plan(id).pointwise();
        let factors: Vec<&[u64]> = digits.iter().map(|d| d.limb(j)).collect();
        // Limb `id` of a key digit is prime `id`: keys carry all primes.
        let of_b: Vec<&[u64]> = key
            .digits
            .iter()
            .take(limbs)
            .map(|d| d.b.limb(id))
            .collect();
        let of_a: Vec<&[u64]> = key
            .digits
            .iter()
            .take(limbs)
            .map(|d| d.a.limb(id))
            .collect();
        pointwise.dot_assign(sum_b.limb_mut(j), &factors, &of_b);
        pointwise.dot_assign(sum_a.limb_mut(j), &factors, &of_a);
    }
    Ok(Ciphertext {
        b: sum_b.divide_by_last_and_round(),
        a: sum_a.divide_by_last_and_round(),
    })
}

/// Digit `i` of a polynomial, an integer polynomial with coefficients in (−q_i/2, q_i/2), under the primes `extended`.
fn extended_digit(
    params: &RlweParams,
    a: &RnsPoly<Eval>,
    coefficients: &RnsPoly<Coeff>,
    i: usize,
    extended: &[usize],
) -> RnsPoly<Eval> {
    let basis = params.basis();
    let mut digit = RnsPoly::zero(basis, extended);
    for (j, &id) in extended.iter().enumerate() {
        let out = digit.limb_mut(j);
        if id == i {
            out.copy_from_slice(a.limb(i));
        } else {
            let plan = basis.plan(id);
            plan.pointwise()
                .lift_centred(out, coefficients.limb(i), basis.modulus(i));
            plan.forward(out);
        }
    }
    digit
}
