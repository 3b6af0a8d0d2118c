//! Bootstraps a ciphertext at the bottom of its chain, giving it levels again.
//!
//! cargo run --release -p hushed-ckks --example bootstrap [PRESET] [BATCH] [LEVELS]
//!
//! Without a preset it uses a small ring, which is INSECURE and says so; with `n16-boot-14x40` or `n15-boot-3x40`, 128
//! bits. Prints the time of each step and the precision of the result; with LEVELS also the time of a refresh to that
//! many levels.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use hushed_ckks::bootstrap::{BootstrapLiteral, Bootstrapper, Halves, encapsulate};
use hushed_ckks::keys::{EvalKeys, SecretKey};
use hushed_ckks::{CkksParams, Complex64, Decryptor, Encoder, Encryptor, Evaluator};
use hushed_math::rng::SecretRng;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let preset = arguments.next();
    let batch = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let levels = arguments.next().map(|text| text.parse()).transpose()?;
    run(preset.as_deref(), batch, levels)?;
    if let Ok(status) = std::fs::read_to_string("/proc/self/status") {
        let peak = status.lines().find(|line| line.starts_with("VmHWM"));
        println!("{}", peak.unwrap_or_default());
    }
    Ok(())
}

/// Bootstraps `batch` ciphertexts, also to `levels` levels if given. Returns the least and mean bits of precision over
/// all slots of the first.
pub fn run(preset: Option<&str>, batch: usize, levels: Option<usize>) -> Result<(f64, f64), Box<dyn Error>> {
    let params = match preset {
        Some(name) => CkksParams::preset(name)?,
        None => {
            println!("INSECURE parameters: a ring of degree 2^11, to show the steps quickly");
            CkksParams::insecure_test(11, 4)?
        }
    };
    let mut clock = Clock(Instant::now(), processor_ms());

    let bootstrapper = Bootstrapper::new(&params, BootstrapLiteral::default())?;
    clock.say("matrices encoded, polynomial fitted");
    let specs = bootstrapper.key_specs();
    println!(
        "{} keys, {:.2} GiB in memory, {:.2} GiB packed; matrices {:.2} GiB",
        specs.len(),
        gib(specs.memory_bytes(params.rlwe())?),
        gib(specs.artefact_bytes(params.rlwe())?),
        gib(bootstrapper.plaintext_bytes()),
    );
    for (i, map) in bootstrapper.maps().enumerate() {
        let (babies, giants) = map.key_switches();
        println!(
            "  map {i}: {} primes + {}, {} digits, {} diagonals, {babies} baby and {giants} giant steps",
            map.limbs(),
            map.gadget().special(),
            map.gadget().digits().len(),
            map.products(),
        );
    }

    // The client's side.
    let mut rng = SecretRng::from_os("bootstrap example");
    let key = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
    let keys = EvalKeys::generate(&key, &specs, &mut rng)?;
    clock.say("keys made");
    let encoder = Arc::new(Encoder::new(&params));
    let message: Vec<Complex64> =
        (0..params.slots()).map(|_| Complex64::new(uniform(&mut rng), uniform(&mut rng))).collect();
    let limbs = params.bootstrap_limbs();
    let plain = encoder.encode(&message, limbs, params.default_scale())?;
    let ct = Encryptor::new(&params, &key)?.encrypt(&plain, &mut rng)?;

    // The server's side.
    let evaluator = Evaluator::new(&params, Arc::new(keys))?;
    clock.say("encrypted");
    evaluator.counters().reset();
    let outs = bootstrapper.bootstrap_many(&evaluator, &vec![&ct; batch])?;
    clock.say("all steps, with memory fresh from the system");
    println!("{}", evaluator.counters().snapshot());
    let low = vec![ct.clone(); batch];
    let low = bootstrapper.slots_to_coeffs().apply(&evaluator, low)?;
    clock.say("1  SlotsToCoeffs");
    let low: Vec<_> = low.into_iter().map(|ct| encapsulate(&evaluator, ct)).collect::<Result<_, _>>()?;
    clock.say("2  to the sparse secret");
    let parts = bootstrapper.coeffs_to_slots().apply(&evaluator, &low)?;
    clock.say("3, 4  ModRaise and CoeffsToSlots");
    for part in parts.iter().flat_map(Halves::as_slice) {
        bootstrapper.reduce(&evaluator, part, &ct)?;
    }
    clock.say("5  EvalMod of both parts");
    let mut outs = outs;
    if let Some(levels) = levels {
        for _ in 0..2 {
            evaluator.counters().reset();
            let cts = vec![&ct; batch];
            outs = bootstrapper.bootstrap_many_to(&evaluator, &cts, limbs + levels)?;
            clock.say("all steps, to fewer levels");
        }
        println!("{}", evaluator.counters().snapshot());
    }
    let out = outs.first().ok_or("an empty batch")?;
    println!("{} primes before, {} after", ct.limbs(), out.limbs());
    let found = Decryptor::new(&encoder, &key)?.decrypt_raw(out)?;
    let errors = found.iter().zip(&message).map(|(x, y)| x - y);
    let bits: Vec<f64> =
        errors.flat_map(|error| [error.re, error.im]).map(|error| -error.abs().max(1e-18).log2()).collect();
    let least = bits.iter().copied().fold(f64::INFINITY, f64::min);
    let mean = bits.iter().sum::<f64>() / bits.len() as f64;
    println!("precision: {least:.2} bits at the worst of all slots, {mean:.2} in the mean");
    Ok((least, mean))
}

/// Wall-clock and CPU time of the previous step.
struct Clock(Instant, f64);

impl Clock {
    fn say(&mut self, what: &str) {
        let (wall, processor) = (self.0.elapsed().as_secs_f64() * 1e3, processor_ms());
        println!("{wall:9.1} ms, processor {:9.1} ms  {what}", processor - self.1);
        *self = Self(Instant::now(), processor_ms());
    }
}

/// CPU time of all threads so far in milliseconds, in steps of 10; 0 if the system does not report it.
fn processor_ms() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|t| t.parse::<f64>().ok()).sum();
    ticks * 10.0
}

fn gib(bytes: usize) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}

/// Uniform in [−1, 1].
fn uniform(rng: &mut SecretRng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}
