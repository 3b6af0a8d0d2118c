//! What is published, listed sample by sample, so that a test can hold it against the security table.
//!
//! An RLWE sample is (a, −a·s + e + …): its security is decided by the ring degree, the distribution of s and the modulus
//! *of that sample*, which is read here from the polynomials that are actually sent and not from the parameters. A key
//! published at too large a modulus, or two samples with the same uniform part, are the mistakes this finds.

use hushed_math::{Eval, RnsPoly};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::ciphertext::{Ciphertext, SeededCiphertext};
use crate::hybrid::{EvalKeys, KeyUse};
use crate::keys::KeySet;
use crate::params::{security_limit, sparse_security_limit};

/// Where a sample comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The public key.
    PublicKey,
    /// One digit of a Galois key.
    GaloisKey {
        /// Galois element.
        element: usize,
        /// Index of the digit.
        digit: usize,
    },
    /// One digit of an evaluation key.
    EvalKey {
        /// What the key is for.
        key: KeyUse,
        /// Ciphertext primes of the key.
        limbs: usize,
        /// Special primes of the key.
        special: usize,
        /// Index of the digit.
        digit: usize,
    },
    /// A symmetric ciphertext.
    Symmetric,
    /// One half of a public-key encryption: u times a part of the public key, plus an error.
    PublicKeyHalf,
}

/// The distribution of the secret of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretDistribution {
    /// Uniform on {-1, 0, 1}, long-lived: the secret key.
    DenseTernaryKey,
    /// Uniform on {-1, 0, 1}, used for one encryption only.
    DenseTernaryOnce,
    /// Ternary with [`crate::hybrid::SPARSE_WEIGHT`] nonzero coefficients, the ephemeral secret of bootstrapping.
    Sparse,
}

/// One published RLWE sample.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedSample {
    /// Where it comes from.
    pub source: Source,
    /// What its secret is.
    pub secret: SecretDistribution,
    /// log2 of the ring degree.
    pub log_n: u32,
    /// log2 of the modulus under which it is published.
    pub log2_modulus: f64,
    /// Hash of the first limb, with its prime, of the part that must never repeat: the uniform part, or the sample itself for
    /// public-key halves. One limb, because samples of different lengths must not share it either.
    pub fingerprint: [u8; 32],
}

/// What an audit found.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum AuditFailure {
    /// A sample at a larger modulus than the table allows.
    #[error("{sample:?} exceeds the table's limit {limit:?}")]
    OverLimit {
        /// The sample.
        sample: PublishedSample,
        /// The limit, none if the degree is outside the table.
        limit: Option<f64>,
    },
    /// Two samples with one uniform part.
    #[error("{first:?} and {second:?} share their uniform part")]
    Repeated {
        /// The earlier one.
        first: Source,
        /// The later one.
        second: Source,
    },
}

/// Holds samples against the table and against each other.
///
/// # Errors
/// The first [`AuditFailure`] found.
pub fn audit(samples: &[PublishedSample]) -> Result<(), AuditFailure> {
    let mut seen = std::collections::HashMap::new();
    for sample in samples {
        let limit = match sample.secret {
            // One column of the table.
            SecretDistribution::DenseTernaryKey | SecretDistribution::DenseTernaryOnce => {
                security_limit(sample.log_n)
            }
            SecretDistribution::Sparse => sparse_security_limit(sample.log_n),
        };
        if limit.is_none_or(|limit| sample.log2_modulus > limit) {
            return Err(AuditFailure::OverLimit {
                sample: sample.clone(),
                limit,
            });
        }
        if let Some(first) = seen.insert(sample.fingerprint, sample.source) {
            return Err(AuditFailure::Repeated {
                first,
                second: sample.source,
            });
        }
    }
    Ok(())
}

impl KeySet {
    /// Every sample that publishing this key set publishes.
    pub fn published(&self) -> Vec<PublishedSample> {
        let public = sample(
            Source::PublicKey,
            SecretDistribution::DenseTernaryKey,
            &self.public.a,
        );
        let galois = self.galois.iter().flat_map(|(element, key)| {
            key.digits.iter().enumerate().map(move |(digit, pair)| {
                let source = Source::GaloisKey { element, digit };
                sample(source, SecretDistribution::DenseTernaryKey, &pair.a)
            })
        });
        std::iter::once(public).chain(galois).collect()
    }
}

impl EvalKeys {
    /// Every sample that publishing these keys publishes, one after the other: the uniform half of each is expanded for it.
    pub fn published(&self) -> impl Iterator<Item = PublishedSample> + '_ {
        self.iter().flat_map(|key| {
            let spec = key.spec();
            // The secret that masks the samples is the one that the key leads to; s(X^(1/g)) is as ternary as s.
            let secret = match spec.key {
                KeyUse::ToSparse => SecretDistribution::Sparse,
                KeyUse::Relin | KeyUse::Galois(_) | KeyUse::FromSparse | KeyUse::Raised(_) => {
                    SecretDistribution::DenseTernaryKey
                }
            };
            (0..key.gadget().digits().len()).map(move |digit| {
                let source = Source::EvalKey {
                    key: spec.key,
                    limbs: spec.limbs,
                    special: spec.special,
                    digit,
                };
                sample(source, secret, &key.uniform_half(digit))
            })
        })
    }
}

impl SeededCiphertext {
    /// The sample that sending this ciphertext publishes.
    pub fn published(&self) -> PublishedSample {
        let a = self.clone().expand().a;
        sample(Source::Symmetric, SecretDistribution::DenseTernaryKey, &a)
    }
}

impl Ciphertext {
    /// For a public-key encryption: the two samples of its ephemeral secret. (A response hides the b half
    /// under a mask and truncates both, which publishes less.)
    pub fn published_zero(&self) -> [PublishedSample; 2] {
        [&self.b, &self.a].map(|half| {
            sample(
                Source::PublicKeyHalf,
                SecretDistribution::DenseTernaryOnce,
                half,
            )
        })
    }
}

fn sample(source: Source, secret: SecretDistribution, part: &RnsPoly<Eval>) -> PublishedSample {
    let prime = |id: usize| part.basis().modulus(id).value();
    let mut hash = Sha256::new();
    if let Some((id, limb)) = part.limbs().next() {
        hash.update(prime(id).to_le_bytes());
        for residue in limb {
            hash.update(residue.to_le_bytes());
        }
    }
    let log2_modulus = part.ids().iter().map(|&id| (prime(id) as f64).log2()).sum();
    PublishedSample {
        source,
        secret,
        log_n: part.n().trailing_zeros(),
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
        assert!(matches!(
            audit(&[long.clone(), short]),
            Err(AuditFailure::Repeated { .. })
        ));
        audit(&[long, published(2, &[0, 1])]).unwrap();
    }
}
