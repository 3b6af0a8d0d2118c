//! The key audit: checks every RLWE sample that key generation and encryption publish, read off the objects themselves,
//! against the security table, and that no uniform part occurs twice.

use hushed_math::RnsPoly;
use hushed_math::primes::ntt_primes;
use hushed_math::rng::SecretRng;
use hushed_rlwe::audit::{AuditFailure, PublishedSample, SecretDistribution, Source, audit};
use hushed_rlwe::hybrid::{EvalKeys, KeySpecs, KeyUse};
use hushed_rlwe::params::security_limit;
use hushed_rlwe::{KeySet, RlweLiteral, RlweParams, SecretKey};

/// Everything that one party publishes in a session under one preset, with a few ciphertexts; Galois keys are for
/// ciphertexts of at most `key_limbs` primes.
fn publish(params: &std::sync::Arc<RlweParams>, elements: &[usize], key_limbs: usize) -> Vec<PublishedSample> {
    let mut rng = SecretRng::from_os("key audit");
    let sk = SecretKey::generate(params, &mut rng);
    let set = KeySet::generate(&sk, elements, key_limbs, &mut rng).unwrap();
    let mut samples = set.published();
    for limbs in 1..=params.q_len() {
        for _ in 0..2 {
            let zero = RnsPoly::zero(params.basis(), &params.ciphertext_ids(limbs));
            samples.push(sk.encrypt_seeded(zero, &mut rng).unwrap().published());
            samples.extend(set.public.encrypt_zero(&mut rng, limbs).unwrap().published_zero());
        }
    }
    samples
}

#[test]
fn every_published_sample_is_within_the_table() {
    for (params, levels, key_limbs) in [
        (RlweParams::olt_small().unwrap(), 4, 2),
        (RlweParams::olt_full().unwrap(), 2, 3),
        // A session's keys: interleaving trees of up to 2^13 leaves, over at most two primes.
        (RlweParams::olt_full().unwrap(), 13, 2),
        // Batched products: no Galois keys.
        (RlweParams::ole().unwrap(), 0, 4),
    ] {
        let elements = params.interleave_elements(levels);
        let samples = publish(&params, &elements, key_limbs);
        audit(&samples).unwrap();

        // The list is complete: one public key, the digits of each element, three samples per pair of encryptions.
        let count = |f: &dyn Fn(&Source) -> bool| samples.iter().filter(|s| f(&s.source)).count();
        assert_eq!(count(&|s| *s == Source::PublicKey), 1);
        let digits = count(&|s| matches!(s, Source::GaloisKey { .. }));
        // Primes that the ciphertexts do not use make digits longer.
        let special = 1 + params.q_len() - key_limbs;
        assert_eq!(digits, elements.len() * key_limbs.div_ceil(special));
        assert_eq!(count(&|s| *s == Source::Symmetric), 2 * params.q_len());
        assert_eq!(count(&|s| *s == Source::PublicKeyHalf), 4 * params.q_len());

        // Each has its known modulus: Galois keys live modulo P and their primes, here all there are, everything else
        // modulo Q at most.
        for sample in &samples {
            let expected = match sample.source {
                Source::GaloisKey { .. } => params.log2_qp(),
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
fn evaluation_keys_are_within_the_table() {
    let n = 1 << 15;
    let fifty = ntt_primes(50, n, 5);
    // q_0·p_0 of 96 bits, the most that the sparse secret may see here.
    let params =
        RlweParams::new(RlweLiteral { log_n: 15, q: fifty[..4].to_vec(), p: vec![ntt_primes(46, n, 1)[0], fifty[4]] })
            .unwrap();
    let mut rng = SecretRng::from_os("key audit");
    let sk = SecretKey::generate(&params, &mut rng);
    let mut specs = KeySpecs::new();
    specs
        .relin(4, 2)
        .galois(5, 4, 2)
        .galois(5, 1, 1)
        .encapsulation(4, 2)
        // A bootstrap's way back: rotations of raised polynomials, with one digit.
        .insert(KeyUse::Raised(1), 4, 1)
        .insert(KeyUse::Raised(5), 4, 1);
    let keys = EvalKeys::generate(&sk, &specs, &mut rng).unwrap();
    let samples: Vec<_> = keys.published().collect();
    audit(&samples).unwrap();
    // The list is complete: as many samples as the keys have digits, each at its key's modulus.
    let gadgets = specs.gadgets(&params).unwrap();
    let digits: usize = gadgets.iter().map(|gadget| gadget.digits().len()).sum();
    assert_eq!(samples.len(), digits);
    let (mut sparse, mut raised) = (0, 0);
    for sample in &samples {
        let Source::EvalKey { key, limbs, special, .. } = sample.source else { panic!("{:?}", sample.source) };
        let bits = 50.0 * (limbs + special) as f64 - 4.0;
        assert!((sample.log2_modulus - bits).abs() < 0.01);
        let is_sparse = sample.secret == SecretDistribution::Sparse;
        assert_eq!(is_sparse, key == KeyUse::ToSparse);
        sparse += usize::from(is_sparse);
        raised += usize::from(matches!(key, KeyUse::Raised(_)));
        assert!(!is_sparse || sample.log2_modulus <= 96.0);
    }
    assert_eq!((sparse, raised), (1, 2));

    // A sample under the sparse secret at the others' modulus is found, and so is one in a smaller ring.
    let place = samples.iter().position(|s| s.secret == SecretDistribution::Sparse);
    for (log_n, log2_modulus, limit) in [(15, 100.0, Some(96.0)), (16, 121.5, Some(121.0)), (14, 90.0, None)] {
        let mut violated = samples.clone();
        violated[place.unwrap()].log2_modulus = log2_modulus;
        violated[place.unwrap()].log_n = log_n;
        let found = audit(&violated);
        assert!(matches!(found, Err(AuditFailure::OverLimit { limit: l, .. }) if l == limit));
    }
    let mut repeated = samples;
    repeated[1].fingerprint = repeated[0].fingerprint;
    assert!(matches!(audit(&repeated), Err(AuditFailure::Repeated { .. })));
}

#[test]
fn the_audit_finds_what_it_is_for() {
    let params = RlweParams::olt_small().unwrap();
    let samples = publish(&params, &[], 2);
    let mut large = samples.clone();
    large[1].log2_modulus = 207.5;
    assert!(matches!(audit(&large), Err(AuditFailure::OverLimit { limit: Some(207.0), .. })));
    let mut unknown = samples.clone();
    unknown[1].log_n = 11;
    assert!(matches!(audit(&unknown), Err(AuditFailure::OverLimit { limit: None, .. })));
    let mut repeated = samples;
    repeated[2].fingerprint = repeated[0].fingerprint;
    assert!(matches!(audit(&repeated), Err(AuditFailure::Repeated { first: Source::PublicKey, .. })));
}
