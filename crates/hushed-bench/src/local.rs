//! Measurements in one process.

use std::hint::black_box;
use std::time::Instant;

use hushed_math::cpu::Cpu;
use hushed_math::primes::ntt_primes;
use hushed_math::rng::{PublicSeed, PublicStream};
use hushed_math::{Modulus, NttTables};
use serde_json::{Value, json};

use super::{BenchError, How, median};

const RUNS: usize = 41;
/// Coefficients transformed between two readings of the clock.
const BATCH: usize = 1 << 20;

/// Forward and inverse transforms of one polynomial, on every kernel of this processor.
pub fn ntt(_: How<'_>) -> Result<Vec<Value>, BenchError> {
    let mut rows = Vec::new();
    for cpu in Cpu::kernels() {
        for log_n in [13, 16] {
            rows.extend(transforms(cpu, 1 << log_n)?);
        }
    }
    Ok(rows)
}

fn transforms(cpu: Cpu, n: usize) -> Result<[Value; 2], BenchError> {
    let no_transform = |_| BenchError::NoTransform;
    let prime = ntt_primes(50, n, 1).first().copied();
    let modulus = Modulus::new(prime.ok_or(BenchError::NoTransform)?).map_err(no_transform)?;
    let ntt = NttTables::with_cpu(n, modulus, cpu).map_err(no_transform)?;
    let mut words = vec![0; n + 8];
    // Aligned to cache lines, like the limbs of polynomials.
    let offset = words.as_ptr().align_offset(64);
    let data = words.get_mut(offset..offset + n).ok_or(BenchError::NoTransform)?;
    PublicStream::new(&PublicSeed([0; 16]), 0).uniform_mod(&modulus, data);
    let before = data.to_vec();
    let (forward, inverse): (Vec<f64>, Vec<f64>) = (0..RUNS)
        .map(|_| {
            let forward = seconds(n, || ntt.forward(black_box(data)));
            (forward, seconds(n, || ntt.inverse(black_box(data))))
        })
        .unzip();
    // Each inverse exactly undoes the transform before it.
    let wrong = data.iter().zip(&before).filter(|(a, b)| a != b).count();
    let row = |direction: &str, times| {
        json!({
            "name": "ntt",
            "params": { "n": n, "bits": 50, "direction": direction },
            "threads": 1,
            "seconds": median(times),
            "runs": RUNS,
            "error": wrong as f64,
            "kernel": cpu.kernel_name(),
        })
    };
    Ok([row("forward", forward), row("inverse", inverse)])
}

/// Seconds of one call, averaged over a batch that the clock can resolve.
fn seconds(n: usize, mut call: impl FnMut()) -> f64 {
    let calls = BATCH / n;
    let start = Instant::now();
    for _ in 0..calls {
        call();
    }
    start.elapsed().as_secs_f64() / calls as f64
}
