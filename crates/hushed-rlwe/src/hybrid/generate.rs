//! Makes evaluation keys one by one: a set for a whole model takes gigabytes, and writing it to a file this way holds
//! one key at a time.

use hushed_math::rng::SecretRng;
use hushed_math::{Eval, RnsPoly, SecretPoly, sample};

use super::gadget::Gadget;
use super::key::SwitchKey;
use super::key_use::KeyUse;
use super::specs::{KeySpec, KeySpecs};
use crate::ciphertext::small;
use crate::error::RlweError;
use crate::keys::SecretKey;
use crate::params::RlweParams;

/// Nonzero coefficients of the ephemeral sparse secret.
pub const SPARSE_WEIGHT: usize = 32;

/// The keys of some specs, in order, each made on demand. The sparse secret, if one of them needs it, lives as long as
/// this value.
pub struct KeyGenerator<'a> {
    sk: &'a SecretKey,
    sparse: Option<SecretPoly<Eval>>,
    left: std::vec::IntoIter<(KeySpec, Gadget)>,
    rng: &'a mut SecretRng,
}

impl<'a> KeyGenerator<'a> {
    /// Generates the keys of `specs` for `sk`.
    ///
    /// # Errors
    /// As [`KeySpecs::gadgets`]; [`hushed_math::MathError::Forked`] now or at any key.
    pub fn new(sk: &'a SecretKey, specs: &KeySpecs, rng: &'a mut SecretRng) -> Result<Self, RlweError> {
        sk.check_process()?;
        rng.check()?;
        let params = sk.params();
        let gadgets = specs.gadgets(params)?;
        let needs_sparse = specs.iter().any(|spec| spec.key == KeyUse::ToSparse);
        let left: Vec<_> = specs.iter().copied().zip(gadgets).collect();
        Ok(Self { sk, sparse: needs_sparse.then(|| sparse_secret(params, rng)), left: left.into_iter(), rng })
    }

    fn make(&mut self, spec: KeySpec, gadget: Gadget) -> Result<SwitchKey, RlweError> {
        self.sk.check_process()?;
        self.rng.check()?;
        let (params, s) = (self.sk.params(), self.sk.s());
        let turned = |g: usize| SecretPoly::new(s.automorphism(inverse(g, params.n())));
        let mut make = |from: &RnsPoly<Eval>, to: &RnsPoly<Eval>| {
            SwitchKey::generate(params, spec.key, gadget.clone(), [from, to], self.rng)
        };
        match (spec.key, &self.sparse) {
            (KeyUse::Relin, _) => {
                let mut square = SecretPoly::new(s.clone());
                square.expose_mut().mul_assign(s);
                Ok(make(square.expose(), s))
            }
            (KeyUse::Galois(g), _) => Ok(make(s, turned(g).expose())),
            (KeyUse::ToSparse, Some(sparse)) => Ok(make(s, sparse.expose())),
            (KeyUse::FromSparse, Some(sparse)) => Ok(make(sparse.expose(), s)),
            (KeyUse::Raised(g), Some(sparse)) => Ok(make(sparse.expose(), turned(g).expose())),
            (KeyUse::ToSparse | KeyUse::FromSparse | KeyUse::Raised(_), None) => Err(RlweError::Encapsulation),
        }
    }
}

impl Iterator for KeyGenerator<'_> {
    type Item = Result<SwitchKey, RlweError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (spec, gadget) = self.left.next()?;
        Some(self.make(spec, gadget))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl ExactSizeIterator for KeyGenerator<'_> {}

/// A ternary secret with [`SPARSE_WEIGHT`] nonzero coefficients, over all primes.
fn sparse_secret(params: &RlweParams, rng: &mut SecretRng) -> SecretPoly<Eval> {
    // Insecure test rings may be smaller than the weight.
    let weight = SPARSE_WEIGHT.min(params.n() / 8).max(1);
    let coefficients = sample::sparse_ternary(rng, params.n(), weight);
    let all: Vec<usize> = (0..params.basis().len()).collect();
    SecretPoly::new(small(params.basis(), &all, &coefficients).into_eval())
}

/// 1/g modulo 2n, for odd g and n ≥ 4: the group of odd numbers has exponent n/2.
fn inverse(g: usize, n: usize) -> usize {
    (1..n / 2).fold(1, |power, _| power * g % (2 * n))
}
