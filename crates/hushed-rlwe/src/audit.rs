//! Lists what is published, sample by sample, so that a test can check it against the security table.
//!
//! An RLWE sample is (a, −a·s + e + …). Its security is decided by the ring degree, the distribution of s and the
//! modulus *of that sample*, which is read here from the polynomials that are actually sent, not from the parameters.
//! This finds keys published at too large a modulus, and samples that share a uniform part.

use std::collections::HashMap;

use hushed_math::{Eval, RnsBasis, RnsPoly};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::ciphertext::{Ciphertext, SeededCiphertext};
use crate::hybrid::{EvalKeys, KeyUse, SwitchKey};
use crate::keys::{KeySet, PublicKey};
use crate::params::{RlweParams, security_limit, sparse_security_limit};

/// Where a sample comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The public key.
    PublicKey,
    /// One digit of a Galois key.
    GaloisKey {
        /// The Galois element.
        element: usize,
        /// The index of the digit.
        digit: usize,
    },
    /// One digit of an evaluation key.
    EvalKey {
        /// The use of the key.
        key: KeyUse,
        /// Ciphertext primes of the key.
        limbs: usize,
        /// Special primes of the key.
        special: usize,
        /// The index of the digit.
        digit: usize,
    },
    /// A symmetric ciphertext.
    Symmetric,
    /// One half of a public-key encryption: u times a part of the public key, plus an error.
    PublicKeyHalf,
}

/// The distribution of a sample's secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretDistribution {
    /// Uniform on {-1, 0, 1} and long-lived: the secret key.
    DenseTernaryKey,
    /// Uniform on {-1, 0, 1} and used for a single encryption.
    DenseTernaryOnce,
    /// Ternary with [`crate::hybrid::SPARSE_WEIGHT`] nonzero coefficients: bootstrapping's ephemeral secret.
    Sparse,
}

/// One published RLWE sample.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedSample {
    /// Where it comes from.
    pub source: Source,
    /// The distribution of its secret.
    pub secret: SecretDistribution,
    /// log2 of the ring degree.
    pub log_n: u32,
    /// log2 of the modulus at which it is published.
    pub log2_modulus: f64,
    /// Hash of the first limb, with its prime, of the part that must never repeat: the uniform part, or the sample
    /// itself for public-key halves. Only one limb, because samples of different lengths must not share it either.
    pub fingerprint: [u8; 32],
}

/// A failed audit.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum AuditFailure {
    /// A sample exceeds the modulus that the table allows.
    #[error("{sample:?} exceeds the table's limit {limit:?}")]
    OverLimit {
        /// The sample.
        sample: PublishedSample,
        /// The limit; `None` if the degree is outside the table.
        limit: Option<f64>,
    },
    /// Two samples share a uniform part.
    #[error("{first:?} and {second:?} share their uniform part")]
    Repeated {
        /// The earlier one.
        first: Source,
        /// The later one.
        second: Source,
    },
}

/// Checks samples against the table and against each other.
///
/// # Errors
/// The first [`AuditFailure`] found.
pub fn audit(samples: &[PublishedSample]) -> Result<(), AuditFailure> {
    let mut auditor = Auditor::new();
    samples.iter().try_for_each(|sample| auditor.hold(sample.clone()))
}

/// Audits samples one by one, before each is published: a set of keys is larger than memory.
pub struct Auditor {
    seen: HashMap<[u8; 32], Source>,
    table: bool,
}

impl Auditor {
    /// An auditor for which nothing has been published yet.
    #[must_use]
    pub fn new() -> Self {
        Self { seen: HashMap::new(), table: true }
    }

    /// As [`Auditor::new`], except that for test rings made without any limit, samples are only checked against each
    /// other.
    #[must_use]
    pub fn of(params: &RlweParams) -> Self {
        Self { table: !params.is_insecure(), ..Self::new() }
    }

    /// Checks one more sample against the table and the earlier ones.
    ///
    /// # Errors
    /// [`AuditFailure`] if it fails.
    pub fn hold(&mut self, sample: PublishedSample) -> Result<(), AuditFailure> {
        let limit = match sample.secret {
            // One column of the table covers both.
            SecretDistribution::DenseTernaryKey | SecretDistribution::DenseTernaryOnce => security_limit(sample.log_n),
            SecretDistribution::Sparse => sparse_security_limit(sample.log_n),
        };
        if self.table && limit.is_none_or(|limit| sample.log2_modulus > limit) {
            return Err(AuditFailure::OverLimit { sample, limit });
        }
        match self.seen.insert(sample.fingerprint, sample.source) {
            Some(first) => Err(AuditFailure::Repeated { first, second: sample.source }),
            None => Ok(()),
        }
    }
}

impl Default for Auditor {
    fn default() -> Self {
        Self::new()
    }
}

impl KeySet {
    /// Every sample published with this key set.
    pub fn published(&self) -> Vec<PublishedSample> {
        let public = self.public.published();
        let galois = self.galois.iter().flat_map(|(element, key)| {
            key.digits.iter().enumerate().map(move |(digit, pair)| {
                let source = Source::GaloisKey { element, digit };
                sample(source, SecretDistribution::DenseTernaryKey, &pair.a)
            })
        });
        std::iter::once(public).chain(galois).collect()
    }
}

impl PublicKey {
    /// The sample published with this key.
    pub fn published(&self) -> PublishedSample {
        sample(Source::PublicKey, SecretDistribution::DenseTernaryKey, &self.a)
    }
}

impl EvalKeys {
    /// Every sample published with these keys, one after the other.
    pub fn published(&self) -> impl Iterator<Item = PublishedSample> + '_ {
        self.iter().flat_map(SwitchKey::published)
    }
}

impl SwitchKey {
    /// Every sample published with this key, one per digit; expands one limb of the uniform half of each.
    pub fn published(&self) -> impl Iterator<Item = PublishedSample> + '_ {
        let spec = self.spec();
        // The masking secret is the one that the key leads to; s(X^(1/g)) is as ternary as s.
        let secret = match spec.key {
            KeyUse::ToSparse => SecretDistribution::Sparse,
            KeyUse::Relin | KeyUse::Galois(_) | KeyUse::FromSparse | KeyUse::Raised(_) => {
                SecretDistribution::DenseTernaryKey
            }
        };
        (0..self.gadget().digits().len()).map(move |digit| {
            let source = Source::EvalKey { key: spec.key, limbs: spec.limbs, special: spec.special, digit };
            let (ids, first) = self.published_part(digit);
            sample_of(source, secret, self.params.basis(), &ids, &first)
        })
    }
}

impl SeededCiphertext {
    /// The sample published with this ciphertext.
    pub fn published(&self) -> PublishedSample {
        let a = self.clone().expand().a;
        sample(Source::Symmetric, SecretDistribution::DenseTernaryKey, &a)
    }
}

impl Ciphertext {
    /// For a public-key encryption, the two samples of its ephemeral secret. (A response hides the b half under a mask
    /// and truncates both halves, which publishes less.)
    pub fn published_zero(&self) -> [PublishedSample; 2] {
        [&self.b, &self.a].map(|half| sample(Source::PublicKeyHalf, SecretDistribution::DenseTernaryOnce, half))
    }
}

fn sample(source: Source, secret: SecretDistribution, part: &RnsPoly<Eval>) -> PublishedSample {
    let first = part.limbs().next().map_or(&[][..], |(_, limb)| limb);
    sample_of(source, secret, part.basis(), part.ids(), first)
}

/// The sample modulo the primes `ids` whose uniform part has this first limb.
fn sample_of(
    source: Source,
    secret: SecretDistribution,
    basis: &RnsBasis,
    ids: &[usize],
    first: &[u64],
) -> PublishedSample {
    let prime = |id: usize| basis.modulus(id).value();
    let mut hash = Sha256::new();
    if let Some(&id) = ids.first() {
        hash.update(prime(id).to_le_bytes());
        for residue in first {
            hash.update(residue.to_le_bytes());
        }
    }
    let log2_modulus = ids.iter().map(|&id| (prime(id) as f64).log2()).sum();
    PublishedSample {
        source,
        secret,
        log_n: basis.n().trailing_zeros(),
        log2_modulus,
        fingerprint: hash.finalize().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ciphertext::{StreamDomain, uniform};
    use crate::params::RlweParams;
    use hushed_math::rng::PublicSeed;

    #[test]
    fn a_seed_shared_by_keys_of_different_lengths_is_found() {
        let params = RlweParams::olt_full().unwrap();
        let published = |seed: u8, ids: &[usize]| {
            let seed = PublicSeed([seed; 16]);
            let a = uniform(&seed, StreamDomain::PublicKey, params.basis(), ids);
            sample(Source::PublicKey, SecretDistribution::DenseTernaryKey, &a)
        };
        let (long, short) = (published(1, &[0, 1, 2]), published(1, &[0, 1]));
        assert!(matches!(audit(&[long.clone(), short]), Err(AuditFailure::Repeated { .. })));
        audit(&[long, published(2, &[0, 1])]).unwrap();
    }
}
