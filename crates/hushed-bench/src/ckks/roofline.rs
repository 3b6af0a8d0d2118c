//! A roofline of the engine's primitives (Williams et al. 2009; for CKKS the Orion kernels paper, §V): modular products
//! per byte.
//!
//! An operation is one modular product with its sum. Transforms are counted by the evaluator, N/2·log2 N each; inner
//! products and base conversions follow from the key's gadget. Bytes are those that a call cannot avoid: operands read
//! once, results written once, and the stored half of a key (the other half is expanded from a seed). Intermediate
//! results that a call writes to memory and reads back are not counted, so a point left of where it should lie shows
//! that the caches did not hold them. Peaks are measured in the same run.

use std::hint::black_box;
use std::time::Instant;

use hushed_ckks::keys::Gadget;
use hushed_ckks::{CkksError, CkksParams, Complex64, Counts};
use hushed_math::cpu::Cpu;
use hushed_math::primes::ntt_primes;
use hushed_math::{Eval, Modulus, Pointwise, RnsPoly};
use rayon::prelude::*;
use serde_json::{Value, json};

use super::{Bench, describe, measure, with_threads};
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

/// The products and the fewest bytes of a call.
#[derive(Clone, Copy)]
struct Work {
    products: f64,
    bytes: f64,
}

/// Measures the peaks of the machine, then the primitives of the inference parameter set.
pub fn roofline(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    with_threads(how.threads, || {
        let params = CkksParams::n16_boot()?;
        let mut rows = vec![peaks(how.threads, &params)?];
        for level in LEVELS {
            if how.wants(&json!({ "level": level })) {
                primitives(level, &params, how, &mut rows)?;
            }
        }
        Ok(rows)
    })
}

fn primitives(
    level: usize,
    params: &std::sync::Arc<CkksParams>,
    how: How<'_>,
    rows: &mut Vec<Value>,
) -> Result<(), BenchError> {
    let limbs = level + 1;
    let steps: Vec<i64> = (1..=HOISTED).collect();
    let plan = params.key_plan(limbs, true, &steps, false)?;
    let gadget = Gadget::new(params.rlwe(), limbs, params.cheapest_special(limbs)?)
        .map_err(CkksError::from)?;
    let mut bench = Bench::new(params, &plan)?;
    let values = bench.random();
    let a = bench.encrypt(&values, limbs)?;
    let b = bench.encrypt(&values, limbs)?;
    let plain = bench
        .encoder
        .encode(&values, limbs, params.default_scale())?;
    let evaluator = &bench.evaluator;
    let product = evaluator.mul_plain(&a, &plain)?;
    let n = params.n() as f64;
    let poly = limbs as f64 * n;
    let ct = 2.0 * poly * WORD;
    let key = switching_key(limbs, &gadget, n);

    let mut row = |name: &str,
                   fixed: Work,
                   decompositions: usize,
                   switches: usize,
                   call: &mut dyn FnMut() -> Result<(), CkksError>| {
        let before = evaluator.counters().snapshot();
        call()?;
        let counts = evaluator.counters().snapshot().since(&before);
        let (seconds, runs) = measure(how.runs, call)?;
        let switching = key.work(decompositions, switches);
        let products = fixed.products + switching.products + transforms(&counts, n);
        let bytes = fixed.bytes + switching.bytes;
        rows.push(json!({
            "name": format!("roofline.{name}"),
            "params": describe(params),
            "level": level,
            "threads": how.threads,
            "seconds": seconds,
            "runs": runs,
            "products": products,
            "bytes_moved": bytes,
            "intensity": products / bytes,
            "products_per_second": products / seconds,
            "bytes_per_second": bytes / seconds,
        }));
        Ok::<(), CkksError>(())
    };
    let moved = |products: f64, bytes: f64| Work { products, bytes };
    let mut sum = evaluator.add(&a, &b)?;
    // A sum has no product; here one sum counts as one operation.
    row("add", moved(2.0 * poly, 3.0 * ct), 0, 0, &mut || {
        evaluator.add_assign(&mut sum, &b)
    })?;
    let by_plain = moved(2.0 * poly, 2.5 * ct);
    row("mul_plain", by_plain, 0, 0, &mut || {
        evaluator.mul_plain(&a, &plain).map(drop)
    })?;
    let factor = Complex64::new(0.3141, 0.0);
    let scale = params.default_scale();
    let mut terms = evaluator.mul_scalar(&a, factor, scale)?;
    let by_scalar = moved(2.0 * poly, 3.0 * ct);
    row("mul_scalar_add", by_scalar, 0, 0, &mut || {
        evaluator.mul_scalar_add_assign(&mut terms, &a, factor, scale)
    })?;
    let rescale = moved(2.0 * poly, 2.0 * ct);
    row("rescale", rescale, 0, 0, &mut || {
        evaluator.rescale(&product).map(drop)
    })?;
    let tensor = moved(4.0 * poly, 3.0 * ct);
    row("mul_rescale", tensor, 1, 1, &mut || {
        evaluator.mul_rescale(&a, &b).map(drop)
    })?;
    row("rotate", moved(0.0, 2.0 * ct), 1, 1, &mut || {
        evaluator.rotate(&a, 1).map(drop)
    })?;
    let hoisted = moved(0.0, (1.0 + steps.len() as f64) * ct);
    row("rotate_hoisted_8", hoisted, 1, steps.len(), &mut || {
        let hoisted = evaluator.hoist(&a)?;
        steps
            .iter()
            .try_for_each(|&by| evaluator.rotate_hoisted(&hoisted, by).map(drop))
    })?;
    Ok(())
}

/// Products and bytes of key switches at one length, without transforms.
struct Switching {
    decompose: f64,
    apply: f64,
    key_bytes: f64,
}

impl Switching {
    fn work(&self, decompositions: usize, switches: usize) -> Work {
        let (decompositions, switches) = (decompositions as f64, switches as f64);
        Work {
            products: decompositions * self.decompose + switches * self.apply,
            bytes: switches * self.key_bytes,
        }
    }
}

fn switching_key(limbs: usize, gadget: &Gadget, n: f64) -> Switching {
    let extended = limbs + gadget.special();
    let digits: Vec<usize> = gadget.digits_for(limbs).map(|d| d.len()).collect();
    // Each digit is converted to all other primes, after one product per prime.
    let convert = |from: usize| (from * (extended - from) + from) as f64 * n;
    let inner = (2 * digits.len() * extended) as f64 * n;
    let down = (2 * (gadget.special() * limbs + gadget.special() + limbs)) as f64 * n;
    Switching {
        decompose: digits.iter().map(|&d| convert(d)).sum(),
        apply: inner + down,
        key_bytes: (digits.len() * extended) as f64 * n * WORD,
    }
}

fn transforms(counts: &Counts, n: f64) -> f64 {
    counts.ntt as f64 * n / 2.0 * n.log2()
}

/// Bytes per second from memory, and modular products per second from the first-level cache, with all threads. The
/// memory is that of polynomials, so its pages are as large as theirs.
fn peaks(threads: usize, params: &CkksParams) -> Result<Value, BenchError> {
    let no_prime = |_| BenchError::NoTransform;
    let prime = ntt_primes(50, 1 << 16, 1).first().copied();
    let modulus = Modulus::new(prime.ok_or(BenchError::NoTransform)?).map_err(no_prime)?;
    let pointwise = Pointwise::with_cpu(modulus, Cpu::get());
    let basis = params.rlwe().basis();
    let ids: Vec<usize> = (0..basis.len()).collect();
    let mut data =
        vec![RnsPoly::<Eval>::zero(basis, &ids); READ_WORDS.div_ceil(ids.len() * params.n())];
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
    Ok(json!({
        "name": "roofline.peak",
        "params": { "words": words, "vector": length },
        "threads": threads,
        "read_bytes_per_second": words as f64 * WORD / read,
        "products_per_second": products / multiply,
        "lazy_products_per_second": products / lazy,
    }))
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
