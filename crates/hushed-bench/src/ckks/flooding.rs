//! The cost of flooded decryption, by circuit: the norm of the error as measured, as estimated for independent errors,
//! and as bounded for any errors; and the bits lost to noise by the bound and by the estimate.

use hushed_ckks::lintrans::{Diagonals, LinearTransform, Options};
use hushed_ckks::{Ciphertext, CkksError, CkksParams, Complex64, Opening, Scale};
use serde_json::{Value, json};

use super::{Bench, describe, with_threads};
use crate::{BenchError, How};

/// Primes of the inputs: seven levels.
const LIMBS: usize = 8;
/// Terms of the sums, and slots added up by a rotation sum.
const TERMS: usize = 64;
/// Factors of the chain of products.
const FACTORS: usize = 7;
/// Rows of the matrix, all of whose diagonals are used.
const ROWS: usize = 64;
/// The parameters s and τ of the openings.
const SECURITY: u32 = 30;
const DECRYPTIONS: u64 = 1 << 10;

/// Measures the set without bootstrapping.
pub fn flooding(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    with_threads(how.threads, || {
        let params = CkksParams::n15_shallow()?;
        let matrix = matrix()?;
        let map = LinearTransform::new(&params, &matrix, LIMBS, Options::default());
        let map = map.map_err(CkksError::from)?;
        let steps: Vec<i64> = powers().collect();
        let mut specs = params.key_specs(LIMBS, true, &steps, false)?;
        map.add_keys(&mut specs);
        let mut bench = Bench::new(&params, &specs)?;
        let mut rows = Vec::new();
        let mut row = |name: &str, bench: &Bench, ct: &Ciphertext, expected: &[Complex64]| {
            let about = json!({ "circuit": name, "set": params.literal().name });
            if how.wants(&about) {
                rows.push(priced(name, bench, ct, expected)?);
            }
            Ok::<(), CkksError>(())
        };

        let values = bench.random();
        let ct = bench.encrypt(&values, LIMBS)?;
        row("fresh", &bench, &ct, &values)?;

        let (mut sum, mut total) = (ct.clone(), values.clone());
        for _ in 1..TERMS {
            let other = bench.random();
            let term = bench.encrypt(&other, LIMBS)?;
            bench.evaluator.add_assign(&mut sum, &term)?;
            total.iter_mut().zip(&other).for_each(|(x, y)| *x += y);
        }
        row("sum of 64", &bench, &sum, &total)?;

        let evaluator = &bench.evaluator;
        let mut doubled = ct.clone();
        for _ in 0..TERMS.ilog2() {
            let same = doubled.clone();
            evaluator.add_assign(&mut doubled, &same)?;
        }
        let total: Vec<_> = values.iter().map(|x| x * TERMS as f64).collect();
        row("one 64 times", &bench, &doubled, &total)?;

        let (mut power, mut total) = (ct.clone(), values.clone());
        for _ in 1..FACTORS {
            power = evaluator.mul_rescale(&power, &ct)?;
            total.iter_mut().zip(&values).for_each(|(x, y)| *x *= y);
        }
        row("product of 7", &bench, &power, &total)?;

        let (mut sum, mut total) = (ct.clone(), values.clone());
        for step in powers() {
            let turned = evaluator.rotate(&sum, step)?;
            evaluator.add_assign(&mut sum, &turned)?;
            let mut rotated = total.clone();
            rotated.rotate_left(step as usize);
            total.iter_mut().zip(&rotated).for_each(|(x, y)| *x += y);
        }
        row("rotation sum of 64", &bench, &sum, &total)?;

        let period: Vec<_> = values.iter().take(ROWS).copied().collect();
        let repeated = period.iter().copied().cycle();
        let repeated: Vec<_> = repeated.take(params.slots()).collect();
        let once = matrix.apply(&period).map_err(CkksError::from)?;
        let total: Vec<_> = once.into_iter().cycle().take(params.slots()).collect();
        let ct = bench.encrypt(&repeated, LIMBS)?;
        let product = map.apply(&bench.evaluator, &ct)?;
        row("64 × 64 matrix", &bench, &product, &total)?;

        // Room for the noise: a scale of 52 bits.
        let wide = Scale::from_bits(52);
        let plain = bench.encoder.encode(&values, LIMBS, wide)?;
        let ct = bench.encryptor.encrypt(&plain, &mut bench.rng)?;
        row("fresh, scale 2^52", &bench, &ct, &values)?;
        Ok(rows)
    })
}

fn priced(name: &str, bench: &Bench, ct: &Ciphertext, expected: &[Complex64]) -> Result<Value, CkksError> {
    let params = &bench.params;
    let found = bench.decryptor.decrypt_raw(ct)?;
    let squares = found.iter().zip(expected).map(|(x, y)| (x - y).norm_sqr());
    // The norm over all coefficients is the root mean square over the slots.
    let found = (squares.sum::<f64>() / params.slots() as f64).sqrt();
    let noise = ct.noise();
    let estimated = noise.deviation() * 2f64.sqrt();
    let opening = Opening::Flooded { security: SECURITY, decryptions: DECRYPTIONS };
    // Even if nothing would be left, the cost is known.
    let (cost, left) = match bench.decryptor.open(ct, opening) {
        Ok(opened) => {
            let certified = noise.min_bits(params.slots()).unwrap_or(f64::NAN);
            (opened.flooding_bits, certified - opened.flooding_bits)
        }
        Err(CkksError::FloodingTooLarge { cost_bits, left_bits }) => (cost_bits, left_bits),
        Err(other) => return Err(other),
    };
    let mut about = describe(params);
    about["circuit"] = json!(name);
    about["security"] = json!(SECURITY);
    about["decryptions"] = json!(DECRYPTIONS);
    Ok(json!({
        "name": "flooding",
        "params": about,
        "error_bits": -found.log2(),
        "error_bits_estimated": -estimated.log2(),
        "error_bits_bound": -noise.norm().log2(),
        "flooding_bits": cost,
        "bits_left": left,
    }))
}

/// The rotations of the rotation sum.
fn powers() -> impl Iterator<Item = i64> {
    (0..TERMS.ilog2()).map(|k| 1 << k)
}

/// Entries of both signs within 1/8, for rows with a norm of about 1/2.
fn matrix() -> Result<Diagonals, CkksError> {
    let entry = |r: usize, c: usize| ((r * 31 + c * 17) % 61) as f64 / 244.0 - 0.125;
    let row = |r: usize| (0..ROWS).map(|c| entry(r, c).into()).collect();
    let rows: Vec<Vec<Complex64>> = (0..ROWS).map(row).collect();
    Ok(Diagonals::from_rows(ROWS, &rows)?)
}
