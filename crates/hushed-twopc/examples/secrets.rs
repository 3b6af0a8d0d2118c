//! Checks whether secrets decide time, branches or addresses, in an optimised build, in two ways:
//!
//! * `secrets time` runs each function that chooses by secret bits with all bits zero and with all bits one,
//!   alternating in random order over the same buffers, and compares the two means by Welch's t. Load on the machine
//!   affects both alike.
//! * `valgrind secrets watch` runs the same functions, then whole protocols over Ferret, with secrets marked: memcheck
//!   reports every branch and address that depends on one. It covers the kernels that valgrind can run (AVX2, AES-NI).
//!
//! Both start with a planted leak and fail unless they find it. `cargo xtask secrets` runs them.

use hushed_math::rng::SecretRng;
use hushed_math::{cpu::Cpu, taint};
use hushed_net::Party;
use hushed_twopc::Link;
use hushed_twopc::ctx::Ctx;
use hushed_twopc::func::Format;
use hushed_twopc::func::curve::{GELU_EIGHT, curve_scaled};
use hushed_twopc::func::inverse::{Positive, reciprocal};
use hushed_twopc::func::norm::{NormReach, NormShape, normalise_rows, unit_rows};
use hushed_twopc::func::relu::relu;
use hushed_twopc::func::sigmoid::{ARGUMENT, sigmoid};
use hushed_twopc::func::softmax::{SCORES, exponentials};
use hushed_twopc::gadget::{self, Sign};
use hushed_twopc::he::{
    HeContext, MatmulShape, OltShape, PreparedWeights, linear_client, linear_server, matmul_shared,
};
use hushed_twopc::share::{BitShare, Ring, Share};
use hushed_twopc::testing::secrets::{Case, Secret, cases};
use hushed_twopc::testing::{run_pair_over_ferret, share, share_bits};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let clean = match std::env::args().nth(1).as_deref() {
        Some("time") => time(),
        Some("watch") => watch(),
        _ => {
            eprintln!("usage: secrets time | valgrind --error-exitcode=0 secrets watch");
            return ExitCode::from(2);
        }
    };
    if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Above this two means differ. Samples without a difference reach it once in 10^23; a leak of half a percent does.
const LIMIT: f64 = 10.0;
/// A difference counts if it shows in this many attempts in a row with the same sign: a burst of load shows in only
/// one.
const ATTEMPTS: usize = 3;
/// Samples per attempt.
const SAMPLES: usize = 4000;

fn time() -> bool {
    println!("kernels {:?}", Cpu::get());
    let mut all = true;
    for mut case in cases() {
        let mut found: Vec<f64> = Vec::new();
        for _ in 0..ATTEMPTS {
            found.push(welch(&mut case));
            let t = found[found.len() - 1];
            if t.abs() < LIMIT || found[0].signum() != t.signum() {
                break;
            }
        }
        let leaks =
            found.len() == ATTEMPTS && found.iter().all(|t| t.abs() >= LIMIT && t.signum() == found[0].signum());
        let ts: Vec<String> = found.iter().map(|t| format!("{t:.1}")).collect();
        all &= said(&case, leaks, &format!("t = {}", ts.join(", ")));
    }
    all
}

/// Prints a case's line and returns whether the outcome is as expected.
fn said(case: &Case, leaks: bool, what: &str) -> bool {
    let verdict = match (case.planted, leaks) {
        (false, false) => "ok  ",
        (true, true) => "seen",
        (false, true) => "LEAK",
        (true, false) => "BLIND: the planted leak was not found,",
    };
    println!("{verdict} {:<34} {what}", case.name);
    case.planted == leaks
}

/// Welch's t between the times with all bits zero and with all bits one. The slowest tenth of all samples is left out
/// as interrupts.
fn welch(case: &mut Case) -> f64 {
    let mut rng = SecretRng::from_os("order of samples");
    let mut samples = Vec::with_capacity(SAMPLES);
    // The first runs warm up caches and clock.
    for i in 0..SAMPLES + SAMPLES / 10 {
        let ones = rng.next_u64() & 1 == 1;
        case.set(if ones { Secret::Ones } else { Secret::Zeros });
        let start = Instant::now();
        case.run();
        let taken = start.elapsed().as_nanos() as f64;
        if i >= SAMPLES / 10 {
            samples.push((taken, ones));
        }
    }
    samples.sort_by(|a, b| a.0.total_cmp(&b.0));
    samples.truncate(SAMPLES - SAMPLES / 10);
    let moments = |ones: bool| {
        let of: Vec<f64> = samples.iter().filter(|s| s.1 == ones).map(|s| s.0).collect();
        let n = of.len() as f64;
        let mean = of.iter().sum::<f64>() / n;
        let variance = of.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
        (mean, variance / n, n)
    };
    let ((a, va, na), (b, vb, nb)) = (moments(false), moments(true));
    // A leak so large that this rule takes all of one class for interrupts.
    if na < 100.0 || nb < 100.0 {
        return if na < nb { -f64::INFINITY } else { f64::INFINITY };
    }
    // A clock too coarse to tell samples apart shows no variance: assume at least one nanosecond.
    (b - a) / (va + vb + 1.0 / (na + nb)).sqrt()
}

fn watch() -> bool {
    if !taint::watched() {
        eprintln!("secrets watch says nothing outside valgrind");
        return false;
    }
    println!("kernels {:?}", Cpu::get());
    let mut all = true;
    for mut case in cases() {
        let before = taint::reports();
        case.set(Secret::Marked);
        case.run();
        let reports = taint::reports() - before;
        all &= said(&case, reports > 0, &format!("{reports} reports"));
    }
    let before = taint::reports();
    protocols();
    let reports = taint::reports() - before;
    let verdict = if reports == 0 { "ok  " } else { "LEAK" };
    println!("{verdict} {:<34} {reports} reports", "protocols over Ferret");
    all && reports == 0
}

/// One party's inputs.
struct Inputs {
    values: Share,
    bits: BitShare,
    scores: Share,
}

/// Gadgets, a function of them and a product over RLWE, with real correlations: shares, seeds and keys are marked.
fn protocols() {
    let ring = Ring::new(40);
    let values: Vec<u64> = (0..130u64).map(|i| i * 7_654_321 % (1 << 30)).collect();
    let bits: Vec<u64> = (0..130).map(|i| i % 3 % 2).collect();
    let scores: Vec<u64> = (0..130).map(|i| SCORES.encode(f64::from(i % 17) - 8.0)).collect();
    let (v0, v1) = share(ring, &values, 1);
    let (b0, b1) = share_bits(&bits, 2);
    let (s0, s1) = share(SCORES.ring, &scores, 3);
    let party = |values, bits, scores| Inputs { values, bits, scores };
    let (client, server) = (party(v0, b0, s0), party(v1, b1, s1));
    run_pair_over_ferret(|ctx| run(ctx, &client), |ctx| run(ctx, &server));
}

fn run(ctx: &mut Ctx, x: &Inputs) {
    let what = "a protocol over sessions in memory";
    gadget::mux(ctx, &x.bits, &x.values).expect(what);
    gadget::bit_to_arith(ctx, &x.bits, Ring::new(20)).expect(what);
    gadget::msb(ctx, &x.values).expect(what);
    gadget::less_than_public(ctx, &x.values, &[1000, 1 << 20], 3, 37).expect(what);
    gadget::is_zero(ctx, &x.values).expect(what);
    gadget::truncate(ctx, &x.values, 12, Sign::Bounded, Ring::new(28)).expect(what);
    gadget::mul(ctx, &x.values, &x.values).expect(what);
    gadget::square(ctx, &x.values).expect(what);
    gadget::max_rows(ctx, &x.values, 10, 13, 0, 40).expect(what);
    gadget::argmax_levels(ctx, &x.values, 10, 13).expect(what);
    gadget::largest_of_few(ctx, &x.values, &x.values, 10, 13).expect(what);
    let words = x.values.words().iter().take(10);
    let places: Vec<u64> = words.map(|word| word % 13).collect();
    gadget::pick(ctx, &x.values, &[13; 10], &places).expect(what);
    gadget::highest_one(ctx, &x.values).expect(what);
    let index = [x.bits.clone(), x.bits.clone()];
    let four = [0, 1, 2, 3].map(|_| x.values.clone());
    gadget::select(ctx, &index, &four).expect(what);
    exponentials(ctx, &x.scores, &[13; 10], Format::new(40, 14)).expect(what);
    sigmoid(ctx, &x.scores.reduce_to(ARGUMENT.ring), Format::new(37, 15)).expect(what);
    gadget::open_rounded(ctx, Party::Client, &x.values, 20, Ring::new(16)).expect(what);
    let (from, to) = (Format::new(40, 20), Format::new(30, 15));
    curve_scaled(ctx, &GELU_EIGHT, &x.values, from.frac, to).expect(what);
    relu(ctx, &x.values, from, to).expect(what);
    reciprocal(ctx, &x.values, Positive::below(30), 1024.0, 10, Ring::new(30)).expect(what);
    // Over a long way it takes series.
    let (few, of) = (x.values.slice(0..4), Positive::below(30).within(1 << 25, 1 << 29));
    ctx.set_link(Link::INTERNET);
    reciprocal(ctx, &few, of, 1e9, 10, Ring::new(30)).expect(what);
    reciprocal(ctx, &few, Positive::below(30), 1024.0, 10, Ring::new(30)).expect(what);
    ctx.set_link(Link::LAN);

    let he = HeContext::exchange(ctx).expect(what);
    let shape = MatmulShape { shape: OltShape { k: 5, m: 26, n: 5 }, batch: 1 };
    matmul_shared(ctx, &he, &x.values, &x.values, &shape).expect(what);
    let norm = NormShape { rows: 5, width: 26, centre: true, epsilon: 1e-12, reach: NormReach::USUAL };
    normalise_rows(ctx, &he, &x.values, from, norm, to).expect(what);
    unit_rows(ctx, &he, &x.values, from, 5, 26).expect(what);
    let mut numbers: Vec<i32> = (0..130).map(|i| i * 7919 % 1000 - 500).collect();
    taint::secret(&mut numbers);
    // The largest weight decides nothing but whether the weights are accepted.
    numbers.iter_mut().for_each(|w| *w &= 1023);
    let weights = PreparedWeights::transposed(26, 5, 10, 1023, numbers).expect(what);
    match ctx.party() {
        Party::Client => linear_client(ctx, &he, &x.values, &weights.shape(5)),
        Party::Server => linear_server(ctx, &he, &x.values, &weights),
    }
    .expect(what);
}
