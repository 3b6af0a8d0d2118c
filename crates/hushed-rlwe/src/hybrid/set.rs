//! The evaluation keys of one secret key: made from their specs, looked up by use and length.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hushed_math::rng::SecretRng;

use super::generate::KeyGenerator;
use super::key::SwitchKey;
use super::key_use::KeyUse;
use super::specs::{KeySpec, KeySpecs};
use crate::error::RlweError;
use crate::keys::SecretKey;
use crate::params::RlweParams;

/// Evaluation keys by use. A use may have several keys: shorter ones make short ciphertexts cheap.
pub struct EvalKeys {
    params: Arc<RlweParams>,
    keys: BTreeMap<KeySpec, SwitchKey>,
}

impl EvalKeys {
    /// Makes all keys in memory; [`KeyGenerator`] makes them one by one. The sparse secret, if they have
    /// one, exists only during this call.
    ///
    /// # Errors
    /// As [`KeySpecs::gadgets`].
    pub fn generate(sk: &SecretKey, specs: &KeySpecs, rng: &mut SecretRng) -> Result<Self, RlweError> {
        let keys = KeyGenerator::new(sk, specs, rng)?
            .map(|key| key.map(|key| (key.spec(), key)))
            .collect::<Result<_, RlweError>>()?;
        Ok(Self { params: sk.params().clone(), keys })
    }

    pub(super) fn from_parts(params: &Arc<RlweParams>, keys: BTreeMap<KeySpec, SwitchKey>) -> Self {
        let params = params.clone();
        Self { params, keys }
    }

    /// The keys for ciphertexts longer than the primes of `gap`, without those primes, under `params`
    /// ([`RlweParams::without`]). They share the same words: a shorter digit and an inner product modulo fewer primes
    /// are those of the whole key, because each digit is multiplied by P separately modulo its own primes.
    ///
    /// # Errors
    /// [`RlweError::IncompatibleParameters`] unless `params` are those of the keys without `gap`;
    /// [`RlweError::PartsOfKeys`] for keys that already lack primes.
    pub fn without(&self, params: &Arc<RlweParams>, gap: &Range<usize>) -> Result<Self, RlweError> {
        let kept = self.params.ids_without(gap);
        let (whole, part) = (self.params.basis(), params.basis());
        let differ = |(id, &from): (usize, &usize)| part.modulus(id).value() != whole.modulus(from).value();
        let same = kept.len() == part.len() && params.n() == self.params.n();
        if !same || kept.iter().enumerate().any(differ) {
            return Err(RlweError::IncompatibleParameters);
        }
        let long = self.keys.values().filter(|key| key.gadget().limbs() >= gap.end);
        let keys = long.map(|key| {
            let part = key.without(params, gap)?;
            Ok((part.spec(), part))
        });
        Ok(Self { params: params.clone(), keys: keys.collect::<Result<_, RlweError>>()? })
    }

    /// The parameters of these keys.
    pub fn params(&self) -> &Arc<RlweParams> {
        &self.params
    }

    /// The specs of the keys that are here.
    pub fn specs(&self) -> KeySpecs {
        let mut specs = KeySpecs::new();
        for spec in self.keys.keys() {
            specs.insert(spec.key, spec.limbs, spec.special);
        }
        specs
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

    /// The cheapest key for X → X^`element` and ciphertexts of `limbs` primes.
    ///
    /// # Errors
    /// [`RlweError::MissingKey`].
    pub fn galois(&self, element: usize, limbs: usize) -> Result<&SwitchKey, RlweError> {
        self.get(KeyUse::Galois(element), limbs)
    }

    /// The cheapest key for a use and ciphertexts of `limbs` primes: the one with the fewest transforms.
    ///
    /// # Errors
    /// [`RlweError::MissingKey`].
    pub fn get(&self, key: KeyUse, limbs: usize) -> Result<&SwitchKey, RlweError> {
        let least = KeySpec { key, limbs: 0, special: 0 };
        let all = self.keys.range(least..).take_while(|(spec, _)| spec.key == key);
        let serving = all.clone().filter(|(spec, _)| spec.limbs >= limbs);
        let cheapest = serving.min_by_key(|(_, found)| found.gadget().transforms(limbs));
        cheapest.map(|(_, found)| found).ok_or_else(|| RlweError::MissingKey {
            key,
            limbs,
            longest: all.map(|(spec, _)| spec.limbs).max().unwrap_or(0),
        })
    }

    /// The keys, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &SwitchKey> {
        self.keys.values()
    }
}
