//! Products of two encrypted matrices as in Fig. 5 of the Orion kernels paper (arXiv 2512.11135), by its method. All
//! heads of an attention at once, by our method, are in `fhe-heads`.
//!
//! Fig. 5 is by level; which levels it has is not in the paper's text. All at once take more than an hour, so that
//! levels between the two usual ones are done only on request.

use std::ops::RangeInclusive;
use std::sync::Arc;

use hushed_ckks::counters::Counts;
use hushed_ckks::{Ciphertext, CkksError, CkksParams, Complex64};
use serde_json::{Value, json};

use super::{Bench, measure, with_threads};
use crate::baselines::matmul::OuterProducts;
use crate::machine::{forget_peak, peak_memory};
use crate::{BenchError, How, counters};

const DIMENSIONS: [usize; 4] = [16, 32, 64, 128];
/// From the fewest levels that the method needs to the last one whose prime is as wide as the scale.
const LEVELS: RangeInclusive<usize> = 2..=17;
/// The fewest levels, and the level of queries and keys in a layer (`fhe-heads`).
const USUAL: [usize; 2] = [2, 13];
/// What `--only` must name for other levels.
const LEVEL: &str = "level";

/// Measures all dimensions at all levels that are asked for.
pub fn products(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    with_threads(how.threads, || {
        let params = CkksParams::n16_boot()?;
        let mut out = Vec::new();
        for (dimension, level, about) in wanted(&params, how) {
            forget_peak();
            out.push(row(&params, dimension, level, about, how)?);
        }
        Ok(out)
    })
}

/// Dimensions, levels and descriptions of what is asked for.
fn wanted(params: &CkksParams, how: How<'_>) -> Vec<(usize, usize, Value)> {
    let named = how.only.is_some_and(|only| only.contains(LEVEL));
    let levels = LEVELS.filter(|level| named || USUAL.contains(level));
    let sizes = DIMENSIONS.into_iter().flat_map(|d| levels.clone().map(move |level| (d, level)));
    let rows = sizes.map(|(dimension, level)| {
        let about = json!({
            "set": params.literal().name,
            "dimension": dimension,
            LEVEL: level,
            "method": "outer products of columns and rows",
        });
        (dimension, level, about)
    });
    rows.filter(|(.., about)| how.wants(about)).collect()
}

fn row(
    params: &Arc<CkksParams>,
    dimension: usize,
    level: usize,
    about: Value,
    how: How<'_>,
) -> Result<Value, BenchError> {
    let run = Run::new(params, dimension, level + 1)?;
    let (seconds, runs) = measure(how.runs, || run.apply().map(drop))?;
    Ok(json!({
        "name": "matmul",
        "params": about,
        "level": level,
        "levels_used": run.levels_used,
        "threads": how.threads,
        "seconds": seconds,
        "runs": runs,
        "rotations": run.counts.rotation,
        "relinearisations": run.counts.key_switch - run.counts.rotation,
        "counts": counters(&run.counts),
        "precision_bits_min": run.bits.0,
        "precision_bits_mean": run.bits.1,
        "key_bytes": run.key_bytes,
        "peak_rss": peak_memory(),
    }))
}

/// One product and its properties.
pub(super) struct Run {
    pub bench: Bench,
    method: OuterProducts,
    inputs: [Ciphertext; 2],
    counts: Counts,
    levels_used: usize,
    /// Bits of precision of the entries: worst and mean.
    bits: (f64, f64),
    key_bytes: usize,
}

impl Run {
    /// Multiplies two random complex matrices once; slots beyond them hold random numbers too.
    pub fn new(params: &Arc<CkksParams>, dimension: usize, limbs: usize) -> Result<Self, BenchError> {
        let method = OuterProducts::new(params, dimension).ok_or(BenchError::BadWeights)?;
        let specs = params.key_specs(limbs - 1, true, &method.rotations(), false)?;
        let key_bytes = specs.memory_bytes(params.rlwe()).map_err(CkksError::from)?;
        let mut bench = Bench::new(params, &specs)?;
        let [a, b] = [bench.random(), bench.random()];
        let inputs = [bench.encrypt(&a, limbs)?, bench.encrypt(&b, limbs)?];
        let before = bench.evaluator.counters().snapshot();
        let out = method.apply(&bench.encoder, &bench.evaluator, [&inputs[0], &inputs[1]])?;
        let counts = bench.evaluator.counters().snapshot().since(&before);
        let entry = |slot: usize| -> Complex64 {
            let (row, column) = (slot / dimension, slot % dimension);
            let terms = (0..dimension).map(|k| a[row * dimension + k] * b[k * dimension + column]);
            terms.sum()
        };
        let entries = dimension * dimension;
        let expected: Vec<_> = (0..entries).map(|slot| (slot, entry(slot))).collect();
        Ok(Self {
            bits: bench.precision_at(&out, &expected)?,
            levels_used: limbs - out.limbs(),
            bench,
            method,
            inputs,
            counts,
            key_bytes,
        })
    }

    /// Computes the product again.
    pub fn apply(&self) -> Result<Ciphertext, CkksError> {
        let [a, b] = &self.inputs;
        let (encoder, on) = (&self.bench.encoder, &self.bench.evaluator);
        self.method.apply(encoder, on, [a, b])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Between, Net};

    #[test]
    fn other_levels_are_measured_if_a_level_is_named() {
        let params = CkksParams::insecure_shallow(9, 3).unwrap();
        let chosen = |only| -> Vec<(usize, usize)> {
            let between = Between::new(Net::Loopback, None, None, None).unwrap();
            let (runs, threads) = (1, 1);
            let how = How { between, runs, threads, only };
            wanted(&params, how).iter().map(|&(dimension, level, _)| (dimension, level)).collect()
        };
        let usual = [16, 32, 64, 128].map(|d| [(d, 2), (d, 13)]).concat();
        assert_eq!(chosen(None), usual);
        assert_eq!(chosen(Some("64")), [(64, 2), (64, 13)]);
        let column: Vec<_> = (2..=17).map(|level| (64, level)).collect();
        assert_eq!(chosen(Some(r#""dimension":64,"level""#)), column);
        assert_eq!(chosen(Some(r#""level":7,"#)), [(16, 7), (32, 7), (64, 7), (128, 7)]);
    }

    #[test]
    fn outer_products_are_the_product_and_count_what_the_paper_says() {
        let params = CkksParams::insecure_shallow(9, 3).unwrap();
        for d in [4_usize, 16] {
            let run = Run::new(&params, d, 3).unwrap();
            assert!(run.bits.0 > 15.0, "{d}: {}", run.bits.0);
            let (counts, size) = (&run.counts, d as u64);
            let rotations = 2 * size * (1 + u64::from(size.ilog2())) - 2;
            assert_eq!(counts.rotation, rotations);
            assert_eq!(counts.key_switch - counts.rotation, size);
            assert_eq!((counts.pt_mul, run.levels_used), (2 * size, 2));
        }
        for bad in [3, 32] {
            assert!(OuterProducts::new(&params, bad).is_none());
        }
    }
}
