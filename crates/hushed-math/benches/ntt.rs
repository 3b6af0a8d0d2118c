//! Microseconds per transform and limb operation on one core, for every kernel: `cargo bench -p hushed-math`.
//!
//! Prints the minimum of many short rounds: what the code takes when nothing else runs. A report, not a test: it
//! asserts nothing about time.

use hushed_math::cpu::Cpu;
use hushed_math::primes::ntt_primes;
use hushed_math::rng::{PublicSeed, PublicStream};
use hushed_math::{Modulus, NttTables, RnsBasis, RnsPoly};
use std::hint::black_box;
use std::time::Instant;

fn main() {
    println!("kernel          bits      n   forward   inverse       mul   mul_add   dot 32/term");
    for cpu in Cpu::kernels() {
        for bits in [50, 49, 41] {
            for log_n in [12, 13, 14, 15, 16] {
                row(cpu, bits, 1 << log_n);
            }
        }
    }
    let modulus = Modulus::new(ntt_primes(50, 1 << 13, 1)[0]).expect("a prime below 2^50");
    let mut stream = PublicStream::new(&PublicSeed([1; 16]), 0);
    let mut out = vec![0; 1 << 13];
    println!("uniform residues, n = 8192: {:.2} us", time(|| stream.uniform_mod(&modulus, &mut out)));
    let basis = RnsBasis::new(1 << 13, &[modulus.value()]).expect("a basis");
    let poly: RnsPoly<hushed_math::Eval> = RnsPoly::uniform(&basis, &[0], &mut stream);
    println!("automorphism of values, n = 8192: {:.2} us", time(|| drop(black_box(poly.automorphism(5)))));
}

fn row(cpu: Cpu, bits: u32, n: usize) {
    let modulus = Modulus::new(ntt_primes(bits, n, 1)[0]).expect("a prime of at most 50 bits");
    let ntt = NttTables::with_cpu(n, modulus, cpu).expect("a prime with a transform");
    let mut stream = PublicStream::new(&PublicSeed([0; 16]), 0);
    let mut limb = || {
        // Moved to a cache line, where polynomials keep their limbs.
        let mut words = vec![0; n + 8];
        stream.uniform_mod(&modulus, &mut words);
        words
    };
    let mut all: Vec<Vec<u64>> = (0..65).map(|_| limb()).collect();
    let offsets: Vec<usize> = all.iter().map(|w| w.as_ptr().align_offset(64)).collect();
    let (mut first, rest) = (all.remove(0), all);
    let a = &mut first[offsets[0]..][..n];
    let rest: Vec<&[u64]> = rest.iter().zip(&offsets[1..]).map(|(w, &at)| &w[at..][..n]).collect();
    let (left, right) = rest.split_at(32);
    let forward = time(|| ntt.forward(black_box(a)));
    let inverse = time(|| ntt.inverse(black_box(a)));
    let p = ntt.pointwise();
    let mul = time(|| p.mul_assign(black_box(a), left[0]));
    let mul_add = time(|| p.mul_add_assign(black_box(a), left[0], right[0]));
    let dot = time(|| p.dot_assign(black_box(a), left, right)) / 32.0;
    println!(
        "{:<15} {bits:>4} {n:>6} {forward:>9.2} {inverse:>9.2} {mul:>9.2} {mul_add:>9.2} {dot:>13.2}",
        cpu.kernel_name()
    );
}

/// Microseconds of one call.
fn time(mut f: impl FnMut()) -> f64 {
    let start = Instant::now();
    f();
    let once = start.elapsed().as_secs_f64().max(1e-7);
    let calls = ((0.00003 / once) as usize).max(1);
    let round = || {
        let start = Instant::now();
        (0..calls).for_each(|_| f());
        start.elapsed().as_secs_f64() * 1e6 / calls as f64
    };
    std::iter::repeat_with(round).take(3000).fold(f64::INFINITY, f64::min)
}
