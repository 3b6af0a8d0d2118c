//! A roofline of the engine's primitives (Williams et al. 2009; for CKKS the Orion kernels paper, §V): modular products
//! per byte.
//!
//! An operation is one modular product with its sum. The evaluator counts them; a transform has N/2·log2 N. Bytes are
//! those that a call cannot avoid: operands and encoded plaintexts read once, results written once, and the stored half
//! of a key (the other half is expanded from a seed). Intermediate results that a call writes to memory and reads back
//! are not counted, so a point below the roof may show that the caches did not hold them. Peaks, and the time of a
//! single transform, are measured in the same run.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use hushed_ckks::bootstrap::{BootstrapLiteral, Bootstrapper};
use hushed_ckks::gemm::{GemmError, GemmWeights, ModularGemm};
use hushed_ckks::{Ciphertext, CkksError, CkksParams, Complex64, Counts, Evaluator};
use hushed_math::cpu::Cpu;
use hushed_math::primes::ntt_primes;
use hushed_math::{Eval, Modulus, Pointwise, RnsPoly};
use rayon::prelude::*;
use serde_json::{Value, json};

use super::{Bench, describe, maps, matmul, measure, with_threads};
use crate::{BenchError, How};

/// Rescales left.
const LEVELS: [usize; 5] = [2, 6, 13, 20, 28];
/// Rotations of one ciphertext that share one decomposition.
const HOISTED: i64 = 8;
const WORD: f64 = 8.0;
/// Words per cache line.
const LINE: usize = 8;
/// The fewest words read to measure reading: more than any cache holds.
const READ_WORDS: usize = 1 << 26;
/// Streams of the loop that measures reading.
const STREAMS: usize = 2;

/// Inputs and outputs of the map of scalars, and its level.
const SCALARS: [usize; 3] = [384, 64, 13];
/// Dimension and level of the product of encrypted matrices.
const MATRICES: [usize; 2] = [64, 13];
/// Bootstraps per call.
const TOGETHER: usize = 4;

/// Products of a call that the evaluator does not count, and the fewest bytes that it moves besides keys.
#[derive(Clone, Copy)]
struct Work {
    products: f64,
    bytes: f64,
}

impl Work {
    /// Bytes, and no products besides those counted.
    fn moved(bytes: f64) -> Work {
        Work { products: 0.0, bytes }
    }
}

/// The rows so far, and what they need.
struct Rows<'a> {
    how: How<'a>,
    about: Value,
    n: f64,
    /// Seconds of one transform.
    transform: f64,
    rows: Vec<Value>,
}

impl Rows<'_> {
    /// Measures a call at a level.
    fn row(
        &mut self,
        (name, level): (&str, usize),
        evaluator: &Evaluator,
        fixed: Work,
        call: &mut dyn FnMut() -> Result<(), CkksError>,
    ) -> Result<(), CkksError> {
        let before = evaluator.counters().snapshot();
        call()?;
        let counts = evaluator.counters().snapshot().since(&before);
        let (seconds, runs) = measure(self.how.runs, call)?;
        let products = fixed.products + counted(&counts, self.n);
        let bytes = fixed.bytes + counts.key_limbs as f64 * self.n * WORD;
        self.rows.push(json!({
            "name": format!("roofline.{name}"),
            "params": self.about,
            "level": level,
            "threads": self.how.threads,
            "seconds": seconds,
            "runs": runs,
            "products": products,
            "bytes_moved": bytes,
            "intensity": products / bytes,
            "products_per_second": products / seconds,
            "bytes_per_second": bytes / seconds,
            "transform_seconds": counts.ntt as f64 * self.transform / self.how.threads as f64,
        }));
        Ok(())
    }
}

/// Products of what was counted.
fn counted(counts: &Counts, n: f64) -> f64 {
    counts.products as f64 * n + counts.ntt as f64 * n / 2.0 * n.log2()
}

/// Measures the peaks of the machine, then the primitives of the inference parameter set, and what is built from them:
/// maps of scalars and of slots, a product of matrices, bootstraps.
pub fn roofline(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    with_threads(how.threads, || {
        let params = CkksParams::n16_boot()?;
        let (peaks, transform) = peaks(how.threads, &params)?;
        let mut rows = Rows { how, about: describe(&params), n: params.n() as f64, transform, rows: vec![peaks] };
        for level in LEVELS {
            if how.wants(&json!({ "level": level })) {
                primitives(level, &params, &mut rows)?;
            }
        }
        for (name, composed) in COMPOSED {
            if how.wants(&json!({ "name": name })) {
                composed(&params, &mut rows)?;
            }
        }
        Ok(rows.rows)
    })
}

type Composed = fn(&Arc<CkksParams>, &mut Rows<'_>) -> Result<(), BenchError>;

/// What is built from primitives.
const COMPOSED: [(&str, Composed); 4] =
    [("scalars", scalars), ("map", map), ("matmul", matrices), ("bootstrap", bootstraps)];

/// Scalars times ciphertexts: a linear layer of a batch in columns.
fn scalars(params: &Arc<CkksParams>, rows: &mut Rows<'_>) -> Result<(), BenchError> {
    let [inputs, outputs, level] = SCALARS;
    let mut bench = Bench::new(params, &params.key_specs(level + 1, false, &[], false)?)?;
    let values = bench.random();
    let cts = (0..inputs).map(|_| bench.encrypt(&values, level + 1));
    let cts = cts.collect::<Result<Vec<_>, _>>()?;
    let weights: Vec<i8> = (0..inputs * outputs).map(|i| (i * 7919 % 3) as i8 - 1).collect();
    let weights = GemmWeights::ternary(&weights, outputs, inputs)?;
    let gemm = ModularGemm::new(params);
    let before = gemm.counters().snapshot();
    gemm.multiply_all(&weights, &cts, None)?;
    // It has counters of its own.
    let counts = gemm.counters().snapshot().since(&before);
    let work =
        Work { products: counted(&counts, rows.n), bytes: (inputs + outputs) as f64 * ciphertext(level + 1, rows.n) };
    rows.row(("scalars", level), &bench.evaluator, work, &mut || {
        let outputs = gemm.multiply_all(&weights, &cts, None);
        outputs.map(drop).map_err(|error| match error {
            GemmError::Ckks(error) => error,
            _ => CkksError::OtherParameters { operation: "gemm" },
        })
    })?;
    Ok(())
}

/// A grid of maps of packed rows.
fn map(params: &Arc<CkksParams>, rows: &mut Rows<'_>) -> Result<(), BenchError> {
    let run = maps::Run::new(params, &maps::MAPS[0])?;
    let limbs = maps::MAPS[0].limbs;
    let bytes = run.vectors() as f64 * ciphertext(limbs, rows.n) + run.plaintext_bytes() as f64;
    let at = ("map", limbs - params.bootstrap_limbs());
    rows.row(at, &run.bench.evaluator, Work::moved(bytes), &mut || run.apply().map(drop))?;
    Ok(())
}

/// A product of two encrypted matrices, by outer products.
fn matrices(params: &Arc<CkksParams>, rows: &mut Rows<'_>) -> Result<(), BenchError> {
    let [dimension, level] = MATRICES;
    let run = matmul::Run::new(params, dimension, level + 1)?;
    let work = Work::moved(3.0 * ciphertext(level + 1, rows.n));
    let evaluator = &run.bench.evaluator;
    rows.row(("matmul", level), evaluator, work, &mut || run.apply().map(drop))?;
    Ok(())
}

/// Bootstraps, several in a call.
fn bootstraps(params: &Arc<CkksParams>, rows: &mut Rows<'_>) -> Result<(), BenchError> {
    let bootstrapper = Bootstrapper::new(params, BootstrapLiteral::default())?;
    let mut bench = Bench::new(params, &bootstrapper.key_specs())?;
    let values = bench.random();
    let low = params.bootstrap_limbs();
    let cts = (0..TOGETHER).map(|_| bench.encrypt(&values, low));
    let cts: Vec<Ciphertext> = cts.collect::<Result<_, _>>()?;
    let all: Vec<&Ciphertext> = cts.iter().collect();
    let (top, n) = (bootstrapper.output_limbs(), rows.n);
    let work = Work::moved(
        TOGETHER as f64 * (ciphertext(low, n) + ciphertext(top, n)) + bootstrapper.plaintext_bytes() as f64,
    );
    let evaluator = &bench.evaluator;
    rows.row(("bootstrap_4", top - low), evaluator, work, &mut || {
        bootstrapper.bootstrap_many(evaluator, &all).map(drop)
    })?;
    Ok(())
}

/// Bytes of a ciphertext.
fn ciphertext(limbs: usize, n: f64) -> f64 {
    2.0 * limbs as f64 * n * WORD
}

fn primitives(level: usize, params: &Arc<CkksParams>, rows: &mut Rows<'_>) -> Result<(), BenchError> {
    let limbs = level + 1;
    let steps: Vec<i64> = (1..=HOISTED).collect();
    let specs = params.key_specs(limbs, true, &steps, false)?;
    let mut bench = Bench::new(params, &specs)?;
    let values = bench.random();
    let a = bench.encrypt(&values, limbs)?;
    let b = bench.encrypt(&values, limbs)?;
    let plain = bench.encoder.encode(&values, limbs, params.default_scale())?;
    let evaluator = &bench.evaluator;
    let product = evaluator.mul_plain(&a, &plain)?;
    let ct = ciphertext(limbs, rows.n);

    let mut sum = evaluator.add(&a, &b)?;
    let work = Work {
        // A sum has no product; here one sum counts as one operation.
        products: ct / WORD,
        bytes: 3.0 * ct,
    };
    rows.row(("add", level), evaluator, work, &mut || evaluator.add_assign(&mut sum, &b))?;
    let mut row = |name: &str, bytes: f64, call: &mut dyn FnMut() -> Result<(), CkksError>| {
        rows.row((name, level), evaluator, Work::moved(bytes), call)
    };
    row("mul_plain", 2.5 * ct, &mut || evaluator.mul_plain(&a, &plain).map(drop))?;
    let factor = Complex64::new(0.3141, 0.0);
    let scale = params.default_scale();
    let mut terms = evaluator.mul_scalar(&a, factor, scale)?;
    row("mul_scalar_add", 3.0 * ct, &mut || evaluator.mul_scalar_add_assign(&mut terms, &a, factor, scale))?;
    row("rescale", 2.0 * ct, &mut || evaluator.rescale(&product).map(drop))?;
    row("mul_rescale", 3.0 * ct, &mut || evaluator.mul_rescale(&a, &b).map(drop))?;
    row("rotate", 2.0 * ct, &mut || evaluator.rotate(&a, 1).map(drop))?;
    let hoisted = (1.0 + steps.len() as f64) * ct;
    row("rotate_hoisted_8", hoisted, &mut || {
        let hoisted = evaluator.hoist(&a)?;
        steps.iter().try_for_each(|&by| evaluator.rotate_hoisted(&hoisted, by).map(drop))
    })?;
    Ok(())
}

/// Bytes per second from memory, and modular products per second from the first-level cache, with all threads; and
/// seconds per transform of one polynomial. The memory is that of polynomials, so its pages are as large as theirs.
fn peaks(threads: usize, params: &CkksParams) -> Result<(Value, f64), BenchError> {
    let no_prime = |_| BenchError::NoTransform;
    let prime = ntt_primes(50, 1 << 16, 1).first().copied();
    let modulus = Modulus::new(prime.ok_or(BenchError::NoTransform)?).map_err(no_prime)?;
    let pointwise = Pointwise::with_cpu(modulus, Cpu::get());
    let basis = params.rlwe().basis();
    let ids: Vec<usize> = (0..basis.len()).collect();
    let mut data = vec![RnsPoly::<Eval>::zero(basis, &ids); READ_WORDS.div_ceil(ids.len() * params.n())];
    for poly in &mut data {
        poly.limbs_mut().for_each(|(_, limb)| limb.fill(1));
    }
    let limbs: Vec<&[u64]> = data.iter().flat_map(RnsPoly::limbs).map(|l| l.1).collect();
    let words = limbs.len() * params.n();
    let read = best(3, || {
        let start = Instant::now();
        let sums = limbs.par_iter().map(|limb| read_sum(limb));
        black_box(sums.reduce(|| 0, u64::wrapping_add));
        start.elapsed().as_secs_f64()
    });
    // Two operands and a sum, 8 KiB each.
    let (length, rounds) = (1usize << 10, 20_000);
    let multiply = best(3, || {
        let start = Instant::now();
        (0..threads).into_par_iter().for_each(|_| {
            let (a, b) = (vec![3u64; length], vec![5u64; length]);
            let mut acc = vec![0u64; length];
            for _ in 0..rounds {
                pointwise.mul_add_assign(black_box(&mut acc), black_box(&a), black_box(&b));
            }
        });
        start.elapsed().as_secs_f64()
    });
    // Eight products per sum, reduced once, as in inner products with keys and in base conversions.
    let lazy = best(3, || {
        let start = Instant::now();
        (0..threads).into_par_iter().for_each(|_| {
            let (a, b) = (vec![3u64; length], vec![5u64; length]);
            let (a, b) = ([a.as_slice(); 8], [b.as_slice(); 8]);
            let mut acc = vec![0u64; length];
            for _ in 0..rounds / 8 {
                pointwise.dot_assign(black_box(&mut acc), black_box(&a), black_box(&b));
            }
        });
        start.elapsed().as_secs_f64()
    });
    let products = (threads * length * rounds) as f64;
    let ntt = basis.ntt(0);
    let transforms = 200;
    let transform = best(3, || {
        let start = Instant::now();
        (0..threads).into_par_iter().for_each(|_| {
            let mut limb = vec![1u64; params.n()];
            (0..transforms).for_each(|_| ntt.forward(black_box(&mut limb)));
        });
        start.elapsed().as_secs_f64() / f64::from(transforms)
    });
    let row = json!({
        "name": "roofline.peak",
        "params": { "words": words, "vector": length },
        "threads": threads,
        "read_bytes_per_second": words as f64 * WORD / read,
        "products_per_second": products / multiply,
        "lazy_products_per_second": products / lazy,
        "transform_seconds": transform,
    });
    Ok((row, transform))
}

/// The sum of `words`, read as [`STREAMS`] streams of whole cache lines, each with its own sums. A single sum would
/// wait for the latency of additions; eight streams have more sums than there are registers, and are bound by loading
/// and storing these.
fn read_sum(words: &[u64]) -> u64 {
    let (lines, rest) = words.as_chunks::<LINE>();
    let (whole, last) = lines.split_at(lines.len() / STREAMS * STREAMS);
    let length = whole.len() / STREAMS;
    let mut sums = [[0u64; LINE]; STREAMS];
    for i in 0..length {
        for (k, sums) in sums.iter_mut().enumerate() {
            for (sum, &word) in sums.iter_mut().zip(&whole[k * length + i]) {
                *sum = sum.wrapping_add(word);
            }
        }
    }
    let all = black_box(&sums).iter().chain(last).flatten().chain(rest);
    all.fold(0, |sum, &word| sum.wrapping_add(word))
}

fn best(runs: usize, mut call: impl FnMut() -> f64) -> f64 {
    (0..runs).map(|_| call()).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_once() {
        for length in [0, 1, 7, 8, 63, 64, 65, 1000, 1 << 12] {
            let words: Vec<u64> = (0..length).map(|i| i * i + 1).collect();
            assert_eq!(read_sum(&words), words.iter().sum::<u64>(), "{length}");
        }
    }
}
