//! Bootstrapping on small insecure rings with the chain of the large preset.

use super::*;
use crate::error::CkksParamsError;
use crate::params::{CkksLiteral, PrimeGroup};
use crate::testing::Fixture;

fn fixture(seed: u64) -> (Fixture, Bootstrapper) {
    let params = CkksParams::insecure_test(11, 4).unwrap();
    let bootstrapper = Bootstrapper::new(&params, BootstrapLiteral::default()).unwrap();
    let specs = bootstrapper.key_specs();
    (Fixture::new(&params, &specs, seed), bootstrapper)
}

#[test]
fn steps_one_to_four_leave_the_message_modulo_one() {
    let (mut f, bootstrapper) = fixture(1);
    let x = f.random();
    let ct = f.encrypt(&x, f.params.bootstrap_limbs());
    let low = bootstrapper.slots_to_coeffs.apply(&f.evaluator, vec![ct]).unwrap();
    assert_eq!(low[0].limbs(), 1);
    // The coefficients are the slots in bit-reversed order.
    let coefficients = f.decryptor.decrypt_coefficients_raw(&low[0]).unwrap();
    let (slots, bits) = (f.params.slots(), f.params.slots().trailing_zeros());
    for (k, z) in x.iter().enumerate() {
        let at = hushed_math::ntt::reverse_bits(k, bits);
        assert!((coefficients[at] - z.re).abs() < 2f64.powi(-20));
        assert!((coefficients[at + slots] - z.im).abs() < 2f64.powi(-20));
    }
    let low: Vec<_> = low.into_iter().map(|ct| encapsulate(&f.evaluator, ct).unwrap()).collect();
    let parts = bootstrapper.coeffs_to_slots.apply(&f.evaluator, &low).unwrap();
    let reach = 1.0 / bootstrapper.eval_mod.input_scaling();
    for (index, part) in parts[0].as_slice().iter().enumerate() {
        assert_eq!(part.limbs(), f.params.chain().eval_mod.end);
        let slots = f.decryptor.decrypt_raw(part).unwrap();
        for (found, z) in slots.iter().zip(&x) {
            let u = found.re * reach;
            assert!(u.abs() < 16.0 && (found.im * reach).abs() < 1e-6);
            let message = (u - u.round()) * 1024.0;
            let expected = [z.re, z.im][index];
            assert!((message - expected).abs() < 2f64.powi(-14), "{message} {expected}");
        }
    }
}

#[test]
fn messages_come_back_with_fourteen_usable_bits_at_all_slots() {
    let (mut f, bootstrapper) = fixture(2);
    let x = f.random();
    let ct = f.encrypt(&x, f.params.bootstrap_limbs() + 1);
    let out = bootstrapper.bootstrap(&f.evaluator, &ct).unwrap();
    assert_eq!(out.limbs(), f.params.fresh_limbs());
    assert_eq!(out.limbs(), bootstrapper.output_limbs());
    assert!(out.scale().matches(f.params.default_scale()));
    let (least, mean) = f.bits(&out, &x);
    println!("least {least:.2}, mean {mean:.2}");
    assert!(least > 15.0 && mean > 17.0, "least {least}, mean {mean}");
    // And once more, from the result.
    let again = f.evaluator.drop_to(&out, f.params.bootstrap_limbs()).unwrap();
    let twice = bootstrapper.bootstrap(&f.evaluator, &again).unwrap();
    let (least, mean) = f.bits(&twice, &x);
    assert!(least > 14.0 && mean > 16.0, "least {least}, mean {mean}");
}

#[test]
fn a_batch_is_its_members_and_threads_do_not_matter() {
    let (mut f, bootstrapper) = fixture(3);
    let cts: Vec<_> = (0..2)
        .map(|_| {
            let x = f.random();
            f.encrypt(&x, f.params.bootstrap_limbs())
        })
        .collect();
    let run = |threads: usize, cts: &[&Ciphertext]| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| bootstrapper.bootstrap_many(&f.evaluator, cts).unwrap())
    };
    let together = run(3, &cts.iter().collect::<Vec<_>>());
    let alone = run(1, &[&cts[1]]);
    assert!(together[1].b() == alone[0].b() && together[1].a() == alone[0].a());
}

/// Same keys, same precision, less work, and the result is a ciphertext of the whole chain.
#[test]
fn fewer_levels_cost_less_and_are_as_precise() {
    let (mut f, bootstrapper) = fixture(10);
    let x = f.random();
    let least = f.params.bootstrap_limbs();
    let ct = f.encrypt(&x, least);
    let mut before = u64::MAX;
    for levels in [4, 2, 0] {
        f.evaluator.counters().reset();
        let limbs = least + levels;
        let out = bootstrapper.bootstrap_many_to(&f.evaluator, &[&ct], limbs);
        let out = out.unwrap().pop().unwrap();
        assert_eq!(out.limbs(), limbs);
        assert!(out.scale().matches(f.params.default_scale()));
        let (worst, mean) = f.bits(&out, &x);
        assert!(worst > 15.0 && mean > 17.0, "{levels} levels: least {worst}, mean {mean}");
        let counts = f.evaluator.counters().snapshot();
        assert_eq!((counts.ct_mul, counts.bootstrap), (24, 1));
        assert!(counts.ntt < before, "{levels} levels: {counts}");
        before = counts.ntt;
        // It can be used further like any other.
        let again = f.evaluator.drop_to(&out, least).unwrap();
        let again = bootstrapper.bootstrap(&f.evaluator, &again).unwrap();
        assert!(f.bits(&again, &x).0 > 14.0);
    }
    let real: Vec<_> = x.iter().map(|z| z.re.into()).collect();
    let ct = f.encrypt(&real, least);
    let pair = bootstrapper.bootstrap_real(&f.evaluator, &[&ct, &ct], least + 1);
    for half in &pair.unwrap() {
        assert_eq!(half.limbs(), least + 1);
        assert!(f.bits(half, &real).0 > 15.0);
    }
    let refused = |limbs| bootstrapper.bootstrap_many_to(&f.evaluator, &[&ct], limbs).err();
    assert!(matches!(refused(least + 5), Some(CkksError::LimbCount { .. })));
    assert!(matches!(refused(least - 1), Some(CkksError::LevelTooLow { .. })));
}

#[test]
fn two_real_vectors_share_a_bootstrap_and_one_alone_takes_one_reduction() {
    let (mut f, bootstrapper) = fixture(4);
    let mut real = || -> Vec<_> { f.random().iter().map(|z| z.re.into()).collect() };
    let x: Vec<Vec<_>> = (0..3).map(|_| real()).collect();
    let least = f.params.bootstrap_limbs();
    let cts: Vec<_> = (0..3).map(|i| f.encrypt(&x[i], least + i)).collect();
    let cts: Vec<_> = cts.iter().collect();
    let (top, counters) = (bootstrapper.output_limbs(), f.evaluator.counters());
    counters.reset();
    let all = bootstrapper.bootstrap_real(&f.evaluator, &cts, top).unwrap();
    let counts = counters.snapshot();
    assert_eq!((counts.bootstrap, counts.ct_mul), (2, 36));
    assert_eq!(all.len(), 3);
    for (found, expected) in all.iter().zip(&x) {
        assert_eq!(found.limbs(), f.params.fresh_limbs());
        let (least, mean) = f.bits(found, expected);
        assert!(least > 15.0 && mean > 17.0, "least {least}, mean {mean}");
    }
    // Paired with zeros, and with fewer primes.
    let zero = Ciphertext::zero(&f.params, least, cts[2].scale()).unwrap();
    for limbs in [top, least + 1] {
        let alone = bootstrapper.bootstrap_real(&f.evaluator, &cts[2..], limbs);
        let beside = bootstrapper.bootstrap_real(&f.evaluator, &[cts[2], &zero], limbs);
        let (alone, beside) = (alone.unwrap(), beside.unwrap());
        assert_eq!((alone.len(), alone[0].limbs()), (1, limbs));
        assert_eq!(alone[0].b().limb(0), beside[0].b().limb(0));
        assert_eq!(alone[0].a().limb(limbs - 1), beside[0].a().limb(limbs - 1));
    }
    let none = bootstrapper.bootstrap_real(&f.evaluator, &[], top).unwrap();
    assert!(none.is_empty());
}

/// A modulus of 1.4 times the bound may be due to one part, where the error of the sine exceeds that at the bound.
#[test]
fn a_part_beyond_the_bound_has_the_error_that_it_has() {
    let (mut f, bootstrapper) = fixture(8);
    let x: Vec<_> = f.random().iter().map(|z| (1.4 * z.re).into()).collect();
    let ct = f.encrypt(&x, f.params.bootstrap_limbs());
    let (eval_mod, magnitude) = (&bootstrapper.eval_mod, ct.noise().magnitude());
    assert!((1.38..1.42).contains(&magnitude));
    let at_bound = eval_mod.report().sine_error;
    assert!((eval_mod.sine_error(1.0) / at_bound - 1.0).abs() < 1e-9);
    let stated = bootstrapper.noise(&ct).deviation();
    assert!(stated >= eval_mod.sine_error(magnitude));
    assert!(stated > 4.0 * at_bound, "{stated:e} {at_bound:e}");
    let out = bootstrapper.bootstrap(&f.evaluator, &ct).unwrap();
    let found = f.decryptor.decrypt_raw(&out).unwrap();
    let errors = found.iter().zip(&x).map(|(found, x)| (found - x).re.abs());
    let largest = errors.fold(0.0, f64::max);
    assert!(largest > 2.0 * at_bound && largest < 3.0 * stated, "{largest:e} {stated:e}");
    // In a pair each part is bounded separately.
    let top = bootstrapper.output_limbs();
    let refused = bootstrapper.bootstrap_real(&f.evaluator, &[&ct, &ct], top);
    assert!(matches!(refused, Err(CkksError::BootstrapRange { .. })));
}

#[test]
fn the_second_pass_refreshes_the_error_of_the_first() {
    let (mut f, bootstrapper) = fixture(5);
    let x = f.random();
    let ct = f.encrypt(&x, f.params.bootstrap_limbs());
    let out = bootstrapper.bootstrap_twice(&f.evaluator, &ct, 12).unwrap();
    assert_eq!(out.limbs(), f.params.fresh_limbs());
    let (least, mean) = f.bits(&out, &x);
    println!("two passes: least {least:.2}, mean {mean:.2}");
    assert!(least > 24.0 && mean > 26.0, "least {least}, mean {mean}");
    let refused = bootstrapper.bootstrap_twice(&f.evaluator, &ct, 24);
    assert!(matches!(refused, Err(CkksError::BootstrapRange { .. })));
}

#[test]
fn another_scale_is_another_range() {
    let (mut f, bootstrapper) = fixture(6);
    // Messages up to 8 at an eighth of the scale.
    let x: Vec<_> = f.random().iter().map(|z| z * 8.0).collect();
    let scale = Scale::from_bits(37);
    let limbs = f.params.bootstrap_limbs();
    let plain = f.encoder.encode(&x, limbs, scale).unwrap();
    let ct = f.encryptor.encrypt(&plain, &mut f.rng).unwrap();
    let out = bootstrapper.bootstrap(&f.evaluator, &ct).unwrap();
    assert!(out.scale().matches(f.params.default_scale()));
    let (least, mean) = f.bits(&out, &x);
    assert!(least > 12.0 && mean > 14.0, "least {least}, mean {mean}");
    // At the default scale they are out of range, which is detected beforehand.
    let ct = f.encrypt(&x, limbs);
    let refused = bootstrapper.bootstrap(&f.evaluator, &ct);
    assert!(matches!(refused, Err(CkksError::BootstrapRange { .. })));
    let ct = f.encrypt(&x, limbs - 1);
    assert!(matches!(bootstrapper.bootstrap(&f.evaluator, &ct), Err(CkksError::LevelTooLow { needed: 4, .. })));
    let other = f.params.key_specs(4, true, &[1], true).unwrap();
    let few = Fixture::new(&f.params, &other, 9);
    assert!(matches!(
        bootstrapper.bootstrap(&few.evaluator, &ct),
        Err(CkksError::Rlwe(hushed_rlwe::RlweError::MissingKey { .. }))
    ));
    let keyless = Evaluator::without_keys(&f.params);
    let x = f.random();
    let ct = f.encrypt(&x, limbs);
    assert!(matches!(bootstrapper.bootstrap(&keyless, &ct), Err(CkksError::NoKeys { .. })));
}

/// Coefficients beyond a small K are entirely wrong, as often as the Irwin–Hall tail predicts.
#[test]
fn overflows_of_a_small_range_are_as_frequent_as_computed() {
    let params = CkksParams::insecure_test(11, 4).unwrap();
    let range = 5;
    let literal = BootstrapLiteral {
        eval_mod: EvalModLiteral { range, ..EvalModLiteral::default() },
        ..BootstrapLiteral::default()
    };
    // Refused outside of this test.
    assert!(matches!(
        Bootstrapper::new(&params, literal),
        Err(CkksError::Params(CkksParamsError::FailureBound { range: 5, .. }))
    ));
    let bootstrapper = Bootstrapper::insecure_for_tests(&params, literal).unwrap();
    let log2 = bootstrapper.log2_failure();
    assert_eq!(log2, crate::params::log2_failure(32, range, params.slots()));
    let mut f = Fixture::new(&params, &bootstrapper.key_specs(), 7);
    let (mut wrong, runs) = (0, 6);
    for _ in 0..runs {
        let x = f.random();
        let ct = f.encrypt(&x, params.bootstrap_limbs());
        let out = bootstrapper.bootstrap(&f.evaluator, &ct).unwrap();
        let found = f.decryptor.decrypt_raw(&out).unwrap();
        let errors = found.iter().zip(&x).map(|(found, x)| found - x);
        let parts = errors.flat_map(|e| [e.re, e.im]);
        wrong += parts.filter(|e| e.abs() > 0.01).count();
    }
    let coefficients = runs * 2 * params.slots();
    let single = 2f64.powf(crate::params::log2_failure(32, range, 1)) / 2.0;
    let expected = single * coefficients as f64;
    let found = wrong as f64;
    let spread = 6.0 * expected.sqrt();
    assert!((found - expected).abs() < spread, "{found} wrong, {expected} expected");
    assert!(wrong > 0, "{expected} expected");
}

/// A message four times as large relative to q_0 has sixteen times the sine error; the arcsine corrects it for two more
/// levels.
#[test]
fn an_arcsine_makes_a_small_ratio_precise() {
    let (ratio, scale) = (256.0, Scale::from_bits(42));
    let run = |arcsine: usize, levels: usize| {
        let params = CkksParams::insecure_test(11, 4).unwrap();
        let params = CkksParams::insecure_for_tests(CkksLiteral {
            eval_mod: PrimeGroup::new(levels, 50),
            ..params.literal().clone()
        })
        .unwrap();
        let literal = BootstrapLiteral {
            eval_mod: EvalModLiteral { ratio, arcsine, ..EvalModLiteral::default() },
            output_scale: Some(scale),
            ..BootstrapLiteral::default()
        };
        let bootstrapper = Bootstrapper::new(&params, literal).unwrap();
        let mut f = Fixture::new(&params, &bootstrapper.key_specs(), 11);
        let x = f.random();
        let limbs = params.bootstrap_limbs();
        let plain = f.encoder.encode(&x, limbs, scale).unwrap();
        let ct = f.encryptor.encrypt(&plain, &mut f.rng).unwrap();
        let out = bootstrapper.bootstrap(&f.evaluator, &ct).unwrap();
        assert_eq!(out.limbs(), params.fresh_limbs());
        assert!(out.scale().matches(scale));
        let (least, mean) = f.bits(&out, &x);
        let fitted = -bootstrapper.eval_mod().report().sine_error.log2();
        println!("arcsine {arcsine}: least {least:.2}, mean {mean:.2}, of the fit {fitted:.2}");
        (least, mean, fitted)
    };
    let (sine, arcsine) = (run(1, 8), run(3, 10));
    // Nonlinearity is all of the sine's error; with the arcsine the rescaling error is left.
    assert!((sine.0 - sine.2).abs() < 0.2, "{sine:?}");
    assert!(arcsine.2 > 28.0 && arcsine.0 > 22.0, "{arcsine:?}");
    assert!(arcsine.1 > sine.1 + 8.0, "{sine:?} {arcsine:?}");
}

/// The cost of a second EvalMod on the chain of the large preset; counts do not depend on the ring degree.
#[test]
fn an_eval_mod_is_a_third_of_a_bootstrap() {
    let params = CkksParams::insecure_test(11, 14).unwrap();
    let params =
        CkksParams::insecure_for_tests(CkksLiteral { special: PrimeGroup::new(12, 50), ..params.literal().clone() })
            .unwrap();
    let eval_mod = EvalMod::new(EvalModLiteral::default()).unwrap();
    let limbs = params.chain().eval_mod.end;
    let mut specs = KeySpecs::new();
    specify_relin(&params, limbs, params.chain().eval_mod.start + 1, &mut specs).unwrap();
    let mut f = Fixture::new(&params, &specs, 12);
    let x = vec![0.125.into(); params.slots()];
    let scale = eval_mod.input_scale(&f.evaluator, limbs).unwrap();
    let plain = f.encoder.encode(&x, limbs, scale).unwrap();
    let ct = f.encryptor.encrypt(&plain, &mut f.rng).unwrap();
    f.evaluator.counters().reset();
    eval_mod.evaluate(&f.evaluator, &ct, params.default_scale()).unwrap();
    let counts = f.evaluator.counters().snapshot();
    assert_eq!((counts.ct_mul, counts.key_switch), (12, 11));
    // Out of 4,834 at N = 2^16.
    assert_eq!(counts.ntt, 1583);
}
