//! ENSI's algorithms as printed ([`baselines::ensi`]), beside ours in the rows of their kernels. A field says what was
//! measured on ciphertexts, counted on shapes, simulated with the errors of ciphertexts, or stated by the paper.

use std::time::Instant;

use hushed_ckks::poly::Arithmetic;
use hushed_ckks::{Ciphertext, CkksParams};
use hushed_fhe::simulate::{Op, Simulator, Vector};
use hushed_fhe::{FheError, LinearMap, Slots};
use hushed_model::StepId;
use serde_json::{Value, json};

use super::bed::{Bed, Normal, counted, rotations};
use crate::BenchError;
use crate::baselines::ensi::{pcmm, rms_norm, roots, rope};

/// Mean squares that algorithm 3 is fitted for: those of the rows lie within. The paper does not give its interval.
const MEAN_SQUARES: (f64, f64) = (0.1, 8.0);

/// Degree of the square root and the inverse, the higher of the paper's Table II.
const DEGREE: usize = 60;

/// Slots of the simulation of algorithm 3.
const SIMULATED: usize = 2048;

/// Algorithm 1, timed once. `expected`: the first output.
pub fn product(
    bed: &Bed,
    map: &LinearMap,
    columns: &[&Ciphertext],
    expected: impl Fn(usize) -> f64,
) -> Result<Value, BenchError> {
    let start = Instant::now();
    let found = pcmm(&bed.on, map, columns)?;
    let seconds = start.elapsed().as_secs_f64();
    let first = found.first().ok_or(BenchError::BadWeights)?;
    let additions = map.weights.iter().filter(|&&w| w != 0.0).count();
    Ok(json!({
        "measured": { "seconds": seconds, "runs": 1, "error": bed.error(first, expected)? },
        "counted": { "additions": additions },
    }))
}

/// Ours, which takes `width`/2 products of pairs, and algorithm 2, for the queries or the keys of one head.
pub fn positions(limbs: usize, width: usize) -> Result<[Value; 2], BenchError> {
    let params = CkksParams::n16_boot()?;
    type Turn = fn(&Simulator, &Vector) -> Result<Vector, FheError>;
    let count = |vectors: usize, turn: Turn| -> Result<Value, BenchError> {
        let mut levels = 0;
        let counts = counted(&params, |on| {
            let x = on.vector(Vec::new(), limbs)?;
            for _ in 0..vectors {
                levels = limbs - on.limbs(&turn(on, &x)?);
            }
            Ok(())
        })?;
        let products = counts.total(Op::MulVector);
        Ok(json!({ "levels": levels, "rotations": rotations(&counts), "plaintext_products": products }))
    };
    let ours = count(width / 2, |on, x| on.mul_pairs(x, &[], on.default_scale()))?;
    let printed = count(width, |on, x| rope(on, x, &[], &[]))?;
    Ok([json!({ "counted_per_head": ours }), json!({ "counted_per_head": printed, "stated": { "levels": 1 } })])
}

/// Algorithm 3 of this width: its levels, and its mean error on rows with a root mean square from 0.5 to 1.8.
pub fn norm(width: usize) -> Result<Value, BenchError> {
    let params = CkksParams::n16_boot()?;
    let on = Simulator::new(&params, SIMULATED)?.with_errors(1);
    let size = |slot: usize| 0.5 + 1.3 * (slot * 7919 % 10_007) as f64 / 10_007.0;
    let mut random = Normal::new(1);
    let mut column = || -> Vec<f64> { (0..SIMULATED).map(|s| random.next() * size(s)).collect() };
    let table: Vec<Vec<f64>> = (0..width).map(|_| column()).collect();
    let roots = roots(DEGREE, MEAN_SQUARES).map_err(FheError::from)?;
    let columns = table.iter().map(|v| on.vector(v.clone(), on.top()));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    let at = StepId::outside("norm");
    let (found, [before, after]) = rms_norm(&on, at, &columns, &vec![1.0; width], &roots)?;
    let mut sum = 0.0;
    for slot in 0..SIMULATED {
        let square: f64 = table.iter().map(|x| x[slot] * x[slot]).sum();
        let root = (square / width as f64).sqrt();
        let errors = found.iter().zip(&table);
        sum += errors.map(|(y, x)| (y.values()[slot] - x[slot] / root).abs()).sum::<f64>();
    }
    Ok(json!({
        "degree": DEGREE,
        "mean_squares": MEAN_SQUARES,
        "counted": levels(before, after, on.tally().counts().total(Op::Bootstrap)),
        "simulated": { "mean_error": sum / (width * SIMULATED) as f64, "slots": SIMULATED },
        "stated": levels(9, 10, 1),
    }))
}

/// What a norm uses.
pub fn levels(before: usize, after: usize, bootstraps: u64) -> Value {
    json!({ "levels_before_bootstrap": before, "levels_after_bootstrap": after, "bootstraps": bootstraps })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of docs/ensi.md.
    #[test]
    fn positions_and_norms_as_printed_take_more() {
        let [ours, theirs] = positions(14, 96).unwrap().map(|v| v["counted_per_head"].clone());
        let expected = |levels: u64, rotations: u64, products: u64| json!({ "levels": levels, "rotations": rotations, "plaintext_products": products });
        assert_eq!(ours, expected(1, 0, 48));
        assert_eq!(theirs, expected(2, 192, 384));
        let norm = norm(128).unwrap();
        assert_eq!(norm["counted"], levels(9, 9, 1));
        let error = norm["simulated"]["mean_error"].as_f64().unwrap();
        println!("{error:e}");
        assert!(error < 4e-5, "{error:e}");
    }
}
