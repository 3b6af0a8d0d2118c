//! 768 × 768 weights times 768 ciphertexts of 14 primes: as a modular matrix product, and term by term.
//!
//! Inputs and outputs of that size take 10.5 GiB each. Here 96 ciphertexts serve as inputs eight times each, and an
//! output keeps the words of its last limb: as many words are read, multiplied and written as in the whole product.
//!
//! Computing all rows takes minutes and is done only on request. The default is 64 rows, whose terms take a quarter
//! more time each.

use std::sync::{Mutex, PoisonError};

use hushed_ckks::CkksParams;
use hushed_ckks::gemm::{GemmError, GemmWeights, MemorySource, ModularGemm, Shape, Sink, Source, Strip};
use hushed_ckks::keys::KeySpecs;
use serde_json::{Value, json};

use super::{Bench, describe, with_threads};
use crate::baselines::naive;
use crate::machine::peak_memory;
use crate::{BenchError, How, median};

const SIZE: usize = 768;
const DISTINCT: usize = 96;
const LIMBS: usize = 14;
/// Rows of the weights computed by default.
const PART: usize = 64;
/// Rows that the loop computes by default, and next to whole products. All of them would take an hour, and each costs
/// the same.
const NAIVE_PART: usize = 2;
const NAIVE_WHOLE: usize = 8;
/// What `--only` must name for whole products.
const WHOLE: &str = "whole";

/// Measures the inference parameter set.
pub fn gemm(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    with_threads(how.threads, || {
        let params = CkksParams::n16_boot()?;
        let mut bench = Bench::new(&params, &KeySpecs::new())?;
        let inputs = (0..DISTINCT)
            .map(|_| {
                let values = bench.random();
                bench.encrypt(&values, LIMBS)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let gemm = ModularGemm::new(&params);
        let scale = gemm.weight_scale(LIMBS);
        let values: Vec<f64> = (0..SIZE * SIZE).map(|i| ((i * 7919 % 10_007) as f64 / 10_007.0 - 0.5) / 8.0).collect();
        let ternary: Vec<i8> = (0..SIZE * SIZE).map(|i| (i * 7919 % 3) as i8 - 1).collect();
        let cases = [
            ("weights of 40 bits", GemmWeights::from_f64(&values, SIZE, SIZE, 1.0 / 16.0, scale)?),
            ("weights of three digits", GemmWeights::with_digits(&values, SIZE, SIZE, 1.0 / 16.0, scale, 3)?),
            ("ternary weights", GemmWeights::ternary(&ternary, SIZE, SIZE)?),
        ];
        let sink = LastLimb::new(params.n());
        let mut rows = Vec::new();
        let mut row = |method: &str, outputs: usize, runs: usize, seconds: f64| {
            let terms = (outputs * SIZE) as f64;
            let products = terms * (2 * LIMBS * params.n()) as f64;
            let mut about = describe(&params);
            about["method"] = json!(method);
            about["inputs"] = json!(SIZE);
            about["distinct_inputs"] = json!(DISTINCT);
            about["outputs"] = json!(outputs);
            rows.push(json!({
                "name": "gemm",
                "params": about,
                "level": LIMBS - 1,
                "threads": how.threads,
                "seconds": seconds,
                "seconds_per_term": seconds / terms,
                "products_per_second": products / seconds,
                "runs": runs,
                "peak_rss": peak_memory(),
            }));
        };
        let runs = how.runs.min(2);
        let wanted = |method: &str, whole: bool| {
            let named = how.only.is_some_and(|only| only.contains(WHOLE));
            named == whole && how.wants(&json!({ "method": method }))
        };
        for (name, weights) in &cases {
            for (method, outputs) in [(name.to_string(), PART), (format!("{name}, {WHOLE}"), SIZE)] {
                if !wanted(&method, outputs == SIZE) {
                    continue;
                }
                let weights = weights.row_block(0..outputs)?;
                let source = Repeated(MemorySource::new(&params, &inputs)?);
                let samples = times(runs, || gemm.multiply(&weights, &source, &sink, None))?;
                row(&method, outputs, runs, median(samples));
            }
        }
        for (method, outputs) in
            [("naive loop".to_owned(), NAIVE_PART), (format!("naive loop, beside {WHOLE}"), NAIVE_WHOLE)]
        {
            if !wanted(&method, outputs == NAIVE_WHOLE) {
                continue;
            }
            // One block of columns after another; the loop costs the same for each.
            let block: Vec<f64> = values.iter().copied().take(outputs * DISTINCT).collect();
            let samples = times(runs, || {
                (0..SIZE / DISTINCT).try_for_each(|_| {
                    naive::multiply(&bench.evaluator, &block, DISTINCT, scale, &inputs, 0..outputs, None).map(drop)
                })
            })?;
            row(&method, outputs, runs, median(samples));
        }
        Ok(rows)
    })
}

/// Seconds of each run.
fn times(runs: usize, mut call: impl FnMut() -> Result<(), GemmError>) -> Result<Vec<f64>, GemmError> {
    (0..runs.max(1))
        .map(|_| {
            let start = std::time::Instant::now();
            call()?;
            Ok(start.elapsed().as_secs_f64())
        })
        .collect()
}

/// Uses every ciphertext as an input several times.
struct Repeated<'a>(MemorySource<'a>);

impl Source for Repeated<'_> {
    fn shape(&self) -> Shape {
        Shape { count: SIZE, ..self.0.shape() }
    }

    fn strip<'a>(&'a self, strip: &Strip, buffer: &'a mut Vec<u64>) -> Result<Vec<&'a [u64]>, GemmError> {
        Ok(self.0.strip(strip, buffer)?.repeat(SIZE / DISTINCT))
    }
}

/// For every output the words of one limb, overwritten by the next.
struct LastLimb(Vec<Mutex<Vec<u64>>>);

impl LastLimb {
    fn new(n: usize) -> Self {
        Self((0..SIZE).map(|_| Mutex::new(vec![0; n])).collect())
    }
}

impl Sink for LastLimb {
    fn begin(&self, _: Shape) -> Result<(), GemmError> {
        Ok(())
    }

    fn put(&self, strip: &Strip, words: &[&[u64]]) -> Result<(), GemmError> {
        for (output, words) in self.0.iter().zip(words) {
            let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
            output[strip.words.clone()].copy_from_slice(words);
        }
        Ok(())
    }
}
