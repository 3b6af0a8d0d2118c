//! Compares Hushed with Lattigo on the same input: the coefficients of an encoding, the slots of a decoding, and the
//! message error of a whole bootstrap.
//!
//! `benches/peers/lattigo -mode answers` wrote `data/lattigo.json`. Values are compared, not bytes: noise and primes
//! differ.

use std::sync::Arc;

use hushed_ckks::bootstrap::{BootstrapLiteral, Bootstrapper};
use hushed_ckks::keys::{EvalKeys, SecretKey};
use hushed_ckks::{CkksParams, Complex64, Decryptor, Encoder, Encryptor, Evaluator, Scale};
use hushed_math::poly::RnsPoly;
use hushed_math::rng::SecretRng;
use serde_json::Value;

fn answers() -> Value {
    serde_json::from_str(include_str!("../data/lattigo.json")).unwrap()
}

/// The input of both: a linear congruential generator mapped to [−1, 1), real part first.
fn inputs(slots: usize) -> Vec<Complex64> {
    let mut state = 20_251_120_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..slots).map(|_| Complex64::new(next(), next())).collect()
}

#[test]
fn encodings_have_the_same_coefficients() {
    let answers = answers();
    let expected = answers["encode"]["coefficients"].as_array().unwrap();
    let params = CkksParams::insecure_shallow(10, 1).unwrap();
    let encoder = Encoder::new(&params);
    let values = inputs(params.slots());
    let plain = encoder.encode(&values, 1, Scale::from_bits(40)).unwrap();
    let found = encoder.decode_coefficients(&plain.poly().clone().into_coeff(), Scale::ONE);
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        // Both round a transform computed in double precision.
        let difference = found - expected.as_f64().unwrap();
        assert!(difference.abs() <= 1.0, "{found} {expected}");
    }
}

/// For arbitrary coefficients, not from an encoding.
#[test]
fn coefficients_decode_to_the_same_slots() {
    let answers = answers();
    let expected = answers["decode"]["slots"].as_array().unwrap();
    let params = CkksParams::insecure_shallow(10, 1).unwrap();
    let parts = inputs(params.slots()).into_iter().flat_map(|v| [v.re, v.im]);
    let coefficients: Vec<i64> = parts.map(|x| (x * 2f64.powi(39)) as i64).collect();
    let poly = RnsPoly::from_signed(params.rlwe().basis(), &[0], &coefficients);
    let found = Encoder::new(&params).decode(&poly, Scale::from_bits(40));
    let every = found.len() / expected.len();
    assert_eq!((every, expected.len()), (8, 64));
    for (found, expected) in found.iter().step_by(every).zip(expected) {
        let part = |i: usize| expected[i].as_f64().unwrap();
        // Sums of 1,024 numbers of up to 1/2.
        assert!((found.re - part(0)).abs() < 1e-11 && (found.im - part(1)).abs() < 1e-11);
    }
}

#[test]
fn a_bootstrap_returns_the_same_message_as_precisely_as_declared() {
    let answers = answers();
    let theirs = &answers["bootstrap"];
    let params = CkksParams::insecure_test(12, 4).unwrap();
    let bootstrapper = Bootstrapper::new(&params, BootstrapLiteral::default()).unwrap();
    let mut rng = SecretRng::insecure_from_seed(3);
    let key = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
    let keys = EvalKeys::generate(&key, &bootstrapper.key_specs(), &mut rng).unwrap();
    let encoder = Arc::new(Encoder::new(&params));
    let message = inputs(params.slots());
    let plain = encoder.encode(&message, params.bootstrap_limbs(), params.default_scale()).unwrap();
    let ct = Encryptor::new(&params, &key).unwrap().encrypt(&plain, &mut rng).unwrap();
    let evaluator = Evaluator::new(&params, Arc::new(keys)).unwrap();
    let out = bootstrapper.bootstrap(&evaluator, &ct).unwrap();
    let found = Decryptor::new(&encoder, &key).unwrap().decrypt_raw(&out).unwrap();
    let worst =
        found.iter().zip(&message).flat_map(|(x, y)| [(x.re - y.re).abs(), (x.im - y.im).abs()]).fold(0.0, f64::max);
    assert!(worst < 2f64.powi(-15), "{} bits at the worst slot", -worst.log2());
    // Lattigo's has 60-bit primes and is more precise; both match the message within their stated precision.
    let least = theirs["precision_bits_min"].as_f64().unwrap();
    let bound = 2f64.powi(-15) + 2f64.powf(-least);
    for (slot, ours) in theirs["first_slots"].as_array().unwrap().iter().zip(&found) {
        let part = |i: usize| slot[i].as_f64().unwrap();
        assert!((ours.re - part(0)).abs() < bound && (ours.im - part(1)).abs() < bound);
    }
}
