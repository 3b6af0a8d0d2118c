//! Microseconds per operation that the protocols call, on one core, and the bytes sent:
//! `cargo bench -p hushed-rlwe`.
//!
//! Prints the minimum of many rounds, the time when nothing else runs. A report, not a test: it asserts nothing about
//! time.

use hushed_math::RnsPoly;
use hushed_math::cpu::Cpu;
use hushed_math::rng::SecretRng;
use hushed_rlwe::{
    FloodedFormat, Interleaving, KeySet, Positions, PrimeScale, ResponseFormat, RingScale, RlweParams, SecretKey,
    SeededCiphertext, modulus_switch,
};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

fn main() {
    println!("kernel {}", Cpu::get().kernel_name());
    preset("olt_small", &RlweParams::olt_small().expect("a preset"), &[32, 37, 64]);
    preset("olt_full", &RlweParams::olt_full().expect("a preset"), &[64]);
    preset("ole", &RlweParams::ole().expect("a preset"), &[64]);
    flooded(&RlweParams::ole().expect("a preset"));
}

fn preset(name: &str, params: &Arc<RlweParams>, rings: &[u32]) {
    let mut rng = SecretRng::from_os("benchmark");
    let sk = SecretKey::generate(params, &mut rng);
    let levels = if params.special_prime().is_some() { 13 } else { 0 };
    let elements = params.interleave_elements(levels);
    let start = Instant::now();
    // Ciphertexts are interleaved over two primes.
    let key_limbs = params.q_len().min(2);
    let keys = KeySet::generate(&sk, &elements, key_limbs, &mut rng);
    let keys = keys.expect("elements of the preset");
    println!(
        "{name}: N = {}, log2(QP) = {:.0}; keys for {} automorphisms: {:.1} ms, {} bytes",
        params.n(),
        params.log2_qp(),
        elements.len(),
        start.elapsed().as_secs_f64() * 1e3,
        KeySet::bytes(params, elements.len(), key_limbs),
    );
    let limbs = params.q_len();
    let ok = "shapes of the preset";
    let x: Vec<u64> = (0..params.n()).map(|_| rng.next_u64()).collect();
    let scale = RingScale::new(params, limbs, 64).expect(ok);
    let message = scale.scale_up(&x).expect(ok);
    let seeded = sk.encrypt_seeded(message.clone(), &mut rng).expect(ok);
    let list = SeededCiphertext::list_to_bytes(params, limbs, std::slice::from_ref(&seeded));
    let list = list.expect(ok);
    let ct = seeded.clone().expand();
    let threes = vec![3; params.n()];
    let plain = RnsPoly::from_signed(params.basis(), &params.ciphertext_ids(limbs), &threes);
    let plain = plain.into_eval();
    let mut sum = ct.clone();

    report("scale up", || drop(black_box(scale.scale_up(&x))));
    report("scale down", || drop(black_box(scale.scale_down(&message))));
    report("encrypt, seeded", || {
        drop(black_box(sk.encrypt_seeded(message.clone(), &mut rng)));
    });
    report("expand", || drop(black_box(seeded.clone().expand())));
    report("read bytes", || {
        drop(black_box(SeededCiphertext::list_from_bytes(params, limbs, 1, &list)));
    });
    println!("  {:<28} {} bytes", "ciphertext on the wire", list.len());
    report("multiply and add plain", || sum.mul_add_assign(&ct, &plain));
    report("multiply by a monomial", || sum.mul_monomial_assign(1));
    report("public-key zero", || drop(black_box(keys.public.encrypt_zero(&mut rng, limbs))));
    let trees = if elements.is_empty() { 0 } else { key_limbs };
    for limbs in 1..=trees {
        let tree = Interleaving::new(&keys.galois, 16, limbs).expect(ok);
        let parts = [(); 4].map(|()| ct.a.keep_limbs(&params.ciphertext_ids(limbs)).into_coeff());
        report(&format!("node of four, {limbs} primes"), || {
            drop(black_box(tree.combine(&parts, 4, 1)));
        });
    }
    report("drop one prime", || drop(black_box(modulus_switch(params, ct.clone(), limbs - 1))));
    let all = Positions::all(params);
    for &ell in rings {
        let format = ResponseFormat::for_ring(params, ell, 30).expect(ok);
        let mut sent = Vec::new();
        report(&format!("answer, {ell} bits"), || {
            sent.clear();
            drop(black_box(format.answer(&ct, &keys.public, &all, &mut rng, &mut sent)));
        });
        report(&format!("open, {ell} bits"), || drop(black_box(format.open(&sent, &sk, &all))));
        let (a, b) = format.coefficient_bits();
        let primes = format.limbs();
        println!("  {:<28} {} bytes ({primes} primes, {a} + {b} bits)", "response", sent.len());
    }
}

/// One of the three primes of batched evaluation, with an inference's noise and hiding.
fn flooded(params: &Arc<RlweParams>) {
    let ok = "shapes of the preset";
    let mut rng = SecretRng::from_os("benchmark");
    let sk = SecretKey::generate(params, &mut rng);
    let keys = KeySet::generate(&sk, &[], params.q_len(), &mut rng).expect(ok);
    let t = hushed_math::primes::ntt_primes(43, params.n(), 1)[0];
    let format = FloodedFormat::for_prime(params, t, 55, 64).expect(ok);
    let scale = PrimeScale::new(params, params.q_len(), t).expect(ok);
    let message = scale.scale_up(&vec![1; params.n()]).expect(ok);
    let ct = sk.encrypt_seeded(message, &mut rng).expect(ok).expand();
    let mut sent = Vec::new();
    report("answer, flooded", || {
        sent.clear();
        drop(black_box(format.answer(&ct, &keys.public, &mut rng, &mut sent)));
    });
    report("open, flooded", || drop(black_box(format.open(&sent, &sk))));
    let (a, b) = format.coefficient_bits();
    println!("  {:<28} {} bytes ({a} + {b} bits)", "response", sent.len());
}

fn report(what: &str, mut f: impl FnMut()) {
    let rounds = (0..60).map(|_| {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64() * 1e6
    });
    println!("  {what:<28} {:8.1} us", rounds.fold(f64::INFINITY, f64::min));
}
