//! GELU and an inverse square root of encrypted values: fitted, reported, and evaluated at a requested scale, at 128
//! bits.
//!
//! cargo run --release -p hushed-ckks --example polynomial

use std::sync::Arc;

use hushed_ckks::keys::{EvalKeys, SecretKey};
use hushed_ckks::poly::{InverseSqrt, Polynomial, Schedule, evaluate};
use hushed_ckks::{CkksParams, Decryptor, Encoder, Encryptor, Evaluator};
use hushed_math::fit::minimax;
use hushed_math::rng::SecretRng;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for row in functions_of_encrypted_values()? {
        println!("{}", row.report);
        println!("  largest error over all slots: {:.2e}", row.error);
    }
    Ok(())
}

/// An evaluated function and its error.
pub struct Row {
    /// Interval, degree, error, cost.
    pub report: String,
    /// Largest difference from the function itself, relative for the root.
    pub error: f64,
}

/// GELU on [−5, 5], and 1/√x on [0.2, 20].
pub fn functions_of_encrypted_values() -> Result<Vec<Row>, Box<dyn std::error::Error>> {
    // Fits are made once, in the clear, and report their cost.
    let gelu = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_8 * (x + 0.044715 * x.powi(3))).tanh());
    let fit = minimax(gelu, |_| 1.0, 20, -5.0, 5.0)?;
    let polynomial = Polynomial::from_fit(&fit)?;
    let root = InverseSqrt::new(0.2, 20.0, 3, 1e-3)?;
    let products = Schedule::new(&[&polynomial]).cost().products;
    let reports = [
        format!("GELU: {fit}, {products} products, {} levels with the interval", polynomial.depth()),
        root.report().to_string(),
    ];

    let params = CkksParams::n15_shallow()?;
    let limbs = 1 + polynomial.depth().max(root.levels());
    let mut rng = SecretRng::from_os("example");
    let secret = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
    let keys = EvalKeys::generate(&secret, &params.key_specs(limbs, true, &[], false)?, &mut rng)?;
    let encoder = Arc::new(Encoder::new(&params));
    let encryptor = Encryptor::new(&params, &secret)?;
    let slots = params.slots();
    let spread = |low: f64, high: f64| -> Vec<f64> {
        (0..slots).map(|j| low + (high - low) * j as f64 / (slots - 1) as f64).collect()
    };
    let scale = params.default_scale();
    let (x, z) = (spread(-5.0, 5.0), spread(0.2, 20.0));
    let ct_x = encryptor.encrypt(&encoder.encode_real(&x, limbs, scale)?, &mut rng)?;
    let ct_z = encryptor.encrypt(&encoder.encode_real(&z, limbs, scale)?, &mut rng)?;

    // The server.
    let evaluator = Evaluator::new(&params, Arc::new(keys))?;
    let gelu_x = evaluate(&evaluator, &ct_x, &polynomial, scale)?;
    let root_z = root.evaluate(&evaluator, &ct_z, scale)?;

    // The client.
    let decryptor = Decryptor::new(&encoder, &secret)?;
    let gelu_x = decryptor.decrypt(&gelu_x)?;
    let root_z = decryptor.decrypt(&root_z)?;
    let largest = |errors: Vec<f64>| errors.into_iter().fold(0.0, f64::max);
    let errors = [
        largest(gelu_x.iter().zip(&x).map(|(y, x)| (y.re - gelu(*x)).abs()).collect()),
        largest(root_z.iter().zip(&z).map(|(y, z)| (y.re * z.sqrt() - 1.0).abs()).collect()),
    ];
    let rows = reports.into_iter().zip(errors);
    Ok(rows.map(|(report, error)| Row { report, error }).collect())
}
