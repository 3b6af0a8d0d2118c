//! Nanoseconds per coefficient of the steps of a key switch, on one core: `cargo bench -p hushed-math --bench switch`.
//!
//! Prints the minimum of many rounds: what the code takes when nothing else runs. A report: it asserts nothing about
//! time.

use hushed_math::cpu::Cpu;
use hushed_math::primes::ntt_primes;
use hushed_math::rng::{PublicSeed, PublicStream};
use hushed_math::{BaseConverter, Eval, RnsBasis, RnsPoly};
use std::hint::black_box;
use std::time::Instant;

const LOG_N: u32 = 16;

fn main() {
    let n = 1_usize << LOG_N;
    let basis = RnsBasis::new(n, &ntt_primes(50, n, 44)).expect("a basis");
    let mut stream = PublicStream::new(&PublicSeed([1; 16]), 0);
    let all: Vec<usize> = (0..44).collect();
    let source: RnsPoly<Eval> = RnsPoly::uniform(&basis, &all, &mut stream);
    let mut target = source.clone();
    println!("n = 2^{LOG_N}, {}", Cpu::get().kernel_name());
    let per = |name: &str, micros: f64, limbs: usize| {
        let nanos = micros * 1e3 / n as f64;
        println!("{name:<36} {micros:>9.1} us {nanos:>8.3} ns a coefficient, {:.3} a limb", nanos / limbs as f64);
    };
    for (from, to) in [(1, 36), (4, 36), (7, 36), (8, 36), (7, 29), (12, 32)] {
        let converter = BaseConverter::new(&basis, &all[..from], &all[from..from + to.min(44 - from)]).expect("lists");
        let src: Vec<&[u64]> = (0..from).map(|j| source.limb(j)).collect();
        let mut out: Vec<&mut [u64]> = target.limbs_mut().map(|(_, limb)| limb).take(converter.targets()).collect();
        let micros = time(|| converter.convert(black_box(&src), &mut out));
        per(&format!("convert {from} -> {}", converter.targets()), micros, converter.targets());
    }
    let p = basis.ntt(0).pointwise();
    let (mut b, mut a) = (vec![0; n], vec![0; n]);
    for digits in [1, 3, 6] {
        let d: Vec<&[u64]> = (0..digits).map(|j| source.limb(j)).collect();
        let kb: Vec<&[u64]> = (0..digits).map(|j| source.limb(10 + j)).collect();
        let ka: Vec<&[u64]> = (0..digits).map(|j| source.limb(20 + j)).collect();
        let micros = time(|| p.dot_pair([&mut b, &mut a], black_box(&d), [&kb, &ka]));
        per(&format!("two inner products of {digits}"), micros, 1);
    }
    let mut c = vec![0; n];
    let (x, y) = ([source.limb(0), source.limb(1)], [source.limb(2), source.limb(3)]);
    per("tensor", time(|| p.tensor([&mut a, &mut b, &mut c], black_box(x), y)), 1);
    per("mod_down_finish", time(|| p.mod_down_finish(&mut a, black_box(x[0]), y[0], 5)), 1);
    per("mul_scalar_add", time(|| p.mul_scalar_add_assign(&mut a, black_box(x[0]), 5)), 1);
    per("add", time(|| p.add(&mut a, black_box(x[0]), y[0])), 1);
    let automorphism = basis.automorphism(5);
    per("automorphism", time(|| automorphism.apply(black_box(x[0]), &mut a)), 1);
    let q = basis.modulus(0);
    per("uniform residues", time(|| stream.uniform_mod(q, black_box(&mut a))), 1);
    a.copy_from_slice(x[0]);
    per("forward transform", time(|| basis.ntt(0).forward(black_box(&mut a))), 1);
    per("inverse transform", time(|| basis.ntt(0).inverse(black_box(&mut a))), 1);
}

/// Microseconds of one call.
fn time(mut f: impl FnMut()) -> f64 {
    let round = || {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64() * 1e6
    };
    std::iter::repeat_with(round).take(200).fold(f64::INFINITY, f64::min)
}
