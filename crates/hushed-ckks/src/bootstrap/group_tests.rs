//! Sparse slots on small insecure rings: every size, the savings, and every way of calling.

use super::*;
use crate::bootstrap::{BootstrapLiteral, Bootstrapper, encapsulate};
use crate::counters::Counts;
use crate::testing::{Fixture, bits, random};

fn bootstrapper(params: &Arc<CkksParams>, slots: Option<usize>) -> Bootstrapper {
    let literal = BootstrapLiteral { slots, ..BootstrapLiteral::default() };
    Bootstrapper::new(params, literal).unwrap()
}

fn fixture(log_n: u32, slots: usize, seed: u64) -> (Fixture, Bootstrapper) {
    let params = CkksParams::insecure_test(log_n, 4).unwrap();
    let bootstrapper = bootstrapper(&params, Some(slots));
    // Exactly these keys.
    let specs = bootstrapper.key_specs();
    (Fixture::new(&params, &specs, seed), bootstrapper)
}

/// Random values in the unit square, repeated over all slots.
fn message(f: &mut Fixture, slots: usize) -> Vec<Complex64> {
    let once = random(&mut f.rng, slots);
    once.into_iter().cycle().take(f.params.slots()).collect()
}

/// The mean of the copies of each slot.
fn averaged(x: &[Complex64], slots: usize) -> Vec<Complex64> {
    let copies = (x.len() / slots) as f64;
    let sum = |j: usize| x.iter().skip(j).step_by(slots).sum::<Complex64>();
    (0..slots).map(|j| sum(j) / copies).collect()
}

#[test]
fn messages_of_every_size_come_back() {
    for (log_n, slots) in [(11, 4), (11, 8), (11, 32), (11, 256), (11, 512), (12, 64)] {
        let (mut f, bootstrapper) = fixture(log_n, slots, slots as u64);
        assert_eq!(bootstrapper.slots(), slots);
        let x = message(&mut f, slots);
        let ct = f.encrypt(&x, f.params.bootstrap_limbs() + 1);
        let out = bootstrapper.bootstrap(&f.evaluator, &ct).unwrap();
        // One level is spent on the masks.
        assert_eq!(out.limbs(), f.params.fresh_limbs() - 1);
        assert_eq!(out.limbs(), bootstrapper.output_limbs());
        assert!(out.scale().matches(f.params.default_scale()));
        let (least, mean) = f.bits(&out, &x);
        let predicted = out.noise().mean_bits().unwrap();
        println!("N = 2^{log_n}, {slots}: least {least:.2}, mean {mean:.2}, {predicted:.2}");
        assert!(least > 15.0 && mean > 17.0, "{slots}: least {least}, mean {mean}");
        assert!(predicted < mean + 1.0 && predicted > mean - 8.0);
        assert!(out.noise().magnitude() < 1.5);
        // And once more, from the result.
        let again = bootstrapper.bootstrap(&f.evaluator, &out).unwrap();
        let (least, mean) = f.bits(&again, &x);
        assert!(least > 14.0 && mean > 16.0, "least {least}, mean {mean}");
    }
}

/// The raised polynomial has coefficients at every power of X; after the maps only those of Y are left, packed.
#[test]
fn the_trace_leaves_the_coefficients_of_the_small_ring() {
    let slots = 16;
    let (mut f, bootstrapper) = fixture(11, slots, 2);
    let x = message(&mut f, slots);
    let ct = f.encrypt(&x, f.params.bootstrap_limbs());
    let low = bootstrapper.slots_to_coeffs();
    let low = low.apply(&f.evaluator, vec![ct]).unwrap();
    let low: Vec<_> = low.into_iter().map(|ct| encapsulate(&f.evaluator, ct).unwrap()).collect();
    let halves = bootstrapper.coeffs_to_slots().apply(&f.evaluator, &low);
    let halves = halves.unwrap();
    let [packed] = halves[0].as_slice() else { panic!("two ciphertexts") };
    assert_eq!(packed.limbs(), f.params.chain().eval_mod.end);
    let reach = 1.0 / bootstrapper.eval_mod().input_scaling();
    let found = f.decryptor.decrypt_raw(packed).unwrap();
    let mut overflows = 0;
    for (j, found) in found.iter().enumerate() {
        let u = found.re * reach;
        assert!(u.abs() < 16.0 && (found.im * reach).abs() < 1e-6);
        let message = (u - u.round()) * 1024.0;
        let z = x[j % slots];
        let expected = if j / slots % 2 == 0 { z.re } else { z.im };
        assert!((message - expected).abs() < 2f64.powi(-14), "{j}: {message} {expected}");
        overflows += usize::from(u.round() != 0.0);
    }
    assert!(overflows > 0);
}

/// Half the products, and less of everything else.
#[test]
fn sparse_slots_cost_less() {
    let params = CkksParams::insecure_test(12, 4).unwrap();
    let counts = |slots: Option<usize>| -> (Counts, usize) {
        let bootstrapper = bootstrapper(&params, slots);
        let specs = bootstrapper.key_specs();
        let mut f = Fixture::new(&params, &specs, 3);
        let x = message(&mut f, slots.unwrap_or(params.slots()));
        let ct = f.encrypt(&x, params.bootstrap_limbs());
        f.evaluator.counters().reset();
        bootstrapper.bootstrap(&f.evaluator, &ct).unwrap();
        (f.evaluator.counters().snapshot(), specs.len())
    };
    let (full, all_keys) = counts(None);
    println!("all slots, {all_keys} keys: {full}");
    assert_eq!((full.ct_mul, full.bootstrap), (24, 1));
    let mut before = (full, all_keys);
    for slots in [256, 32] {
        let (sparse, keys) = counts(Some(slots));
        println!("{slots} slots, {keys} keys: {sparse}");
        // One EvalMod.
        assert_eq!((sparse.ct_mul, sparse.bootstrap), (12, 1));
        assert!(sparse.rotation < before.0.rotation);
        assert!(sparse.key_switch < before.0.key_switch);
        assert!(4 * sparse.ntt < 3 * full.ntt);
        assert!(keys < before.1, "{keys} keys");
        before = (sparse, keys);
    }
}

/// Each of the keys is used: rotations of the maps, the trace and unpacking; conjugation, products, the sparse
/// secret.
#[test]
fn keys_are_those_that_are_used() {
    use crate::keys::KeyUse;
    let (slots, params) = (32, CkksParams::insecure_test(11, 4).unwrap());
    let bootstrapper = bootstrapper(&params, Some(slots));
    let specs = bootstrapper.key_specs();
    let has = |steps: usize, limbs: usize| {
        let element = params.rotation_element(steps as i64);
        let mut keys = specs.iter().filter(|spec| spec.limbs == limbs);
        keys.any(|spec| spec.key == KeyUse::Galois(element))
    };
    let chain = params.chain();
    // Of the log2(1024/32) doublings of the trace, two turn the first factor's 4 diagonals into 16, and three follow
    // it.
    let traced = chain.cts.end - 1;
    let trace: Vec<usize> = (2..5).map(|j| slots << j).collect();
    let first = bootstrapper.coeffs_to_slots().factors().next().unwrap();
    assert_eq!(first.key_switches(), (16, 0));
    assert!(trace.iter().all(|&steps| has(steps, traced)));
    assert!(has(slots, chain.eval_mod.start));
    let maps: usize = bootstrapper.maps().map(|map| map.rotations().len()).sum();
    let relin = specs.iter().filter(|spec| spec.key == KeyUse::Relin).count();
    assert_eq!(specs.len(), maps + trace.len() + 1 + 1 + relin + 1);
    // A missing trace key is detected before anything is done.
    let mut fewer = crate::keys::KeySpecs::new();
    let missing = KeyUse::Galois(params.rotation_element(512));
    for spec in specs.iter().filter(|spec| spec.key != missing) {
        fewer.insert(spec.key, spec.limbs, spec.special);
    }
    assert_eq!(fewer.len(), specs.len() - 1);
    let mut f = Fixture::new(&params, &fewer, 4);
    let x = message(&mut f, slots);
    let ct = f.encrypt(&x, params.bootstrap_limbs());
    let refused = bootstrapper.bootstrap(&f.evaluator, &ct);
    assert!(matches!(
        refused,
        Err(CkksError::Rlwe(hushed_rlwe::RlweError::MissingKey { key, .. })) if key == missing
    ));
}

#[test]
fn pairs_batches_fewer_levels_and_two_passes() {
    let slots = 64;
    let (mut f, bootstrapper) = fixture(11, slots, 5);
    let least = f.params.bootstrap_limbs();
    let mut real = || -> Vec<Complex64> {
        let x = message(&mut f, slots);
        x.iter().map(|z| z.re.into()).collect()
    };
    let (u, v) = (real(), real());
    let (cu, cv) = (f.encrypt(&u, least), f.encrypt(&v, least + 1));
    for limbs in [least, least + 2, bootstrapper.output_limbs()] {
        f.evaluator.counters().reset();
        let vectors = [&cu, &cv, &cu];
        let all = bootstrapper.bootstrap_real(&f.evaluator, &vectors, limbs);
        let all = all.unwrap();
        // An unpaired vector also has its parts in one ciphertext.
        assert_eq!(f.evaluator.counters().snapshot().ct_mul, 24);
        assert_eq!(all.len(), 3);
        for (found, expected) in all.iter().zip([&u, &v, &u]) {
            assert_eq!(found.limbs(), limbs);
            let (worst, mean) = f.bits(found, expected);
            assert!(worst > 15.0 && mean > 17.0, "{limbs}: {worst} {mean}");
        }
    }
    let x = message(&mut f, slots);
    let ct = f.encrypt(&x, least);
    let all = bootstrapper.bootstrap_many_to(&f.evaluator, &[&cu, &ct], least + 1);
    let all = all.unwrap();
    assert!(f.bits(&all[0], &u).0 > 15.0 && f.bits(&all[1], &x).0 > 15.0);
    let twice = bootstrapper.bootstrap_twice(&f.evaluator, &ct, 12).unwrap();
    let (worst, mean) = f.bits(&twice, &x);
    println!("two passes: least {worst:.2}, mean {mean:.2}");
    assert!(worst > 21.0 && mean > 24.0, "{worst} {mean}");
    // The second pass sees and refreshes the mean over the copies; the rescaling errors of the first differ among them.
    let found = averaged(&f.decryptor.decrypt_raw(&twice).unwrap(), slots);
    let (worst, mean) = bits(&found, &x[..slots]);
    println!("mean over the copies: least {worst:.2}, mean {mean:.2}");
    assert!(worst > 26.0 && mean > 29.0, "{worst} {mean}");
    let refused = bootstrapper.bootstrap_many_to(&f.evaluator, &[&ct], f.params.fresh_limbs());
    assert!(matches!(refused, Err(CkksError::LimbCount { .. })));
}

/// The trace sums all copies of a slot, so their differences vanish.
#[test]
fn what_does_not_repeat_is_averaged() {
    let slots = 128;
    let (mut f, bootstrapper) = fixture(11, slots, 6);
    let x = f.random();
    let expected = averaged(&x, slots);
    let expected: Vec<_> = expected.into_iter().cycle().take(x.len()).collect();
    let ct = f.encrypt(&x, f.params.bootstrap_limbs());
    let out = bootstrapper.bootstrap(&f.evaluator, &ct).unwrap();
    let (least, mean) = f.bits(&out, &expected);
    assert!(least > 15.0 && mean > 17.0, "least {least}, mean {mean}");
}

#[test]
fn other_numbers_of_slots_are_refused() {
    let params = CkksParams::insecure_test(10, 2).unwrap();
    for slots in [0, 1, 2, 12, 512, 1024] {
        let literal = BootstrapLiteral { slots: Some(slots), ..BootstrapLiteral::default() };
        let refused = Bootstrapper::new(&params, literal);
        assert!(matches!(refused, Err(CkksError::NotPeriodic { given, .. }) if given == slots));
    }
    let sparse = bootstrapper(&params, Some(16)).log2_failure();
    assert!(sparse < bootstrapper(&params, None).log2_failure());
}
