//! One full-slot bootstrap with each bootstrapping preset, at 128 bits: messages uniform in the unit square in all
//! slots, and the error over all slots. Also audits the keys, checking every sample against the security table.

use std::sync::Arc;

use hushed_ckks::bootstrap::{BootstrapLiteral, Bootstrapper};
use hushed_ckks::keys::{EvalKeys, KeySpecs, KeyUse, SecretKey};
use hushed_ckks::{CkksParams, Complex64, Decryptor, Encoder, Encryptor, Evaluator};
use hushed_math::cpu::Cpu;
use hushed_math::rng::SecretRng;
use hushed_rlwe::audit::{PublishedSample, SecretDistribution, Source, audit};

fn random(rng: &mut SecretRng, count: usize) -> Vec<Complex64> {
    let mut uniform = || (rng.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    (0..count).map(|_| Complex64::new(uniform(), uniform())).collect()
}

/// Checks that every sample of a bootstrap's keys is within the table, that no two share their uniform part, and that
/// none is missing.
fn audit_keys(params: &CkksParams, specs: &KeySpecs, keys: &EvalKeys) {
    let samples: Vec<PublishedSample> = keys.published().collect();
    audit(&samples).unwrap();
    let gadgets = specs.gadgets(params.rlwe()).unwrap();
    let digits: usize = gadgets.iter().map(|gadget| gadget.digits().len()).sum();
    assert_eq!(samples.len(), digits);
    let (mut sparse, mut raised) = (0, 0);
    for sample in &samples {
        let Source::EvalKey { key, .. } = sample.source else { panic!("{:?}", sample.source) };
        raised += usize::from(matches!(key, KeyUse::Raised(_)));
        assert_eq!(sample.secret == SecretDistribution::Sparse, key == KeyUse::ToSparse);
        if key == KeyUse::ToSparse {
            sparse += 1;
            assert!((sample.log2_modulus - params.ephemeral_log2()).abs() < 1e-9);
        }
        assert!(sample.log2_modulus <= params.rlwe().log2_qp() + 1e-9);
    }
    assert_eq!(sparse, 1);
    assert!(raised > 1, "{raised} ways back from the sparse secret");
}

/// Least and mean of −log2|error| over real and imaginary parts of all slots.
fn precision(params: &Arc<CkksParams>) -> (f64, f64) {
    let bootstrapper = Bootstrapper::new(params, BootstrapLiteral::default()).unwrap();
    let specs = bootstrapper.key_specs();
    let memory = specs.memory_bytes(params.rlwe()).unwrap() + bootstrapper.plaintext_bytes();
    // This leaves inference as much again for its own keys.
    assert!(memory < 4 << 30, "{memory} bytes of keys and matrices");
    assert!(specs.artefact_bytes(params.rlwe()).unwrap() < 3 << 30);
    let mut rng = SecretRng::insecure_from_seed(16);
    let key = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
    let keys = Arc::new(EvalKeys::generate(&key, &specs, &mut rng).unwrap());
    audit_keys(params, &specs, &keys);
    let encoder = Arc::new(Encoder::new(params));
    let message = random(&mut rng, params.slots());
    let (limbs, scale) = (params.bootstrap_limbs(), params.default_scale());
    let plain = encoder.encode(&message, limbs, scale).unwrap();
    let encryptor = Encryptor::new(params, &key).unwrap();
    let ct = encryptor.encrypt(&plain, &mut rng).unwrap();
    let evaluator = Evaluator::new(params, keys).unwrap();
    let out = bootstrapper.bootstrap(&evaluator, &ct).unwrap();
    assert_eq!(out.limbs(), params.fresh_limbs());
    assert!(out.scale().matches(scale));
    let decryptor = Decryptor::new(&encoder, &key).unwrap();
    let found = decryptor.decrypt_raw(&out).unwrap();
    let errors = found.iter().zip(&message).map(|(x, y)| x - y);
    let bits: Vec<f64> =
        errors.flat_map(|error| [error.re, error.im]).map(|error| -error.abs().max(2f64.powi(-60)).log2()).collect();
    let least = bits.iter().copied().fold(f64::INFINITY, f64::min);
    let mean = bits.iter().sum::<f64>() / bits.len() as f64;
    println!("{}: least {least:.2}, mean {mean:.2} bits", params.name());
    (least, mean)
}

#[test]
fn n15_bootstraps_all_slots() {
    let (least, mean) = precision(&CkksParams::n15_boot().unwrap());
    assert!(least >= 12.0 && mean >= 15.0, "{least} {mean}");
}

#[test]
fn n16_bootstraps_all_slots() {
    // Without the vector kernels this would take minutes; N = 2^15 is tested everywhere.
    if Cpu::get().ifma().is_none() {
        println!("skipped: avx512-ifma");
        return;
    }
    let (least, mean) = precision(&CkksParams::n16_boot().unwrap());
    assert!(least >= 14.0 && mean >= 16.0, "{least} {mean}");
}
