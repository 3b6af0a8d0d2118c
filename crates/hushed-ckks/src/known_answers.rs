//! The same bytes on every machine and with every kernel: encoding, keys, encryption and arithmetic from one seed.
//!
//! The expected values are SHA-256 hashes of this crate's output when the test was written; other tests check the
//! arithmetic against independent references. A second process runs without the 512-bit kernels and a third without the
//! floating-point multiply-add kernels, and both must print the same.

use std::process::Command;
use std::sync::Arc;

use hushed_math::rng::SecretRng;
use sha2::{Digest, Sha256};

use crate::keys::{EvalKeys, SecretKey};
use crate::{Ciphertext, CkksParams, Complex64, Encoder, Encryptor, Evaluator, SeededCiphertext};

const ANSWERS: [(&str, &str); 4] = [
    ("plaintext", "0753726dd63e6c4dda199fd6389e2fbb745489c70d801022803dddca58811a6c"),
    ("keys", "373d42c8b34972f555538a36de6b69916ec391f3024452d6fc713a658950ff08"),
    ("seeded ciphertext", "ec2aff11ec2c27741593e707b5ea45af7d9b799c8b5f5de049f99ec13fc8259e"),
    ("result", "86f3dd1c78e8cead11a8d75b2919e30b6329e3c559b12fd84cfaaeeeb467c481"),
];

/// Each child process, which runs on lesser kernels, has one of these set.
const CHILDREN: [&str; 2] = ["HUSHED_DENY_AVX512", "HUSHED_DENY_FMA"];

fn answers() -> Vec<(&'static str, String)> {
    let params = CkksParams::insecure_test(10, 3).unwrap();
    let mut rng = SecretRng::insecure_from_seed(2026);
    let key = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
    let specs = params.key_specs(7, true, &[1, -3], true).unwrap();
    let keys = EvalKeys::generate(&key, &specs, &mut rng).unwrap();
    let encoder = Encoder::new(&params);
    // Exactly representable values, so that nothing depends on library functions.
    let values: Vec<Complex64> = (0..params.slots() as i32)
        .map(|j| Complex64::new(f64::from(j % 37) / 32.0 - 0.5, f64::from(j % 53) / 64.0))
        .collect();
    let plain = encoder.encode(&values, 7, params.default_scale()).unwrap();
    let encryptor = Encryptor::new(&params, &key).unwrap();
    let seeded = encryptor.encrypt_seeded(&plain, &mut rng).unwrap();
    let keys_bytes = keys.to_bytes().unwrap();
    let evaluator = Evaluator::new(&params, Arc::new(keys)).unwrap();
    let ct = seeded.clone().expand();
    let ct = evaluator.mul_rescale(&ct, &ct).unwrap();
    let ct = evaluator.rotate(&ct, -3).unwrap();
    let ct = evaluator.add(&ct, &evaluator.conjugate(&ct).unwrap()).unwrap();
    let half = Complex64::new(0.5, -0.25);
    let ct = evaluator.mul_scalar(&ct, half, params.default_scale()).unwrap();
    let ct = evaluator.rescale(&ct).unwrap();

    let words: Vec<u8> = plain.poly().data().iter().flat_map(|w| w.to_le_bytes()).collect();
    let seeded = SeededCiphertext::list_to_bytes(&params, 7, &[seeded]).unwrap();
    let result = Ciphertext::list_to_bytes(&params, 5, &[ct]).unwrap();
    [words, keys_bytes, seeded, result].iter().zip(ANSWERS).map(|(bytes, (name, _))| (name, hex(bytes))).collect()
}

fn hex(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn seeded_work_is_what_it_was() {
    let expected = ANSWERS.map(|(name, answer)| (name, answer.to_string()));
    assert_eq!(answers(), expected);
}

#[test]
fn lesser_kernels_make_the_same_bytes() {
    for child in CHILDREN {
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "known_answers::seeded_work_is_what_it_was"])
            .env(child, "1")
            .status()
            .unwrap();
        assert!(status.success(), "{child}");
    }
}
