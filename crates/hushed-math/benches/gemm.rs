//! Modular multiply-adds per second of matrix products with limbs, one core: `cargo bench -p hushed-math --bench gemm`.
//!
//! 768 by 768 weights up to a limit, strips of 1024 words; then residues, in the shapes that a map of packed rows has
//! for a run of equal diagonals. Prints the best of several runs: what the code takes when nothing else runs. A report,
//! not a test.

use hushed_math::cpu::Cpu;
use hushed_math::primes::ntt_primes;
use hushed_math::rng::{PublicSeed, PublicStream};
use hushed_math::{GemmScratch, LimbGemm, Modulus, digits_limit};
use std::time::Instant;

fn main() {
    println!("kernel        prime            limit  values          method    G terms/s");
    let mut kernels = Cpu::kernels();
    if Cpu::get().amx().is_some() {
        kernels.insert(1, Cpu::get().without_amx());
    }
    for cpu in kernels {
        for (prime, limit) in [
            (40, 1 << 40),
            (50, 1 << 50),
            (40, digits_limit(3)),
            (50, digits_limit(3)),
            (40, digits_limit(2)),
            (40, 1 << 11),
            (40, 1),
            (50, 1),
        ] {
            for values in ["random", "zero", "sparse"] {
                row(cpu, prime, limit, values);
            }
        }
        for shape in [[48, 48, 128], [114, 92, 128], [1, 28, 128]] {
            run(cpu, shape);
        }
    }
}

/// Giant by baby steps, for a run of `length` words: one of the products of a prime, repeated.
fn run(cpu: Cpu, [rows, columns, length]: [usize; 3]) {
    let modulus = Modulus::new(ntt_primes(40, 1 << 16, 1)[0]).expect("a prime below 2^50");
    let gemm = LimbGemm::with_cpu(modulus, cpu);
    let mut stream = PublicStream::new(&PublicSeed([2; 16]), 0);
    let mut weights = vec![0; rows * columns];
    stream.uniform_mod(&modulus, &mut weights);
    let packed = gemm.pack_residues(1, [rows, columns], |_, words| words.copy_from_slice(&weights));
    let mut x = vec![0; columns * length];
    stream.uniform_mod(&modulus, &mut x);
    let x: Vec<&[u64]> = x.chunks_exact(length).collect();
    let mut out = vec![0; rows * length];
    let mut out: Vec<&mut [u64]> = out.chunks_exact_mut(length).collect();
    let mut scratch = GemmScratch::new();
    let mut best = f64::MAX;
    for _ in 0..200 {
        let start = Instant::now();
        gemm.multiply_add(&packed[0], &x, &mut out, &mut scratch);
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!(
        "{:<13} residues, {rows} × {columns}, runs of {length} words {:>9.2}",
        cpu.kernel_name(),
        (rows * columns * length) as f64 / best / 1e9
    );
}

fn row(cpu: Cpu, prime: u32, limit: u64, values: &str) {
    let (rows, columns, length) = match cpu.kernel_name() {
        "portable" => (96, 768, 512),
        _ => (768, 768, 1024),
    };
    let modulus = Modulus::new(ntt_primes(prime, 1 << 16, 1)[0]).expect("a prime below 2^50");
    let gemm = LimbGemm::with_cpu(modulus, cpu);
    let mut stream = PublicStream::new(&PublicSeed([1; 16]), 0);
    let mut random = vec![0; rows * columns];
    stream.uniform_mod(&Modulus::new((1 << 49) - 1).expect("odd"), &mut random);
    let weights: Vec<i64> = (0..)
        .zip(&random)
        .map(|(i, &r)| {
            let kept = values == "random" || values == "sparse" && i % 16 == 0;
            if kept { (r << 15) as i64 % (limit + 1) as i64 } else { 0 }
        })
        .collect();
    let weights = gemm.pack(&weights, rows, columns, limit, 1);
    let mut x = vec![0; columns * length];
    stream.uniform_mod(&modulus, &mut x);
    let x: Vec<&[u64]> = x.chunks_exact(length).collect();
    let mut out = vec![0; rows * length];
    let mut out: Vec<&mut [u64]> = out.chunks_exact_mut(length).collect();
    let mut scratch = GemmScratch::new();
    let mut best = f64::MAX;
    for _ in 0..12 {
        let start = Instant::now();
        gemm.multiply_add(&weights, &x, &mut out, &mut scratch);
        best = best.min(start.elapsed().as_secs_f64());
    }
    println!(
        "{:<13} {prime:>5} {limit:>16}  {values:<8} {:>12}    {:>9.2}",
        cpu.kernel_name(),
        format!("{:?}", weights.method()),
        (rows * columns * length) as f64 / best / 1e9
    );
}
