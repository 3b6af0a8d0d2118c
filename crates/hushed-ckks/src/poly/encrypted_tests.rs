//! The same code on ciphertexts of a small insecure ring: all slots random over the whole interval, precision in bits,
//! and the evaluator's counters.

use std::sync::Arc;

use super::*;
use crate::params::CkksParams;
use crate::poly::{
    Cost, EvalMod, EvalModLiteral, Inverse, InverseSqrt, Parity, Polynomial, Schedule, evaluate, evaluate_many,
};
use crate::testing::{Fixture, bits};
use crate::{CkksError, Opening};

/// N = 2^11, `levels` levels of 40 bits.
fn fixture(levels: usize, seed: u64) -> Fixture {
    let params = CkksParams::insecure_shallow(11, levels).unwrap();
    let specs = params.key_specs(params.max_limbs(), true, &[], false).unwrap();
    Fixture::new(&params, &specs, seed)
}

/// T₁₆ amplifies an error by 2^48 at 4 and by 2^22 at i, but by 2^8 within [−1, 1], which is what a prediction assumes.
#[test]
fn c1_after_a_polynomial_nothing_is_flooded() {
    let mut f = fixture(6, 31);
    let mut coefficients = vec![0.0; 17];
    coefficients[16] = 1.0;
    let p = Polynomial::chebyshev(coefficients, -1.0, 1.0).unwrap();
    let (limbs, scale) = (f.params.max_limbs(), f.params.default_scale());
    for (x, value) in [(4.0, p.eval(4.0)), (0.5, p.eval(0.5))] {
        let slots = vec![x; f.params.slots()];
        let ct = encrypt(&mut f, &slots, limbs, scale);
        let y = evaluate(&f.evaluator, &ct, &p, scale).unwrap();
        assert!(value > 1.0 || x < 1.0);
        let opening = Opening::Flooded { security: 30, decryptions: 2 };
        let opened = f.decryptor.open(&y, opening);
        assert!(matches!(opened, Err(CkksError::UnknownError { .. })));
    }
}

/// Real values over [low, high], one per slot.
fn over(fixture: &mut Fixture, low: f64, high: f64) -> Vec<f64> {
    let place = |v: Complex64| low + (high - low) * (v.re + 1.0) / 2.0;
    fixture.random().into_iter().map(place).collect()
}

fn encrypt(fixture: &mut Fixture, values: &[f64], limbs: usize, scale: Scale) -> Ciphertext {
    let plain = fixture.encoder.encode_real(values, limbs, scale).unwrap();
    fixture.encryptor.encrypt(&plain, &mut fixture.rng).unwrap()
}

/// Least and mean bits of precision of the real parts.
fn real_bits(fixture: &Fixture, ct: &Ciphertext, expected: impl Iterator<Item = f64>) -> (f64, f64) {
    let found = fixture.decryptor.decrypt_raw(ct).unwrap();
    let found: Vec<Complex64> = found.iter().map(|v| Complex64::from(v.re)).collect();
    let expected: Vec<Complex64> = expected.map(Complex64::from).collect();
    // `bits` counts imaginary parts too, which are exact here, so only its minimum is used.
    let (least, _) = bits(&found, &expected);
    let mean: f64 = found.iter().zip(&expected).map(|(x, y)| -(x - y).re.abs().max(1e-18).log2()).sum();
    (least, mean / found.len() as f64)
}

/// Checks that key switches and products since the last reset match `cost`.
fn check_counters(fixture: &Fixture, cost: Cost) {
    let counts = fixture.evaluator.counters().snapshot();
    assert_eq!(counts.key_switch, cost.relinearisations as u64);
    assert_eq!(counts.ct_mul, cost.products as u64);
    fixture.evaluator.counters().reset();
}

#[test]
fn polynomials_of_full_random_slots() {
    let mut f = fixture(9, 1);
    let scale = f.params.default_scale();
    let limbs = f.params.max_limbs();
    let c = |k: usize| ((k * k + 3 * k + 1) as f64).sin() / (1.0 + k as f64);
    let coeffs = |n: usize| (0..n).map(c).collect::<Vec<f64>>();
    let odd = |n: usize| (0..n).map(|k| if k % 2 == 1 { c(k) } else { 0.0 }).collect::<Vec<f64>>();
    for (p, low, high, floor) in [
        (Polynomial::chebyshev(coeffs(32), -3.0, 5.0).unwrap(), -3.0, 5.0, 18.0),
        (Polynomial::chebyshev(coeffs(60), -1.0, 1.0).unwrap(), -1.0, 1.0, 18.0),
        (Polynomial::monomial(coeffs(8)).unwrap(), -1.0, 1.0, 22.0),
        (Polynomial::monomial(odd(8)).unwrap().with_parity(Parity::Odd).unwrap(), -1.0, 1.0, 22.0),
    ] {
        let x = over(&mut f, low, high);
        let ct = encrypt(&mut f, &x, limbs, scale);
        f.evaluator.counters().reset();
        let target = Scale::new(scale.value() * 1.25).unwrap();
        let y = evaluate(&f.evaluator, &ct, &p, target).unwrap();
        check_counters(&f, Schedule::new(&[&p]).cost());
        assert!(y.scale().matches(target));
        assert_eq!(y.limbs(), limbs - p.depth());
        let (least, mean) = real_bits(&f, &y, x.iter().map(|&x| p.eval(x)));
        let predicted = y.noise().min_bits(f.params.slots()).unwrap();
        println!("degree {}: least {least:.1}, mean {mean:.1}, predicted {predicted:.1}", p.degree());
        // Conservative, but by no more than a few bits.
        assert!(predicted < least + 1.0 && predicted > least - 8.0);
        assert!(least > floor, "degree {}: {least:.1} {mean:.1}", p.degree());
    }
}

#[test]
fn complex_slots_and_several_polynomials() {
    let mut f = fixture(5, 2);
    let scale = f.params.default_scale();
    // A polynomial with real coefficients also acts on complex slots; |x| ≤ √2.
    let p = Polynomial::monomial(vec![0.25, -0.5, 0.125, 0.25]).unwrap();
    let q = Polynomial::monomial(vec![0.0, 1.0, 0.0, 0.0, 0.125]).unwrap();
    let x = f.random();
    let ct = f.encrypt(&x, 6);
    f.evaluator.counters().reset();
    let ys = evaluate_many(&f.evaluator, &ct, &[(&p, scale), (&q, scale)]).unwrap();
    check_counters(&f, Schedule::new(&[&p, &q]).cost());
    for (y, p) in ys.iter().zip([p, q]) {
        let horner = |x: &Complex64| p.coeffs().iter().rev().fold(Complex64::ZERO, |v, c| v * x + c);
        let expected: Vec<Complex64> = x.iter().map(horner).collect();
        let (least, mean) = f.bits(y, &expected);
        assert!(least > 22.0, "{least:.1} {mean:.1}");
    }
}

/// Checks that the predicted precision, to which decryption rounds, is at least `floor` bits.
fn predicted(ct: &Ciphertext, floor: f64) {
    let bits = ct.noise().min_bits(1024).unwrap();
    println!("predicted {bits:.1}");
    assert!(bits > floor, "{bits:.1}");
}

#[test]
fn inverses() {
    let mut f = fixture(11, 3);
    let scale = f.params.default_scale();
    let limbs = f.params.max_limbs();
    let inverse = Inverse::new(0.05, 2.0, 1e-5).unwrap();
    let x = over(&mut f, 0.05, 2.0);
    let ct = encrypt(&mut f, &x, limbs, scale);
    f.evaluator.counters().reset();
    let y = inverse.evaluate(&f.evaluator, &ct, scale).unwrap();
    predicted(&y, 8.0);
    check_counters(&f, inverse.report().cost);
    assert!(y.scale().matches(scale) && y.limbs() == limbs - inverse.levels());
    let found = f.decryptor.decrypt_raw(&y).unwrap();
    let worst = found.iter().zip(&x).map(|(v, x)| (v.re * x - 1.0).abs()).fold(0.0, f64::max);
    assert!(worst < 3e-5, "{worst:e}");

    let root = InverseSqrt::new(0.2, 20.0, 3, 1e-4).unwrap();
    let x = over(&mut f, 0.2, 20.0);
    let ct = encrypt(&mut f, &x, limbs, scale);
    f.evaluator.counters().reset();
    let y = root.evaluate(&f.evaluator, &ct, scale).unwrap();
    predicted(&y, 8.0);
    check_counters(&f, root.report().cost);
    assert!(y.scale().matches(scale) && y.limbs() == limbs - root.levels());
    let found = f.decryptor.decrypt_raw(&y).unwrap();
    let worst = found.iter().zip(&x).map(|(v, x)| (v.re * x.sqrt() - 1.0).abs()).fold(0.0, f64::max);
    assert!(worst < 1.5e-4, "{worst:e}");
}

#[test]
fn eval_mod_on_the_primes_made_for_it() {
    for (params, seed) in
        [(CkksParams::insecure_test(11, 2).unwrap(), 4), (CkksParams::insecure_precise(11, 2).unwrap(), 5)]
    {
        let (least, mean) = eval_mod_bits(&params, seed);
        println!("EvalMod: least {least:.2}, mean {mean:.2}");
        assert!(least > 18.5 && mean > 20.0, "{least:.2} {mean:.2}");
    }
}

fn eval_mod_bits(params: &Arc<CkksParams>, seed: u64) -> (f64, f64) {
    let limbs = params.chain().eval_mod.end;
    let specs = params.key_specs(limbs, true, &[], false).unwrap();
    let mut f = Fixture::new(params, &specs, seed);
    let eval_mod = EvalMod::new(EvalModLiteral::default()).unwrap();
    let scale = eval_mod.input_scale(&f.evaluator, limbs).unwrap();
    let messages = over(&mut f, -1.0, 1.0);
    // I is uniform, so that each of the 31 integers occurs.
    let integers = over(&mut f, -15.49, 15.49);
    let x: Vec<f64> =
        messages.iter().zip(&integers).map(|(m, i)| (i.round() + m / 1024.0) * eval_mod.input_scaling()).collect();
    let ct = encrypt(&mut f, &x, limbs, scale);
    f.evaluator.counters().reset();
    let y = eval_mod.evaluate(&f.evaluator, &ct, params.default_scale()).unwrap();
    check_counters(&f, eval_mod.report().cost);
    assert!(y.scale().matches(params.default_scale()));
    assert_eq!(y.limbs(), params.fresh_limbs());
    real_bits(&f, &y, messages.iter().copied())
}
