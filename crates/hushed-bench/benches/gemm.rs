//! Scalar matrices times ciphertexts at N = 2^16 and 14 primes, compared with the naive loop:
//! `cargo bench -p hushed-bench --bench gemm`.
//!
//! 768 inputs times 768 × 768 weights. Inputs and outputs, 10.5 GiB each, never exist as a whole: a source supplies
//! random residues of one limb for every prime, and a sink counts what it receives; the arithmetic is that of real
//! ciphertexts. The naive loop runs for 8 outputs of 96 inputs. A term is one ciphertext times a scalar, added. Times
//! are wall-clock seconds, and processor seconds of all threads together, which other programs on the machine lengthen
//! less. An argument gives the number of primes to compute, if not all 14; times per term always refer to 14.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use hushed_bench::baselines::naive;
use hushed_ckks::gemm::{GemmError, GemmWeights, ModularGemm, Part, Shape, Sink, Source, Strip};
use hushed_ckks::{Ciphertext, CkksParams, Evaluator, Noise, Scale};
use hushed_math::cpu::Cpu;
use hushed_math::rng::{PublicSeed, PublicStream};
use hushed_math::{Eval, Modulus, RnsPoly};

const WIDTH: usize = 768;
const LIMBS: usize = 14;

/// How many of the 14 primes to compute.
fn limbs() -> usize {
    let number = std::env::args().find_map(|argument| argument.parse().ok());
    number.map_or(LIMBS, |limbs: usize| limbs.clamp(1, LIMBS))
}

fn main() {
    let params = CkksParams::n16_boot().expect("a preset");
    println!("threads  weights          method  wall ms/term  cpu ms/term  G terms/s  wall s     cpu s");
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = pool.build().expect("threads");
        pool.install(|| {
            slow(&params, threads);
            for cpu in [Cpu::get().without_amx(), Cpu::get()] {
                fast(&params, cpu, threads);
            }
        });
    }
}

/// The modular product, for each kind of weights.
fn fast(params: &Arc<CkksParams>, cpu: Cpu, threads: usize) {
    let gemm = ModularGemm::with_cpu(params, cpu);
    let name = match cpu.amx() {
        Some(_) => "bytes",
        None => cpu.kernel_name(),
    };
    let values = values(WIDTH * WIDTH);
    let signs: Vec<i8> = values.iter().map(|w| (w * 1.5).round() as i8).collect();
    let scale = gemm.weight_scale(LIMBS);
    let source = Random::new(params);
    let sink = Void(AtomicU64::new(0));
    let full = GemmWeights::from_f64(&values, WIDTH, WIDTH, 1.0, scale);
    let digits = GemmWeights::with_digits(&values, WIDTH, WIDTH, 1.0, scale, 3);
    let ternary = GemmWeights::ternary(&signs, WIDTH, WIDTH);
    for (kind, weights) in [("40 bits", full), ("3 digits", digits), ("ternary", ternary)] {
        let weights = weights.expect("weights within the bound");
        let before = Clock::now();
        gemm.multiply(&weights, &source, &sink, None).expect("a product");
        before.row(threads, kind, name, params, (WIDTH * WIDTH, limbs()));
    }
}

/// The loop of scalar products and sums.
fn slow(params: &Arc<CkksParams>, threads: usize) {
    const INPUTS: usize = 96;
    const OUTPUTS: usize = 8;
    let mut stream = PublicStream::new(&PublicSeed([2; 16]), 0);
    let ids = params.rlwe().ciphertext_ids(LIMBS);
    let inputs: Vec<Ciphertext> = (0..INPUTS)
        .map(|_| {
            let mut uniform = || RnsPoly::<Eval>::uniform(params.rlwe().basis(), &ids, &mut stream);
            Ciphertext::from_parts(uniform(), uniform(), params.default_scale()).expect("parts")
        })
        .collect();
    let evaluator = Evaluator::without_keys(params);
    let scale = Scale::ONE.times_prime(params.prime(LIMBS - 1));
    let weights = values(OUTPUTS * INPUTS);
    let before = Clock::now();
    let rows = 0..OUTPUTS;
    naive::multiply(&evaluator, &weights, INPUTS, scale, &inputs, rows, None).expect("a product");
    before.row(threads, "40 bits", "naive", params, (OUTPUTS * INPUTS, LIMBS));
}

fn values(count: usize) -> Vec<f64> {
    let mut words = vec![0; count];
    let odd = Modulus::new((1 << 49) - 1).expect("odd");
    PublicStream::new(&PublicSeed([1; 16]), 0).uniform_mod(&odd, &mut words);
    words.iter().map(|&word| word as f64 / 2f64.powi(48) - 1.0).collect()
}

/// Random residues below every prime.
struct Random {
    words: Vec<u64>,
    n: usize,
    scale: Scale,
}

impl Random {
    fn new(params: &CkksParams) -> Self {
        let n = params.n();
        let least = (0..LIMBS).map(|i| params.prime(i)).min().expect("primes");
        let mut words = vec![0; WIDTH * n];
        let modulus = Modulus::new(least).expect("a prime");
        PublicStream::new(&PublicSeed([3; 16]), 0).uniform_mod(&modulus, &mut words);
        Self { words, n, scale: params.default_scale() }
    }
}

impl Source for Random {
    fn shape(&self) -> Shape {
        Shape { count: WIDTH, limbs: limbs(), scale: self.scale, noise: Noise::UNKNOWN }
    }

    fn strip<'a>(&'a self, strip: &Strip, _: &'a mut Vec<u64>) -> Result<Vec<&'a [u64]>, GemmError> {
        let limbs = self.words.chunks_exact(self.n);
        Ok(limbs.map(|limb| &limb[strip.words.clone()]).collect())
    }
}

/// Counts the words it receives.
struct Void(AtomicU64);

impl Sink for Void {
    fn begin(&self, _: Shape) -> Result<(), GemmError> {
        Ok(())
    }

    fn put(&self, strip: &Strip, words: &[&[u64]]) -> Result<(), GemmError> {
        let part = u64::from(strip.part == Part::A);
        let total = words.iter().map(|words| words.len() as u64 + part).sum();
        self.0.fetch_add(total, Ordering::Relaxed);
        Ok(())
    }
}

/// Wall and processor time.
struct Clock {
    wall: Instant,
    cpu: f64,
}

impl Clock {
    fn now() -> Self {
        Self { wall: Instant::now(), cpu: processor_seconds() }
    }

    /// `done`: the number of terms, and of primes in each.
    fn row(&self, threads: usize, kind: &str, method: &str, params: &CkksParams, done: (usize, usize)) {
        let wall = self.wall.elapsed().as_secs_f64();
        let cpu = processor_seconds() - self.cpu;
        let residues = (2 * params.n() * done.0 * done.1) as f64;
        let term = (2 * params.n() * LIMBS) as f64;
        println!(
            "{threads:>7}  {kind:<9}  {method:>12}  {:>12.4}  {:>11.4}  {:>9.2}  {wall:>6.2}  {cpu:>8.2}",
            wall / residues * term * 1e3,
            cpu / residues * term * 1e3,
            residues / wall / 1e9,
        );
    }
}

/// User and system time of this process, resolved to hundredths of a second; 0 if the system does not report it.
fn processor_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks = after_name.split_whitespace().skip(11).take(2);
    ticks.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}
