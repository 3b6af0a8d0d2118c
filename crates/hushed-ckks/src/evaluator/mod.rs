//! Arithmetic on ciphertexts. One evaluator serves all threads; its work goes limb by limb to the rayon pool of the
//! caller, and results do not depend on how many threads that has.
//!
//! * Of operands of different lengths the longer drops primes, which changes neither message nor scale.
//! * Sums need matching scales ([`Scale::matches`]); products multiply scales; a rescale divides by the prime that is
//!   dropped. Nothing sets a scale.
//! * Each operation exists in an allocating form and, where it makes sense, in place (`_assign`).
//! * Constants and plaintexts may be secret weights: no operation skips a zero or looks at a value.

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
            return Err(CkksError::OtherParameters {
                operation: "evaluator",
            });
        }
        Ok(Self {
            keys: Some(keys),
            ..Self::without_keys(params)
        })
    }

    /// An evaluator for what needs no keys: sums, products with plaintexts and constants, rescales.
    pub fn without_keys(params: &Arc<CkksParams>) -> Self {
        Self {
            params: params.clone(),
            keys: None,
            counters: Arc::default(),
        }
    }

    /// An evaluator for the same circuit under other parameters, which counts with this one.
    pub(crate) fn beside(
        &self,
        params: &Arc<CkksParams>,
        keys: EvalKeys,
    ) -> Result<Self, CkksError> {
        Ok(Self {
            counters: Arc::clone(&self.counters),
            ..Self::new(params, Arc::new(keys))?
        })
    }

    /// The parameter set.
    pub fn params(&self) -> &Arc<CkksParams> {
        &self.params
    }

    /// The keys.
    ///
    /// # Errors
    /// [`CkksError::NoKeys`], naming the operation that asks.
    pub fn keys(&self, operation: &'static str) -> Result<&Arc<EvalKeys>, CkksError> {
        self.keys.as_ref().ok_or(CkksError::NoKeys { operation })
    }

    /// How often each primitive ran.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// [`CkksError::OtherParameters`] for a ciphertext of another set.
    fn check(&self, ct: &Ciphertext, operation: &'static str) -> Result<(), CkksError> {
        if self.params.same_ring(ct.basis()) {
            return Ok(());
        }
        Err(CkksError::OtherParameters { operation })
    }

    /// As [`Evaluator::check`] for two; the primes that they share.
    fn check_pair(
        &self,
        left: &Ciphertext,
        right: &Ciphertext,
        operation: &'static str,
    ) -> Result<usize, CkksError> {
        self.check(left, operation)?;
        self.check(right, operation)?;
        Ok(left.limbs().min(right.limbs()))
    }

    /// The cheapest key of `key` for ciphertexts of `limbs` primes; a rotation by `steps` is named in the refusal.
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
                CkksError::MissingRotation {
                    operation,
                    steps,
                    limbs,
                    longest,
                }
            }
            (RlweError::MissingKey { limbs, longest, .. }, None) => CkksError::MissingKey {
                operation,
                limbs,
                longest,
            },
            (error, _) => error.into(),
        })
    }

    /// The prime that a ciphertext of `limbs` primes is rescaled by.
    fn last_prime(&self, limbs: usize, operation: &'static str) -> Result<u64, CkksError> {
        if limbs < 2 {
            return Err(CkksError::LevelTooLow {
                operation,
                limbs,
                needed: 2,
            });
        }
        Ok(self.params.prime(limbs - 1))
    }

    /// Error after a key switch of `limbs` primes with `gadget`, `rescaled` by the last prime in the same division or
    /// not.
    fn switched(
        &self,
        noise: Noise,
        gadget: &Gadget,
        limbs: usize,
        scale: Scale,
        rescaled: bool,
    ) -> Noise {
        let log2 = |primes: &[u64]| primes.iter().map(|&q| (q as f64).log2()).sum::<f64>();
        let (q, p) = (self.params.rlwe().q(), &self.params.rlwe().literal().p);
        let p = log2(p.get(..gadget.special()).unwrap_or(p));
        let ratios = gadget
            .digits_for(limbs)
            .map(|digit| (log2(q.get(digit).unwrap_or(q)) - p).exp2())
            .fold([0.0; 2], |[first, second], ratio| {
                [first + ratio, second + ratio * ratio]
            });
        let n = self.params.n();
        let noise = noise.switched(n, scale, ratios);
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
