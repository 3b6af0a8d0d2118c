//! Milliseconds of the evaluator's primitives on one thread: `cargo bench -p hushed-ckks --bench evaluator [LIMBS …]`.
//!
//! The preset `n16-boot-14x40`, at 3, 7, 14 and 25 primes by default; set `THREADS` for more threads. Prints the
//! minimum of several runs, the time with nothing else running. A report, not a test: it asserts nothing about time.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use hushed_ckks::keys::{EvalKeyPlan, EvalKeys, SecretKey};
use hushed_ckks::{Ciphertext, CkksParams, Complex64, Decryptor, Encoder, Encryptor, Evaluator};
use hushed_math::cpu::Cpu;
use hushed_math::rng::SecretRng;

const OK: &str = "operations that fit";
const STEPS: [i64; 8] = [1, 2, 3, 4, 5, 6, 7, 8];

fn main() {
    println!("kernel {}", Cpu::get().kernel_name());
    let given = std::env::var("THREADS").ok();
    let threads = given.and_then(|t| t.parse().ok()).unwrap_or(1);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
    pool.build().expect("threads").install(run);
}

fn run() {
    let params = CkksParams::n16_boot().expect(OK);
    let given: Vec<usize> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let lengths = if given.is_empty() {
        vec![3, 7, 14, 25]
    } else {
        given
    };
    let mut rng = SecretRng::from_os("benchmark");
    let key = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
    let mut plan = EvalKeyPlan::new();
    for &limbs in &lengths {
        plan.merge(&params.key_plan(limbs, true, &STEPS, false).expect(OK));
    }
    let keys = EvalKeys::generate(&key, &plan, &mut rng).expect(OK);
    let evaluator = Evaluator::new(&params, Arc::new(keys)).expect(OK);
    let encoder = Arc::new(Encoder::new(&params));
    let encryptor = Encryptor::new(&params, &key).expect(OK);
    let decryptor = Decryptor::new(&encoder, &key).expect(OK);
    let values: Vec<Complex64> = (0..params.slots())
        .map(|j| Complex64::new((j as f64).sin(), (j as f64).cos()))
        .collect();
    let scale = params.default_scale();
    for limbs in lengths {
        let plain = encoder.encode(&values, limbs, scale).expect(OK);
        let ct = encryptor.encrypt(&plain, &mut rng).expect(OK);
        let c = Complex64::new(0.3, 0.4);
        println!("{limbs} primes");
        let row = |name: &str, f: &dyn Fn()| println!("  {name:<24} {:8.3} ms", least(f));
        row("add", &|| drop(black_box(evaluator.add(&ct, &ct))));
        row("mul_plain", &|| {
            drop(black_box(evaluator.mul_plain(&ct, &plain)))
        });
        row("mul_scalar", &|| {
            drop(black_box(evaluator.mul_scalar(&ct, c, scale)))
        });
        row("rescale", &|| drop(black_box(evaluator.rescale(&ct))));
        row("tensor", &|| drop(black_box(evaluator.tensor(&ct, &ct))));
        row("mul", &|| drop(black_box(evaluator.mul(&ct, &ct))));
        row("mul_rescale", &|| {
            drop(black_box(evaluator.mul_rescale(&ct, &ct)))
        });
        row("rotate", &|| drop(black_box(evaluator.rotate(&ct, 1))));
        row("8 rotations, hoisted", &|| {
            drop(black_box(evaluator.rotate_many(&ct, &STEPS)));
        });
        row("encode", &|| {
            drop(black_box(encoder.encode(&values, limbs, scale)))
        });
        row("integers", &|| {
            drop(black_box(encoder.integers(&values, scale)))
        });
        row("decrypt", &|| drop(black_box(decryptor.decrypt(&ct))));
        grid(&evaluator, &ct);
    }
}

/// A grid of 4 × 4 sums of 16 products, and one such sum product by product; relinearisations are timed separately.
fn grid(evaluator: &Evaluator, ct: &Ciphertext) {
    const SIDE: usize = 4;
    const TERMS: usize = 16;
    let operands = || -> Vec<Vec<Ciphertext>> { vec![vec![ct.clone(); SIDE]; TERMS] };
    let (left, right) = (operands(), operands());
    let sums = (SIDE * SIDE) as f64;
    let whole = least(&|| drop(black_box(evaluator.dot_grid(&left, &right))));
    let tensor = evaluator.tensor(ct, ct).expect(OK);
    let relinearise = least(&|| drop(black_box(evaluator.relinearize_rescale(&tensor))));
    let naive = least(&|| {
        for i in 0..SIDE {
            let mut sum = evaluator.tensor(&left[0][i], &right[0][i]).expect(OK);
            for (left, right) in left.iter().zip(&right).skip(1) {
                let added = evaluator.tensor_add_assign(&mut sum, &left[i], &right[i]);
                added.expect(OK);
            }
            black_box(sum);
        }
    });
    let print = |name: &str, ms: f64| println!("  {name:<24} {ms:8.3} ms");
    print("sum of 16 products", naive / SIDE as f64);
    print("the same in a grid", whole / sums - relinearise);
    print("relinearize_rescale", relinearise);
}

/// The minimum over five runs of several rounds, in milliseconds per round. On one thread it is CPU time where the
/// system reports it (in clock ticks, hence several rounds per run), so that other work on the machine disturbs little;
/// on several threads it is wall-clock time.
fn least(f: &dyn Fn()) -> f64 {
    let time = |rounds: u32| {
        let (start, used) = (Instant::now(), processor_time());
        (0..rounds).for_each(|_| f());
        let used = used.zip(processor_time());
        match used.filter(|_| rayon::current_num_threads() == 1) {
            Some((before, after)) => after - before,
            None => start.elapsed().as_secs_f64(),
        }
    };
    let start = Instant::now();
    f();
    let once = start.elapsed().as_secs_f64();
    let rounds = (0.1 / once).clamp(1.0, 1000.0) as u32;
    let runs = (0..5).map(|_| time(rounds) / f64::from(rounds));
    1e3 * runs.fold(f64::INFINITY, f64::min)
}

/// CPU seconds used by this thread.
fn processor_time() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds * 1e-9)
}
