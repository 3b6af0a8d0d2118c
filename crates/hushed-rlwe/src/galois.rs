//! The key of one automorphism X → X^g, and the hybrid key switch by it.
//!
//! Both parts are permuted; then a(X^g), which stands against s(X^g), is switched to s. With one
//! digit a prime, d_i = a(X^g) mod q_i as integers in (−q_i/2, q_i/2), lifted to every other prime and to P. The inner
//! products with the key, modulo Q·P, are divided by P with rounding:
//!
//! ```text
//! (b, a) ← (b(X^g), 0) + ⌊ P^-1 · Σ_i d_i·(b_i, a_i) ⌉
//! ```
//!
//! Transforms, for L primes: L inverse, L·L forward, then for the division by P 2 inverse and 2·L forward. Everything
//! here is public to whoever computes it; nothing is erased.

use std::sync::Arc;

use hushed_math::{Coeff, Eval, RnsPoly};

use crate::ciphertext::Ciphertext;
use crate::error::RlweError;
use crate::params::RlweParams;

/// One digit of a Galois key, over the primes that the key is for, then P.
pub(crate) struct KeyDigit {
    pub(crate) b: RnsPoly<Eval>,
    pub(crate) a: RnsPoly<Eval>,
}

/// The key of one automorphism: one digit for every ciphertext prime that it is for.
pub(crate) struct GaloisKey {
    /// Value k of m(X^g) is value `permutation[k]` of m(X).
    pub(crate) permutation: Vec<u32>,
    pub(crate) digits: Vec<KeyDigit>,
}

/// Memory of one key switch at a time: a megabyte, which asked of the system anew for every automorphism would cost as
/// much as the arithmetic. Keys keep those that are not in use ([`crate::keys::GaloisKeys`]), at most one a thread.
pub(crate) struct Workspace {
    params: Arc<RlweParams>,
    /// P^-1 modulo every ciphertext prime.
    inverses: Vec<u64>,
    /// Coefficients of a(X^g), a limb a ciphertext prime.
    coefficients: RnsPoly<Coeff>,
    /// Digit i under all primes; limb `id` is prime `id`.
    digits: Vec<RnsPoly<Eval>>,
    /// The inner product with one part of the key, under all primes.
    sum: RnsPoly<Eval>,
    /// One limb.
    limb: RnsPoly<Eval>,
}

impl Workspace {
    /// Memory for ciphertexts of `params`.
    ///
    /// # Errors
    /// [`RlweError::NoSpecialPrime`].
    pub(crate) fn new(params: &Arc<RlweParams>) -> Result<Self, RlweError> {
        let p = params.special_prime().ok_or(RlweError::NoSpecialPrime)?;
        let (basis, q_len) = (params.basis(), params.q_len());
        let inverse = |i| {
            let m = basis.modulus(i);
            m.inv(m.reduce(p)).ok_or(RlweError::NoSpecialPrime)
        };
        let all = params.extended_ids(q_len);
        Ok(Self {
            params: params.clone(),
            inverses: (0..q_len).map(inverse).collect::<Result<_, _>>()?,
            coefficients: RnsPoly::zero(basis, &params.ciphertext_ids(q_len)),
            digits: (0..q_len).map(|_| RnsPoly::zero(basis, &all)).collect(),
            sum: RnsPoly::zero(basis, &all),
            limb: RnsPoly::zero(basis, &[0]),
        })
    }

    /// acc += the ciphertext of m(X^g), shapes checked by the caller.
    pub(crate) fn add_automorphism(
        &mut self,
        acc: &mut Ciphertext,
        ct: &Ciphertext,
        key: &GaloisKey,
    ) {
        for j in 0..ct.limbs() {
            let turned = self.limb.limb_mut(0);
            permute(&key.permutation, ct.b.limb(j), turned);
            let plan = self.params.basis().plan(j);
            plan.pointwise().add_assign(acc.b.limb_mut(j), turned);
        }
        self.split(&ct.a, &key.permutation);
        self.add_switched(&mut acc.b, key, |digit| &digit.b);
        self.add_switched(&mut acc.a, key, |digit| &digit.a);
    }

    /// The digits of a(X^g) under the primes of `a` and P.
    fn split(&mut self, a: &RnsPoly<Eval>, permutation: &[u32]) {
        let limbs = a.ids().len();
        let basis = self.params.basis();
        for (i, digit) in self.digits.iter_mut().enumerate().take(limbs) {
            let own = digit.limb_mut(i);
            permute(permutation, a.limb(i), own);
            let coefficients = self.coefficients.limb_mut(i);
            coefficients.copy_from_slice(own);
            basis.plan(i).inverse(coefficients);
            for id in self.params.extended_ids(limbs) {
                if id != i {
                    let out = digit.limb_mut(id);
                    basis
                        .plan(id)
                        .pointwise()
                        .lift_centred(out, coefficients, basis.modulus(i));
                    basis.plan(id).forward(out);
                }
            }
        }
    }

    /// acc += ⌊P^-1·Σ_i d_i·k_i⌉ for one part k of the key.
    fn add_switched(
        &mut self,
        acc: &mut RnsPoly<Eval>,
        key: &GaloisKey,
        part: impl Fn(&KeyDigit) -> &RnsPoly<Eval>,
    ) {
        let limbs = acc.ids().len();
        let basis = self.params.basis();
        for id in self.params.extended_ids(limbs) {
            let factors: Vec<&[u64]> = self.digits.iter().take(limbs).map(|d| d.limb(id)).collect();
            // A key for k primes has those and then P.
            let place = id.min(key.digits.len());
            let digits = key.digits.iter().take(limbs);
            let keys: Vec<&[u64]> = digits.map(|d| part(d).limb(place)).collect();
            let sum = self.sum.limb_mut(id);
            sum.fill(0);
            basis.plan(id).pointwise().dot_assign(sum, &factors, &keys);
        }
        let special = self.params.q_len();
        let p = *basis.modulus(special);
        basis.plan(special).inverse(self.sum.limb_mut(special));
        for (j, &inverse) in self.inverses.iter().enumerate().take(limbs) {
            let plan = basis.plan(j);
            let lifted = self.limb.limb_mut(0);
            plan.pointwise()
                .lift_centred(lifted, self.sum.limb(special), &p);
            plan.forward(lifted);
            let sum = self.sum.limb_mut(j);
            plan.pointwise().sub_assign(sum, lifted);
            plan.pointwise().mul_scalar_assign(sum, inverse);
            plan.pointwise().add_assign(acc.limb_mut(j), sum);
        }
    }
}

/// `out[k] = source[table[k]]`.
fn permute(table: &[u32], source: &[u64], out: &mut [u64]) {
    for (out, &from) in out.iter_mut().zip(table) {
        *out = source[from as usize];
    }
}
