//! The key audit: every RLWE sample that key generation and encryption publish, read off the objects themselves, is
//! held against the security table, and no uniform part occurs twice.

use hushed_math::RnsPoly;
use hushed_math::rng::SecretRng;
use hushed_rlwe::audit::{AuditFailure, PublishedSample, SecretDistribution, Source, audit};
use hushed_rlwe::params::security_limit;
use hushed_rlwe::{KeySet, RlweParams, SecretKey};

/// Everything that one party publishes in a session under one preset, ciphertexts in small numbers; Galois keys are for
/// ciphertexts of at most `key_limbs` primes.
fn publish(
    params: &std::sync::Arc<RlweParams>,
    elements: &[usize],
    key_limbs: usize,
) -> Vec<PublishedSample> {
    let mut rng = SecretRng::from_os("key audit");
    let sk = SecretKey::generate(params, &mut rng);
    let set = KeySet::generate_for(&sk, elements, key_limbs, &mut rng).unwrap();
    let mut samples = set.published();
    for limbs in 1..=params.q_len() {
        for _ in 0..2 {
            let zero = RnsPoly::zero(params.basis(), &params.ciphertext_ids(limbs));
            samples.push(sk.encrypt_seeded(zero, &mut rng).unwrap().published());
            samples.extend(
                set.public
                    .encrypt_zero(&mut rng, limbs)
                    .unwrap()
                    .published_zero(),
            );
        }
    }
    samples
}

#[test]
fn every_published_sample_is_within_the_table() {
    for (params, levels, key_limbs) in [
        (RlweParams::olt_small().unwrap(), 4, 2),
        (RlweParams::olt_full().unwrap(), 2, 3),
        // A session's keys: interleaving trees of up to 2^13 leaves, of at most two primes.
        (RlweParams::olt_full().unwrap(), 13, 2),
        // Batched products: no Galois keys.
        (RlweParams::ole().unwrap(), 0, 4),
    ] {
        let elements = params.interleave_elements(levels);
        let samples = publish(&params, &elements, key_limbs);
        audit(&samples).unwrap();

        // The list is complete: one public key, a digit a prime and element, three samples an encryption.
        let count = |f: &dyn Fn(&Source) -> bool| samples.iter().filter(|s| f(&s.source)).count();
        assert_eq!(count(&|s| *s == Source::PublicKey), 1);
        let digits = count(&|s| matches!(s, Source::GaloisKey { .. }));
        assert_eq!(digits, elements.len() * key_limbs);
        assert_eq!(count(&|s| *s == Source::Symmetric), 2 * params.q_len());
        assert_eq!(count(&|s| *s == Source::PublicKeyHalf), 4 * params.q_len());

        // And says what is known of each: Galois keys live modulo P and their primes, everything else modulo Q at most.
        for sample in &samples {
            let expected = match sample.source {
                Source::GaloisKey { .. } => {
                    let all = params.log2_q(params.q_len());
                    params.log2_qp() - all + params.log2_q(key_limbs)
                }
                Source::PublicKey => params.log2_q(params.q_len()),
                _ => sample.log2_modulus.min(params.log2_q(params.q_len())),
            };
            assert!((sample.log2_modulus - expected).abs() < 1e-9);
            assert!(sample.log2_modulus <= security_limit(params.log_n()).unwrap());
            let once = sample.source == Source::PublicKeyHalf;
            assert_eq!(once, sample.secret == SecretDistribution::DenseTernaryOnce);
        }
    }
}

#[test]
fn the_audit_finds_what_it_is_for() {
    let params = RlweParams::olt_small().unwrap();
    let samples = publish(&params, &[], 2);
    let mut large = samples.clone();
    large[1].log2_modulus = 207.5;
    assert!(matches!(
        audit(&large),
        Err(AuditFailure::OverLimit {
            limit: Some(207.0),
            ..
        })
    ));
    let mut unknown = samples.clone();
    unknown[1].log_n = 11;
    assert!(matches!(
        audit(&unknown),
        Err(AuditFailure::OverLimit { limit: None, .. })
    ));
    let mut repeated = samples;
    repeated[2].fingerprint = repeated[0].fingerprint;
    assert!(matches!(
        audit(&repeated),
        Err(AuditFailure::Repeated {
            first: Source::PublicKey,
            ..
        })
    ));
}
