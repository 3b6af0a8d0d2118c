//! The product of two encrypted vectors, and a rotation of it, at 128 bits.
//!
//! cargo run --release -p hushed-ckks --example encrypt

use std::sync::Arc;

use hushed_ckks::keys::{EvalKeys, SecretKey};
use hushed_ckks::{CkksError, CkksParams, Decryptor, Encoder, Encryptor, Evaluator};
use hushed_math::rng::SecretRng;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (found, expected) = product_and_rotation()?;
    for j in 0..4 {
        println!("slot {j}: {:+.6}, in the clear {:+.6}", found[j], expected[j]);
    }
    Ok(())
}

/// The first slots of x·y rotated by one, decrypted and in the clear.
pub fn product_and_rotation() -> Result<(Vec<f64>, Vec<f64>), CkksError> {
    // The client: parameters, a secret key, and the evaluation keys that this computation needs.
    let params = CkksParams::n15_shallow()?;
    let mut rng = SecretRng::from_os("example");
    let limbs = 3;
    let secret = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
    let specs = params.key_specs(limbs, true, &[1], false)?;
    let keys = EvalKeys::generate(&secret, &specs, &mut rng)?;

    let encoder = Arc::new(Encoder::new(&params));
    let encryptor = Encryptor::new(&params, &secret)?;
    let x: Vec<f64> = (0..params.slots()).map(|j| (j as f64 / 100.0).sin()).collect();
    let y: Vec<f64> = (0..params.slots()).map(|j| (j as f64 / 70.0).cos()).collect();
    let scale = params.default_scale();
    let ct_x = encryptor.encrypt(&encoder.encode_real(&x, limbs, scale)?, &mut rng)?;
    let ct_y = encryptor.encrypt(&encoder.encode_real(&y, limbs, scale)?, &mut rng)?;

    // The server sees only ciphertexts and evaluation keys.
    let evaluator = Evaluator::new(&params, Arc::new(keys))?;
    let product = evaluator.mul_rescale(&ct_x, &ct_y)?;
    let turned = evaluator.rotate(&product, 1)?;

    // The client decrypts, rounding to the bits that the error leaves.
    let decryptor = Decryptor::new(&encoder, &secret)?;
    let found = decryptor.decrypt(&turned)?;
    let found = found.iter().take(4).map(|z| z.re).collect();
    let expected = (1..5).map(|j| x[j] * y[j]).collect();
    Ok((found, expected))
}
