//! The negacyclic transform of one polynomial with the crate `tfhe-ntt`: one JSON object per line, with the fields of
//! docs/benchmarks.md. 50-bit primes use its AVX-512 IFMA kernel if the processor has it.
#![forbid(unsafe_code)]

use std::time::Instant;

use tfhe_ntt::prime64::Plan;

const RUNS: usize = 41;
const DISCARDED: usize = 5;
/// Coefficients transformed between two readings of the clock.
const BATCH: usize = 1 << 20;

fn main() {
    for log_n in [13, 14, 15, 16] {
        for bits in [50, 62] {
            measure(1 << log_n, bits);
        }
    }
}

fn measure(n: usize, bits: u32) {
    let q = largest_prime(bits, n as u64);
    let plan = Plan::try_new(n, q).expect("the prime is 1 modulo 2n");
    let input = pseudo_random(n, q);
    let mut data = input.clone();
    plan.fwd(&mut data);
    plan.inv(&mut data);
    plan.normalize(&mut data);
    assert_eq!(input, data, "the transform does not invert");

    let kernel = if plan.use_ifma() {
        "avx512-ifma"
    } else {
        "other"
    };
    let (forward, inverse): (Vec<f64>, Vec<f64>) = (0..RUNS + DISCARDED)
        .map(|_| {
            (
                seconds(n, || plan.fwd(&mut data)),
                seconds(n, || plan.inv(&mut data)),
            )
        })
        .skip(DISCARDED)
        .unzip();
    for (direction, times) in [("forward", forward), ("inverse", inverse)] {
        println!(
            "{{\"name\":\"ntt\",\"peer\":\"tfhe-ntt 0.7.1\",\"params\":{{\"n\":{n},\"bits\":{bits},\"direction\":\"{direction}\"}},\
             \"threads\":1,\"seconds\":{:.3e},\"runs\":{RUNS},\"kernel\":\"{kernel}\"}}",
            median(times)
        );
    }
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

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn pseudo_random(n: usize, q: u64) -> Vec<u64> {
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 1) % q
    };
    (0..n).map(|_| next()).collect()
}

/// The largest prime below 2^bits that is 1 modulo 2n.
fn largest_prime(bits: u32, n: u64) -> u64 {
    let first = (1u64 << bits) - 2 * n + 1;
    (0..)
        .map(|k| first - 2 * n * k)
        .find(|&q| is_prime(q))
        .expect("there are many")
}

/// The Miller–Rabin test, with bases that decide every 64-bit number.
fn is_prime(q: u64) -> bool {
    let mul = |a: u64, b: u64| ((a as u128 * b as u128) % q as u128) as u64;
    let pow = |mut base: u64, mut e: u64| {
        let mut result = 1;
        while e > 0 {
            if e & 1 == 1 {
                result = mul(result, base);
            }
            base = mul(base, base);
            e >>= 1;
        }
        result
    };
    let twos = (q - 1).trailing_zeros();
    [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37]
        .into_iter()
        .all(|base| {
            let mut x = pow(base, (q - 1) >> twos);
            if x == 1 || x == q - 1 {
                return true;
            }
            (1..twos).any(|_| {
                x = mul(x, x);
                x == q - 1
            })
        })
}
