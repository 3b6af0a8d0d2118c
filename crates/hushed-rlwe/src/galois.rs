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

use hushed_math::{Automorphism, Eval, RnsPoly};

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
    /// m(X) → m(X^g) on values.
    pub(crate) permutation: Arc<Automorphism>,
    pub(crate) digits: Vec<KeyDigit>,
}

/// Memory of one key switch at a time: a megabyte, which asked of the system anew for every automorphism would cost as
/// much as the arithmetic. Keys keep those that are not in use ([`crate::keys::GaloisKeys`]), at most one a thread.
pub(crate) struct Workspace {
    params: Arc<RlweParams>,
    /// P^-1 modulo every ciphertext prime.
    inverses: Vec<u64>,
    /// Digit i under all primes; limb `id` is prime `id`.
    digits: Vec<RnsPoly<Eval>>,
    /// The inner products with both parts of the key, under all primes.
    sums: [RnsPoly<Eval>; 2],
    /// Two limbs.
    limbs: [RnsPoly<Eval>; 2],
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
            digits: (0..q_len).map(|_| RnsPoly::zero(basis, &all)).collect(),
            sums: [(); 2].map(|()| RnsPoly::zero(basis, &all)),
            limbs: [(); 2].map(|()| RnsPoly::zero(basis, &[0])),
        })
    }

    /// acc += the ciphertext of m(X^g), shapes checked by the caller.
    pub(crate) fn add_automorphism(
        &mut self,
        acc: &mut Ciphertext,
        b: Option<&RnsPoly<Eval>>,
        a: &RnsPoly<Eval>,
        key: &GaloisKey,
    ) {
        for (j, limb) in b.into_iter().flat_map(RnsPoly::limbs) {
            let turned = self.limbs[0].limb_mut(0);
            key.permutation.apply(limb, turned);
            let plan = self.params.basis().plan(j);
            plan.pointwise().add_assign(acc.b.limb_mut(j), turned);
        }
        self.split(a, key);
        self.switch(a.ids().len(), key);
        let Self {
            params,
            sums: [sum_b, sum_a],
            inverses,
            limbs: [lifted, _],
            ..
        } = self;
        for (acc, sum) in [(&mut acc.b, sum_b), (&mut acc.a, sum_a)] {
            add_divided(params, inverses, acc, sum, lifted.limb_mut(0));
        }
    }

    /// The digits of a(X^g) under the primes of `a` and P.
    fn split(&mut self, a: &RnsPoly<Eval>, key: &GaloisKey) {
        let limbs = a.ids().len();
        let basis = self.params.basis();
        for (i, digit) in self.digits.iter_mut().enumerate().take(limbs) {
            let own = digit.limb_mut(i);
            key.permutation.apply(a.limb(i), own);
            let coefficients = self.limbs[1].limb_mut(0);
            basis.plan(i).inverse_from(own, coefficients);
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

    /// The sums ← Σ_i d_i·k_i for both parts k of the key.
    fn switch(&mut self, limbs: usize, key: &GaloisKey) {
        let [sum_b, sum_a] = &mut self.sums;
        for id in self.params.extended_ids(limbs) {
            let factors: Vec<&[u64]> = self.digits.iter().take(limbs).map(|d| d.limb(id)).collect();
            // A key for k primes has those and then P.
            let place = id.min(key.digits.len());
            let digits = || key.digits.iter().take(limbs);
            let keys_b: Vec<&[u64]> = digits().map(|d| d.b.limb(place)).collect();
            let keys_a: Vec<&[u64]> = digits().map(|d| d.a.limb(place)).collect();
            self.params.basis().plan(id).pointwise().dot_pair(
                [sum_b.limb_mut(id), sum_a.limb_mut(id)],
                &factors,
                [&keys_b, &keys_a],
            );
        }
    }
}

/// acc += ⌊P^-1·sum⌉; the last limb of `sum`, that of P, becomes coefficients. `lifted` is a limb of any content.
fn add_divided(
    params: &RlweParams,
    inverses: &[u64],
    acc: &mut RnsPoly<Eval>,
    sum: &mut RnsPoly<Eval>,
    lifted: &mut [u64],
) {
    let (basis, special) = (params.basis(), params.q_len());
    let p = *basis.modulus(special);
    basis.plan(special).inverse(sum.limb_mut(special));
    let limbs = acc.ids().len();
    for (j, &inverse) in inverses.iter().enumerate().take(limbs) {
        let plan = basis.plan(j);
        plan.pointwise().lift_centred(lifted, sum.limb(special), &p);
        plan.forward(lifted);
        let pointwise = plan.pointwise();
        pointwise.mod_down_finish_add_assign(acc.limb_mut(j), sum.limb(j), lifted, inverse);
    }
}
