//! Ciphertexts in evaluation form over a prefix of the ciphertext primes: phase = b + a·s = message + noise.

use std::sync::Arc;

use hushed_math::rng::{PublicSeed, PublicStream};
use hushed_math::{Coeff, Eval, RnsBasis, RnsPoly};

use crate::error::RlweError;
use crate::message::check_limbs;
use crate::params::RlweParams;

/// The purpose of a public stream; a seed never serves two polynomials in the same domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamDomain {
    Ciphertext,
    PublicKey,
    KeyProof,
    Galois { element: usize, digit: usize },
}

impl StreamDomain {
    fn word(self) -> u64 {
        match self {
            Self::Ciphertext => 1 << 56,
            Self::PublicKey => 2 << 56,
            Self::KeyProof => 4 << 56,
            // Elements are below 2^18, digits below 2^8.
            Self::Galois { element, digit } => 3 << 56 | (element as u64) << 8 | digit as u64,
        }
    }
}

/// A ciphertext (b, a) with both parts in evaluation form.
#[derive(Clone)]
pub struct Ciphertext {
    /// The masked message.
    pub b: RnsPoly<Eval>,
    /// The uniform part.
    pub a: RnsPoly<Eval>,
}

impl Ciphertext {
    /// The trivial encryption of zero over the first `limbs` primes.
    pub fn zero(params: &RlweParams, limbs: usize) -> Self {
        let ids = params.ciphertext_ids(limbs);
        Self { b: RnsPoly::zero(params.basis(), &ids), a: RnsPoly::zero(params.basis(), &ids) }
    }

    /// The number of primes.
    pub fn limbs(&self) -> usize {
        self.b.ids().len()
    }

    /// self += other.
    pub fn add_assign(&mut self, other: &Self) {
        self.b.add_assign(&other.b);
        self.a.add_assign(&other.a);
    }

    /// self −= other.
    pub fn sub_assign(&mut self, other: &Self) {
        self.b.sub_assign(&other.b);
        self.a.sub_assign(&other.a);
    }

    /// self += ct·plain, the step of a matrix product.
    pub fn mul_add_assign(&mut self, ct: &Self, plain: &RnsPoly<Eval>) {
        self.b.mul_add_assign(&ct.b, plain);
        self.a.mul_add_assign(&ct.a, plain);
    }

    /// self ← self·plain.
    pub fn mul_plain_assign(&mut self, plain: &RnsPoly<Eval>) {
        self.b.mul_assign(plain);
        self.a.mul_assign(plain);
    }

    /// self ← self·X^k.
    pub fn mul_monomial_assign(&mut self, k: i64) {
        self.b.mul_monomial_assign(k);
        self.a.mul_monomial_assign(k);
    }

    /// self += plain, an already scaled message.
    pub fn add_plain_assign(&mut self, plain: &RnsPoly<Eval>) {
        self.b.add_assign(plain);
    }

    /// Checks that both parts carry the same prefix of the primes of `params`.
    pub(crate) fn check(&self, params: &RlweParams) -> Result<(), RlweError> {
        let limbs = self.limbs();
        if limbs == 0 || limbs > params.q_len() {
            return Err(RlweError::LimbCount { given: limbs, available: params.q_len() });
        }
        check_limbs(params, &self.b, limbs)?;
        check_limbs(params, &self.a, limbs)
    }
}

/// A fresh symmetric ciphertext whose uniform part is given by a seed, which halves its bytes.
#[derive(Clone)]
pub struct SeededCiphertext {
    /// The seed of the uniform part.
    pub seed: PublicSeed,
    /// The masked message.
    pub b: RnsPoly<Eval>,
}

impl SeededCiphertext {
    /// Expands the uniform part.
    pub fn expand(self) -> Ciphertext {
        let a = uniform(&self.seed, StreamDomain::Ciphertext, self.b.basis(), self.b.ids());
        Ciphertext { b: self.b, a }
    }
}

/// The public uniform polynomial of `seed` in `domain`, sampled in evaluation form.
pub(crate) fn uniform(seed: &PublicSeed, domain: StreamDomain, basis: &Arc<RnsBasis>, ids: &[usize]) -> RnsPoly<Eval> {
    RnsPoly::uniform(basis, ids, &mut PublicStream::new(seed, domain.word()))
}

/// Secret or noise coefficients modulo the primes `ids`: integers far smaller than any prime, so the only reduction is
/// adding the prime to the negative ones, by mask.
pub(crate) fn small(basis: &Arc<RnsBasis>, ids: &[usize], coefficients: &[i64]) -> RnsPoly<Coeff> {
    assert_eq!(coefficients.len(), basis.n(), "every word is written");
    let mut poly = RnsPoly::scratch(basis, ids);
    for (j, &id) in ids.iter().enumerate() {
        let q = basis.modulus(id).value();
        for (residue, &c) in poly.limb_mut(j).iter_mut().zip(coefficients) {
            *residue = (c as u64).wrapping_add(q & (c >> 63) as u64);
        }
    }
    poly
}
