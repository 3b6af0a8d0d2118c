//! Milliseconds per rotation and its parts on one thread, and the bytes of its key:
//! `cargo bench -p hushed-rlwe --bench hybrid`.
//!
//! N = 2^16, q = 50 | 17×40 | 11×50, P of up to 11×50 bits, within the security limit: the chain of a bootstrapped
//! parameter set. Each length uses the gadget with the fewest transforms, unless `LIMBS:SPECIAL …` are given as
//! arguments. Prints the minimum of many rounds, the time when nothing else runs. A report, not a test: it asserts
//! nothing about time.

use hushed_math::RnsPoly;
use hushed_math::cpu::Cpu;
use hushed_math::primes::ntt_primes;
use hushed_math::rng::{PublicStream, SecretRng};
use hushed_rlwe::hybrid::{
    EvalKeys, Gadget, KeySpecs, automorphism, automorphisms, decompose, inner_product, mod_down,
};
use hushed_rlwe::{RlweLiteral, RlweParams, SecretKey};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

/// Rotations that share one decomposition.
const HOISTED: usize = 4;

const OK: &str = "shapes of the chain";

fn main() {
    println!("kernel {}", Cpu::get().kernel_name());
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads());
    pool.build().expect("threads").install(|| {
        let params = params();
        let mut rng = SecretRng::from_os("benchmark");
        let sk = SecretKey::generate(&params, &mut rng);
        println!(
            "{:>5} {:>7} {:>6} {:>10} {:>9} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "limbs", "special", "digits", "transforms", "decompose", "product", "down", "rotation", "hoisted", "key MB"
        );
        for (limbs, special) in shapes(&params) {
            row(&params, &sk, &mut rng, limbs, special);
        }
    });
}

/// One thread, or `THREADS`.
fn threads() -> usize {
    let given = std::env::var("THREADS").ok();
    given.and_then(|t| t.parse().ok()).unwrap_or(1)
}

fn params() -> Arc<RlweParams> {
    let n = 1 << 16;
    let (fifty, forty) = (ntt_primes(50, n, 23), ntt_primes(40, n, 17));
    RlweParams::new(RlweLiteral {
        log_n: 16,
        q: [&fifty[..1], &forty, &fifty[1..12]].concat(),
        p: fifty[12..].to_vec(),
    })
    .expect("within the limit")
}

fn shapes(params: &RlweParams) -> Vec<(usize, usize)> {
    let given: Vec<(usize, usize)> = std::env::args()
        .filter_map(|argument| {
            let (limbs, special) = argument.split_once(':')?;
            Some((limbs.parse().ok()?, special.parse().ok()?))
        })
        .collect();
    if !given.is_empty() {
        return given;
    }
    let best = |&limbs: &usize| {
        let gadgets = (1..=params.p_len()).filter_map(|k| Gadget::new(params, limbs, k).ok());
        let best = gadgets.min_by_key(|gadget| gadget.transforms(limbs));
        (limbs, best.map_or(1, |gadget| gadget.special()))
    };
    [29, 20, 14, 5, 2].iter().map(best).collect()
}

fn row(params: &Arc<RlweParams>, sk: &SecretKey, rng: &mut SecretRng, limbs: usize, special: usize) {
    let mut specs = KeySpecs::new();
    let elements: Vec<usize> = (0..HOISTED).map(|k| 4 * k + 5).collect();
    for &g in &elements {
        specs.galois(g, limbs, special);
    }
    let keys = EvalKeys::generate(sk, &specs, rng).expect(OK);
    let key = keys.galois(5, limbs).expect(OK);
    let mut random = || {
        let mut stream = PublicStream::new(&rng.public_seed(), 0);
        RnsPoly::uniform(params.basis(), &params.ciphertext_ids(limbs), &mut stream)
    };
    let (b, a) = (random(), random());
    let digits = decompose(params, key.gadget(), &a).expect(OK);
    let product = inner_product(&digits, key).expect(OK);
    let all: Vec<_> = elements.iter().flat_map(|&g| keys.galois(g, limbs)).collect();
    let times = [
        least(|| drop(black_box(decompose(params, key.gadget(), &a)))),
        least(|| drop(black_box(inner_product(&digits, key)))),
        least(|| drop(black_box(mod_down(params, product.b.clone(), special)))),
        least(|| drop(black_box(automorphism(&b, &a, key)))),
        least(|| drop(black_box(automorphisms(&b, &a, &all)))) / HOISTED as f64,
    ];
    let shape = key.gadget();
    print!("{limbs:>5} {special:>7} {:>6} {:>10}", shape.digits().len(), shape.transforms(limbs));
    for (time, width) in times.iter().zip([9, 8, 8, 8, 8]) {
        print!(" {time:>width$.2}");
    }
    println!(" {:>8.1}", key.memory_bytes() as f64 / 1e6);
}

/// This thread's CPU time, if the system reports it and there is only one thread: other programs then disturb less.
/// Otherwise the elapsed time.
struct Clock {
    wall: Instant,
    ran: Option<u64>,
}

impl Clock {
    fn start() -> Clock {
        Clock { ran: ran(), wall: Instant::now() }
    }

    fn milliseconds(&self) -> f64 {
        match (self.ran, ran()) {
            (Some(before), Some(now)) => (now - before) as f64 / 1e6,
            _ => self.wall.elapsed().as_secs_f64() * 1e3,
        }
    }
}

/// Nanoseconds.
fn ran() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let text = text.filter(|_| threads() == 1)?;
    text.split_whitespace().next()?.parse().ok()
}

/// Milliseconds per call: the least of several means, each over a fifth of a second of calls.
fn least(mut f: impl FnMut()) -> f64 {
    let rounds = (0..5).map(|_| {
        let (start, mut calls) = (Clock::start(), 0);
        while calls == 0 || start.wall.elapsed().as_secs_f64() < 0.2 {
            f();
            calls += 1;
        }
        start.milliseconds() / f64::from(calls)
    });
    rounds.fold(f64::INFINITY, f64::min)
}
