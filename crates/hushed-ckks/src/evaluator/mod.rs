//! Arithmetic on ciphertexts. One evaluator serves all threads. Its work is split by limb over the caller's rayon pool,
//! and results do not depend on the number of threads.
//!
//! * If operands differ in length, the longer one drops primes, which changes neither message nor scale.
//! * Sums need matching scales ([`Scale::matches`]); products multiply scales; a rescale divides by the dropped prime.
//!   Nothing sets a scale.
//! * Operations have an allocating form and, where it makes sense, an in-place one (`_assign`).
//! * Constants and plaintexts may be secret weights, so no operation skips zeros or branches on values.

mod grid;
mod limbs;
mod linear;
mod product;
mod rescale;
mod rotate;

use std::sync::Arc;

use hushed_rlwe::RlweError;
use hushed_rlwe::hybrid::{EvalKeys, Gadget, KeyUse, SwitchKey};

pub use product::Tensor;
pub use rotate::Hoisted;

use crate::ciphertext::Ciphertext;
use crate::counters::Counters;
use crate::error::CkksError;
use crate::noise::Noise;
use crate::params::CkksParams;
use crate::scale::Scale;

/// Evaluates circuits on ciphertexts of one parameter set.
pub struct Evaluator {
    params: Arc<CkksParams>,
    keys: Option<Arc<EvalKeys>>,
    counters: Arc<Counters>,
}

impl Evaluator {
    /// An evaluator with keys for products and rotations.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`] if the keys were made or read under another parameter set.
    pub fn new(params: &Arc<CkksParams>, keys: Arc<EvalKeys>) -> Result<Self, CkksError> {
        if !Arc::ptr_eq(keys.params().basis(), params.rlwe().basis()) {
            return Err(CkksError::OtherParameters { operation: "evaluator" });
        }
        Ok(Self { keys: Some(keys), ..Self::without_keys(params) })
    }

    /// An evaluator without keys, for sums, products with plaintexts and constants, and rescales.
    pub fn without_keys(params: &Arc<CkksParams>) -> Self {
        Self { params: params.clone(), keys: None, counters: Arc::default() }
    }

    /// An evaluator for the same circuit under other parameters, sharing this one's counters.
    pub(crate) fn beside(&self, params: &Arc<CkksParams>, keys: EvalKeys) -> Result<Self, CkksError> {
        Ok(Self { counters: Arc::clone(&self.counters), ..Self::new(params, Arc::new(keys))? })
    }

    /// The parameter set.
    pub fn params(&self) -> &Arc<CkksParams> {
        &self.params
    }

    /// The keys.
    ///
    /// # Errors
    /// [`CkksError::NoKeys`], naming `operation`.
    pub fn keys(&self, operation: &'static str) -> Result<&Arc<EvalKeys>, CkksError> {
        self.keys.as_ref().ok_or(CkksError::NoKeys { operation })
    }

    /// How often each primitive ran.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// [`CkksError::OtherParameters`] if the ciphertext belongs to another parameter set.
    fn check(&self, ct: &Ciphertext, operation: &'static str) -> Result<(), CkksError> {
        if self.params.same_ring(ct.basis()) {
            return Ok(());
        }
        Err(CkksError::OtherParameters { operation })
    }

    /// [`Evaluator::check`] for two ciphertexts; returns the number of primes they share.
    fn check_pair(&self, left: &Ciphertext, right: &Ciphertext, operation: &'static str) -> Result<usize, CkksError> {
        self.check(left, operation)?;
        self.check(right, operation)?;
        Ok(left.limbs().min(right.limbs()))
    }

    /// The cheapest key for the use `key` on ciphertexts of `limbs` primes. For a rotation the error names `steps`.
    fn key(
        &self,
        operation: &'static str,
        key: KeyUse,
        steps: Option<i64>,
        limbs: usize,
    ) -> Result<&SwitchKey, CkksError> {
        let found = self.keys(operation)?.get(key, limbs);
        found.map_err(|error| match (error, steps) {
            (RlweError::MissingKey { limbs, longest, .. }, Some(steps)) => {
                CkksError::MissingRotation { operation, steps, limbs, longest }
            }
            (RlweError::MissingKey { limbs, longest, .. }, None) => CkksError::MissingKey { operation, limbs, longest },
            (error, _) => error.into(),
        })
    }

    /// The prime that a rescale of a ciphertext of `limbs` primes divides by.
    fn last_prime(&self, limbs: usize, operation: &'static str) -> Result<u64, CkksError> {
        if limbs < 2 {
            return Err(CkksError::LevelTooLow { operation, limbs, needed: 2 });
        }
        Ok(self.params.prime(limbs - 1))
    }

    /// Noise after a key switch of `limbs` primes with `gadget`; `rescaled` if the same division also drops the last
    /// prime.
    fn switched(&self, noise: Noise, gadget: &Gadget, limbs: usize, scale: Scale, rescaled: bool) -> Noise {
        let n = self.params.n();
        let noise = noise.switched(n, scale, self.params.digit_ratios(gadget, limbs));
        if rescaled {
            let after = scale.over_prime(self.params.prime(limbs - 1));
            noise.rounded(n, after)
        } else {
            noise.rounded(n, scale)
        }
    }
}

#[cfg(test)]
mod tests;
