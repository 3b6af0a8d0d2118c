//! The evaluation keys of one secret key: made after a plan, found by use and length.

use std::collections::BTreeMap;
use std::sync::Arc;

use hushed_math::rng::SecretRng;
use hushed_math::{Eval, RnsPoly, SecretPoly, sample};

use super::gadget::Gadget;
use super::key::SwitchKey;
use super::plan::{EvalKeyPlan, KeySpec, KeyUse};
use crate::encrypt::small;
use crate::error::RlweError;
use crate::keys::SecretKey;
use crate::params::RlweParams;

/// Nonzero coefficients of the ephemeral sparse secret.
pub const SPARSE_WEIGHT: usize = 32;

/// Evaluation keys by use. Several keys may serve one use: shorter ones make short ciphertexts cheap.
pub struct EvalKeys {
    params: Arc<RlweParams>,
    keys: BTreeMap<KeySpec, SwitchKey>,
}

impl EvalKeys {
    /// Makes the keys of a plan. The sparse secret, if the plan has one, exists in this call only.
    ///
    /// # Errors
    /// As [`EvalKeyPlan::gadgets`].
    pub fn generate(
        sk: &SecretKey,
        plan: &EvalKeyPlan,
        rng: &mut SecretRng,
    ) -> Result<Self, RlweError> {
        let params = sk.params();
        let gadgets = plan.gadgets(params)?;
        let needs_sparse = plan.iter().any(|spec| spec.key == KeyUse::ToSparse);
        let sparse = needs_sparse.then(|| sparse_secret(params, rng));
        let mut make = |spec: &KeySpec, gadget: Gadget| {
            let s = sk.s();
            let mut make = |from: &RnsPoly<Eval>, to: &RnsPoly<Eval>| {
                SwitchKey::generate(params, spec.key, gadget.clone(), [from, to], rng)
            };
            match (spec.key, &sparse) {
                (KeyUse::Relin, _) => {
                    let mut square = SecretPoly::new(s.clone());
                    square.expose_mut().mul_assign(s);
                    Ok(make(square.expose(), s))
                }
                (KeyUse::Galois(g), _) => {
                    let turned = SecretPoly::new(s.automorphism(inverse(g, params.n())));
                    Ok(make(s, turned.expose()))
                }
                (KeyUse::ToSparse, Some(sparse)) => Ok(make(s, sparse.expose())),
                (KeyUse::FromSparse, Some(sparse)) => Ok(make(sparse.expose(), s)),
                (KeyUse::Raised(g), Some(sparse)) => {
                    let turned = SecretPoly::new(s.automorphism(inverse(g, params.n())));
                    Ok(make(sparse.expose(), turned.expose()))
                }
                (KeyUse::ToSparse | KeyUse::FromSparse | KeyUse::Raised(_), None) => {
                    Err(RlweError::Encapsulation)
                }
            }
        };
        let keys = plan
            .iter()
            .zip(gadgets)
            .map(|(spec, gadget)| Ok((*spec, make(spec, gadget)?)))
            .collect::<Result<_, RlweError>>()?;
        Ok(Self {
            params: params.clone(),
            keys,
        })
    }

    pub(super) fn from_parts(params: &Arc<RlweParams>, keys: BTreeMap<KeySpec, SwitchKey>) -> Self {
        let params = params.clone();
        Self { params, keys }
    }

    /// The parameters of these keys.
    pub fn params(&self) -> &Arc<RlweParams> {
        &self.params
    }

    /// What there is.
    pub fn plan(&self) -> EvalKeyPlan {
        let mut plan = EvalKeyPlan::new();
        for spec in self.keys.keys() {
            plan.insert(spec.key, spec.limbs, spec.special);
        }
        plan
    }

    /// Bytes of all keys in memory.
    pub fn memory_bytes(&self) -> usize {
        self.keys.values().map(SwitchKey::memory_bytes).sum()
    }

    /// The cheapest relinearisation key for ciphertexts of `limbs` primes.
    ///
    /// # Errors
    /// [`RlweError::MissingKey`].
    pub fn relin(&self, limbs: usize) -> Result<&SwitchKey, RlweError> {
        self.get(KeyUse::Relin, limbs)
    }

    /// The cheapest key of X → X^`element` for ciphertexts of `limbs` primes.
    ///
    /// # Errors
    /// [`RlweError::MissingKey`].
    pub fn galois(&self, element: usize, limbs: usize) -> Result<&SwitchKey, RlweError> {
        self.get(KeyUse::Galois(element), limbs)
    }

    /// The cheapest key of a use for ciphertexts of `limbs` primes: the one with the fewest transforms.
    ///
    /// # Errors
    /// [`RlweError::MissingKey`].
    pub fn get(&self, key: KeyUse, limbs: usize) -> Result<&SwitchKey, RlweError> {
        let least = KeySpec {
            key,
            limbs: 0,
            special: 0,
        };
        let all = self
            .keys
            .range(least..)
            .take_while(|(spec, _)| spec.key == key);
        let serving = all.clone().filter(|(spec, _)| spec.limbs >= limbs);
        let cheapest = serving.min_by_key(|(_, found)| found.gadget().transforms(limbs));
        cheapest
            .map(|(_, found)| found)
            .ok_or_else(|| RlweError::MissingKey {
                key,
                limbs,
                longest: all.map(|(spec, _)| spec.limbs).max().unwrap_or(0),
            })
    }

    /// The keys, in the order of the plan.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &SwitchKey> {
        self.keys.values()
    }

    /// Keeps the uniform halves of all keys in memory, or forgets them; see [`SwitchKey::keep_uniform`].
    pub fn keep_uniform(&mut self, keep: bool) {
        self.keys
            .values_mut()
            .for_each(|key| key.keep_uniform(keep));
    }
}

/// A ternary secret of [`SPARSE_WEIGHT`] nonzero coefficients over all primes.
fn sparse_secret(params: &RlweParams, rng: &mut SecretRng) -> SecretPoly<Eval> {
    // Insecure rings of tests may be smaller than the weight.
    let weight = SPARSE_WEIGHT.min(params.n() / 8).max(1);
    let coefficients = sample::sparse_ternary(rng, params.n(), weight);
    let all: Vec<usize> = (0..params.basis().len()).collect();
    SecretPoly::new(small(params.basis(), &all, &coefficients).into_eval())
}

/// 1/g modulo 2n, for odd g and n ≥ 4: the group of odd numbers has exponent n/2.
fn inverse(g: usize, n: usize) -> usize {
    (1..n / 2).fold(1, |power, _| power * g % (2 * n))
}
