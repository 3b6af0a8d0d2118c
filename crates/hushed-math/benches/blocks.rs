//! CPU milliseconds for the products of one limb of an oblivious linear layer, on one core: long polynomials (two per
//! ciphertext) times short ones, summed over the blocks β, for every column block γ. Times blocks of L points, step by
//! step, and values of the whole degree. `cargo bench -p hushed-math --bench blocks [kernel]`. Prints the minimum of a
//! few rounds.

use hushed_math::cpu::Cpu;
use hushed_math::primes::ntt_primes;
use hushed_math::rng::{PublicSeed, PublicStream};
use hushed_math::{BlockTables, FactorRoom, Modulus, NttTables};
use std::hint::black_box;

const DEGREE: usize = 1 << 13;

/// Most column blocks multiplied together, and words of their values.
const TOGETHER: usize = 64;
const WORDS: usize = 1 << 20;

struct Shape {
    name: &'static str,
    /// Coefficients of a short factor.
    prefix: usize,
    /// mw: for every other long polynomial only the coefficients at multiples of it are wanted.
    step: usize,
    /// Blocks β, terms of a sum.
    terms: usize,
    /// Column blocks γ.
    columns: usize,
    /// Long polynomials per term: both parts of every row block.
    polynomials: usize,
}

const SHAPES: [Shape; 7] = [
    shape("128x768x3072, 16x4", 64, 16, 48, 768, 2),
    shape("16x384x1536, 64x8", 512, 64, 6, 192, 2),
    shape("12 heads 128x64x128, 16x4", 64, 16, 4, 12 * 32, 2),
    shape("12 heads 128x64x128, 32x2", 64, 32, 2, 12 * 64, 2),
    shape("4x384x1536, 128x16", 2048, 128, 3, 96, 2),
    shape("1x50257x768, 4096x2", 8192, 4096, 13, 384, 2),
    shape("8x4096x4096, 64x16", 1024, 64, 64, 256, 2),
];

const fn shape(
    name: &'static str,
    prefix: usize,
    step: usize,
    terms: usize,
    columns: usize,
    polynomials: usize,
) -> Shape {
    Shape { name, prefix, step, terms, columns, polynomials }
}

fn main() {
    let mut words = std::env::args().skip(1).filter(|a| !a.starts_with('-'));
    let (only, named) = (words.next(), words.next());
    println!(
        "{:<13} {:<28} {:>6} {:>6} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "kernel", "shape, mw x nw", "D", "L", "inputs", "factors", "product", "forward", "all"
    );
    for cpu in Cpu::kernels() {
        if only.as_ref().is_some_and(|o| !cpu.kernel_name().contains(o.as_str())) {
            continue;
        }
        let modulus = Modulus::new(ntt_primes(50, DEGREE, 1)[0]).expect("a prime below 2^50");
        let ntt = NttTables::with_cpu(DEGREE, modulus, cpu).expect("a prime with a transform");
        let wanted = |shape: &&Shape| named.as_ref().is_none_or(|n| shape.name.contains(n.as_str()));
        for shape in SHAPES.iter().filter(wanted) {
            whole(cpu, &ntt, shape);
            let mut length = (2 * shape.prefix).max(128);
            while length < DEGREE && length <= 16 * shape.prefix {
                blocks(cpu, &ntt, shape, length);
                length *= 2;
            }
            blocks(cpu, &ntt, shape, DEGREE);
        }
    }
}

/// Minimum CPU seconds of this thread per call of `f`, over a few rounds long enough for the scheduler's count.
fn time(mut f: impl FnMut()) -> f64 {
    let round = |f: &mut dyn FnMut()| {
        let (start, mut count) = (on_cpu(), 0.0);
        loop {
            f();
            count += 1.0;
            let seconds = on_cpu() - start;
            if seconds > 0.04 {
                return seconds / count;
            }
        }
    };
    (0..3).map(|_| round(&mut f)).fold(f64::MAX, f64::min)
}

/// CPU seconds of this thread so far.
fn on_cpu() -> f64 {
    let line = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = line.split_whitespace().next().map(str::parse::<f64>);
    nanoseconds.and_then(Result::ok).unwrap_or(f64::NAN) / 1e9
}

fn random(modulus: &Modulus, length: usize) -> Vec<u64> {
    let mut words = vec![0; length];
    PublicStream::new(&PublicSeed([1; 16]), 0).uniform_mod(modulus, &mut words);
    words
}

fn row(cpu: Cpu, shape: &Shape, length: &str, steps: [f64; 4]) {
    print!("{:<13} {:<28} {:>6} {length:>6}", cpu.kernel_name(), shape.name, shape.prefix);
    for step in steps.iter().chain([&steps.iter().sum()]) {
        print!(" {:>9.2}", step * 1e3);
    }
    println!();
}

/// On values of the whole degree: strips of the transforms, multiplied at once.
fn whole(cpu: Cpu, ntt: &NttTables, shape: &Shape) {
    let unit = ntt.strip_unit(shape.prefix).max(512);
    let w = random(ntt.modulus(), shape.prefix);
    let c = random(ntt.modulus(), shape.terms * shape.polynomials * DEGREE);
    let c: Vec<&[u64]> = c.chunks_exact(DEGREE).collect();
    let mut strips = vec![0; shape.terms * unit];
    let mut sums = vec![0; shape.polynomials * DEGREE];
    let seconds = time(|| {
        for start in (0..DEGREE).step_by(unit) {
            let words = start..start + unit;
            for _ in 0..shape.columns {
                for strip in strips.chunks_exact_mut(unit) {
                    ntt.forward_strip(black_box(&w), start, strip);
                }
                let factors: Vec<&[u64]> = strips.chunks_exact(unit).collect();
                for (c, sum) in c.chunks(shape.terms).zip(sums.chunks_exact_mut(DEGREE)) {
                    let c: Vec<&[u64]> = c.iter().map(|c| &c[words.clone()]).collect();
                    let pointwise = ntt.pointwise();
                    pointwise.dot_assign(&mut sum[words.clone()], &c, &factors);
                }
            }
        }
    });
    row(cpu, shape, "whole", [0.0, 0.0, seconds, 0.0]);
}

fn blocks(cpu: Cpu, ntt: &NttTables, shape: &Shape, length: usize) {
    let tables = BlockTables::new(ntt, shape.prefix, length, shape.step);
    let w = random(ntt.modulus(), shape.prefix);
    let mut c = random(ntt.modulus(), DEGREE);
    let mut long = tables.polynomials(shape.polynomials, shape.terms);
    let inputs = time(|| {
        for term in 0..shape.terms {
            for _ in 0..shape.polynomials {
                ntt.inverse(&mut c);
            }
            tables.put_polynomials(&mut long, term, &vec![black_box(&c[..]); shape.polynomials]);
        }
    });
    let most = (WORDS / (shape.terms * length)).next_multiple_of(BlockTables::PANEL);
    let together = TOGETHER.min(shape.columns).min(most);
    let rounds = shape.columns.div_ceil(together) as f64;
    let parts = match shape.polynomials {
        2 => tables.parts(&long),
        _ => 1,
    };
    let mut factors = tables.factors(together, shape.terms, parts);
    let mut room = FactorRoom::default();
    let at_once = tables.terms_together().min(shape.terms);
    let panels = together.div_ceil(BlockTables::PANEL);
    let transforms = time(|| {
        for (part, panel) in (0..parts).flat_map(|part| (0..panels).map(move |panel| (part, panel))) {
            for term in (0..shape.terms).step_by(at_once) {
                let count = at_once.min(shape.terms - term) * BlockTables::PANEL;
                tables.put_factors(&mut factors, &mut room, part, panel, term, &black_box(&w).repeat(count));
            }
        }
    });
    let lengths = [DEGREE / shape.step, DEGREE].into_iter().cycle();
    let mut leaves: Vec<Vec<u64>> = lengths.take(together * shape.polynomials).map(|length| vec![0; length]).collect();
    let mut sums = tables.sums(together);
    // Part by part, as one part stays in cache while other factors pass.
    let of_parts =
        (0..parts).filter(|_| parts > 1).map(|part| time(|| tables.multiply_part(&factors, part, &long, &mut sums)));
    let of_parts: f64 = of_parts.sum();
    let product = of_parts
        + time(|| {
            let mut out: Vec<&mut [u64]> = leaves.iter_mut().map(|leaf| &mut leaf[..]).collect();
            if parts == 1 {
                tables.multiply(&factors, 0..panels, &long, &mut out);
                return;
            }
            let sums = tables.sums(together);
            let (mut a, mut b): (Vec<_>, Vec<_>) = out.into_iter().partition(|out| out.len() < DEGREE);
            tables.finish(sums, &mut a, &mut b);
        });
    let forward = time(|| {
        for leaf in leaves.iter_mut().skip(1).step_by(2) {
            ntt.forward(black_box(leaf));
        }
    });
    let steps = [inputs, transforms * rounds, product * rounds, forward * rounds];
    row(cpu, shape, &length.to_string(), steps);
}
