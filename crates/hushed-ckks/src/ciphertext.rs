//! Ciphertexts: b + a·s = scale·message + error, over a prefix of the prime chain, in evaluation form.

use std::sync::Arc;

use hushed_math::{Eval, RnsBasis, RnsPoly};
use hushed_rlwe::RlweError;

use crate::error::CkksError;
use crate::noise::Noise;
use crate::params::CkksParams;
use crate::scale::Scale;

/// An encrypted vector with its scale, level and noise estimate.
#[derive(Clone)]
pub struct Ciphertext {
    pub(crate) b: RnsPoly<Eval>,
    pub(crate) a: RnsPoly<Eval>,
    pub(crate) scale: Scale,
    pub(crate) noise: Noise,
}

impl Ciphertext {
    /// The trivial encryption of zero over the first `limbs` primes.
    ///
    /// # Errors
    /// [`CkksError::LimbCount`].
    pub fn zero(params: &CkksParams, limbs: usize, scale: Scale) -> Result<Self, CkksError> {
        check_limbs(params, "zero", limbs)?;
        let ids = params.rlwe().ciphertext_ids(limbs);
        Ok(Self {
            b: RnsPoly::zero(params.rlwe().basis(), &ids),
            a: RnsPoly::zero(params.rlwe().basis(), &ids),
            scale,
            noise: Noise::exact(0.0),
        })
    }

    /// A ciphertext from its parts, both over the same prefix of the ciphertext primes. Its error is unknown until
    /// [`Ciphertext::with_noise`] states it.
    ///
    /// # Errors
    /// [`CkksError::Rlwe`] if the bases differ; [`CkksError::LimbCount`] unless both are over the same prefix.
    pub fn from_parts(b: RnsPoly<Eval>, a: RnsPoly<Eval>, scale: Scale) -> Result<Self, CkksError> {
        let prefix = |poly: &RnsPoly<Eval>| poly.ids().iter().enumerate().all(|(j, &id)| j == id);
        if !Arc::ptr_eq(b.basis(), a.basis()) {
            return Err(RlweError::IncompatibleParameters.into());
        }
        if b.ids() != a.ids() || !prefix(&b) {
            return Err(CkksError::LimbCount {
                operation: "from_parts",
                limbs: a.ids().len(),
                available: b.ids().len(),
            });
        }
        Ok(Self { b, a, scale, noise: Noise::UNKNOWN })
    }

    /// The same ciphertext, with what the caller knows about its error. A bound on its norm is trusted: nothing in a
    /// ciphertext can prove it, and a flooded decryption is only as safe as the bound.
    #[must_use]
    pub fn with_noise(self, noise: Noise) -> Self {
        Self { noise, ..self }
    }

    /// The same integers, read as `factor` times the message: the scale is divided by `factor`. Free and exact; apart
    /// from arithmetic this is the only way to change a scale.
    ///
    /// # Errors
    /// [`CkksError::InvalidScale`] unless the new scale is positive and finite.
    pub fn read_as(self, factor: f64) -> Result<Self, CkksError> {
        let scale = Scale::new(self.scale.value() / factor)?;
        Ok(Self { scale, noise: self.noise.times(factor), ..self })
    }

    /// The masked message.
    pub fn b(&self) -> &RnsPoly<Eval> {
        &self.b
    }

    /// The uniform part.
    pub fn a(&self) -> &RnsPoly<Eval> {
        &self.a
    }

    /// Both parts, as (b, a).
    pub fn into_parts(self) -> (RnsPoly<Eval>, RnsPoly<Eval>) {
        (self.b, self.a)
    }

    /// Number of primes.
    pub fn limbs(&self) -> usize {
        self.b.ids().len()
    }

    /// Rescales left: one less than the number of primes.
    pub fn level(&self) -> usize {
        self.limbs() - 1
    }

    /// The factor between the message and the integers.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// What is known about the size of the message and its error.
    pub fn noise(&self) -> Noise {
        self.noise
    }

    /// The basis of the parameter set it was made under.
    pub fn basis(&self) -> &Arc<RnsBasis> {
        self.b.basis()
    }
}

/// [`CkksError::LimbCount`] unless `limbs` is between 1 and the length of the chain.
pub(crate) fn check_limbs(params: &CkksParams, operation: &'static str, limbs: usize) -> Result<(), CkksError> {
    let available = params.max_limbs();
    if limbs == 0 || limbs > available {
        return Err(CkksError::LimbCount { operation, limbs, available });
    }
    Ok(())
}
