//! A matrix times an encrypted vector, at 128 bits, with baby and giant steps and exactly the keys they need.
//!
//! cargo run --release -p hushed-ckks --example linear_transform

use std::error::Error;
use std::sync::Arc;

use hushed_ckks::keys::{EvalKeys, KeySpecs, SecretKey};
use hushed_ckks::lintrans::{Diagonals, LinearTransform, Options};
use hushed_ckks::{CkksParams, Complex64, Decryptor, Encoder, Encryptor, Evaluator};
use hushed_math::rng::SecretRng;

/// Rows and columns.
const DIM: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let (found, expected) = product()?;
    for j in 0..4 {
        println!("row {j}: {:+.6}, in the clear {:+.6}", found[j], expected[j]);
    }
    Ok(())
}

/// The product, decrypted and in the clear.
pub fn product() -> Result<(Vec<f64>, Vec<f64>), Box<dyn Error>> {
    let params = CkksParams::n15_shallow()?;
    let limbs = 3;

    // The server's matrix, split and encoded for ciphertexts of this length.
    let rows: Vec<Vec<Complex64>> =
        (0..DIM).map(|i| (0..DIM).map(|j| Complex64::from(entry(i, j))).collect()).collect();
    let matrix = Diagonals::from_rows(DIM, &rows)?;
    let map = LinearTransform::new(&params, &matrix, limbs, Options::default())?;
    let (babies, giants) = map.key_switches();
    println!("{DIM} x {DIM}: {babies} baby and {giants} giant steps");

    // The client makes the keys for the map and encrypts the vector, repeated over all slots.
    let mut specs = KeySpecs::new();
    map.add_keys(&mut specs);
    let mut rng = SecretRng::from_os("example");
    let secret = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
    let keys = EvalKeys::generate(&secret, &specs, &mut rng)?;
    let encoder = Arc::new(Encoder::new(&params));
    let x: Vec<f64> = (0..DIM).map(|j| (j as f64 * 0.1).sin()).collect();
    let slots: Vec<Complex64> = x.iter().map(|&x| Complex64::from(x)).collect();
    let plain = encoder.encode_periodic(&slots, limbs, params.default_scale())?;
    let ct = Encryptor::new(&params, &secret)?.encrypt(&plain, &mut rng)?;

    // The server multiplies; the client decrypts.
    let evaluator = Evaluator::new(&params, Arc::new(keys))?;
    let product = map.apply(&evaluator, &ct)?;
    println!("{}", evaluator.counters().snapshot());
    let opened = Decryptor::new(&encoder, &secret)?.decrypt(&product)?;
    let found = opened.iter().take(DIM).map(|z| z.re).collect();
    let expected = (0..DIM).map(|i| x.iter().enumerate().map(|(j, x)| entry(i, j) * x).sum()).collect();
    Ok((found, expected))
}

fn entry(i: usize, j: usize) -> f64 {
    ((i * 7 + j * 3) % 11) as f64 / 11.0 - 0.5
}
