use super::*;
use crate::Complex64;
use crate::keys::KeySpecs;
use crate::testing::{Fixture, map2, norm_bits, random};

const ROTATIONS: [i64; 5] = [1, 2, 3, -7, 64];

/// N = 2^11, the chain of the large preset with six levels; keys for the full length and short ones for four primes.
fn fixture(seed: u64) -> Fixture {
    let params = CkksParams::insecure_test(11, 6).unwrap();
    let limbs = params.fresh_limbs();
    let mut specs = params.key_specs(limbs, true, &ROTATIONS, true).unwrap();
    specs.merge(&params.key_specs(4, true, &[1], false).unwrap());
    Fixture::new(&params, &specs, seed)
}

/// Checks that the precision is at least `floor` bits and that the noise estimate and bound hold without being far off.
fn check(f: &Fixture, ct: &Ciphertext, expected: &[Complex64], floor: f64) {
    let (least, mean) = f.bits(ct, expected);
    assert!(least >= floor, "least {least:.1}, mean {mean:.1}");
    let (predicted, low) = (ct.noise().mean_bits(), ct.noise().min_bits(f.params.slots()));
    let (predicted, low) = (predicted.unwrap(), low.unwrap());
    assert!(predicted <= mean + 0.5 && predicted >= mean - 4.0, "mean: predicted {predicted:.2}, found {mean:.2}");
    assert!(low <= least + 1.0, "least: predicted {low:.2}, found {least:.2}");
    // The bound holds, and is tight enough that a flooded opening still leaves some precision.
    let (norm, bound) = norm_bits(f, ct, expected);
    assert!(bound < norm + 8.0, "norm 2^{norm:.1}, bound 2^{bound:.1}");
}

fn in_place(ct: &Ciphertext, call: impl FnOnce(&mut Ciphertext) -> Result<(), CkksError>) -> Ciphertext {
    let mut ct = ct.clone();
    call(&mut ct).unwrap();
    ct
}

#[test]
fn fresh_ciphertexts_of_either_key() {
    let mut f = fixture(1);
    let x = f.random();
    let ct = f.encrypt(&x, f.params.fresh_limbs());
    check(&f, &ct, &x, 25.0);
    let public = Arc::new(hushed_rlwe::PublicKey::generate(&f.key, &mut f.rng));
    let encryptor = crate::PublicEncryptor::new(&f.params, &public).unwrap();
    let plain = f.encoder.encode(&x, 3, f.params.default_scale()).unwrap();
    let ct = encryptor.encrypt(&plain, &mut f.rng).unwrap();
    check(&f, &ct, &x, 19.0);
}

#[test]
fn sums_constants_and_plaintexts() {
    let mut f = fixture(2);
    let (x, y) = (f.random(), f.random());
    let (cx, cy) = (f.encrypt(&x, 6), f.encrypt(&y, 5));
    let e = &f.evaluator;
    check(&f, &e.add(&cx, &cy).unwrap(), &map2(&x, &y, |x, y| x + y), 24.0);
    check(&f, &e.sub(&cy, &cx).unwrap(), &map2(&x, &y, |x, y| y - x), 24.0);
    let minus: Vec<Complex64> = x.iter().map(|x| -x).collect();
    check(&f, &in_place(&cx, |ct| e.neg_assign(ct)), &minus, 24.0);
    let turned: Vec<Complex64> = x.iter().map(|x| x * Complex64::i()).collect();
    check(&f, &in_place(&cx, |ct| e.mul_i_assign(ct)), &turned, 24.0);
    let thrice: Vec<Complex64> = x.iter().map(|x| x * -3.0).collect();
    check(&f, &in_place(&cx, |ct| e.mul_int_assign(ct, -3)), &thrice, 22.0);

    let c = Complex64::new(0.7, -1.3);
    let moved: Vec<Complex64> = x.iter().map(|x| x + c).collect();
    check(&f, &in_place(&cx, |ct| e.add_scalar_assign(ct, c)), &moved, 24.0);
    let scale = f.params.default_scale();
    let product = e.mul_scalar(&cx, c, scale).unwrap();
    assert_eq!(product.scale(), scale.times(scale));
    let scaled: Vec<Complex64> = x.iter().map(|x| x * c).collect();
    check(&f, &product, &scaled, 23.0);
    let rescaled = e.rescale(&product).unwrap();
    assert_eq!(rescaled.limbs(), 5);
    check(&f, &rescaled, &scaled, 23.0);

    let plain = f.encoder.encode(&y, 6, scale).unwrap();
    check(&f, &in_place(&cx, |ct| e.add_plain_assign(ct, &plain)), &map2(&x, &y, |x, y| x + y), 24.0);
    let product = e.rescale(&e.mul_plain(&cx, &plain).unwrap()).unwrap();
    check(&f, &product, &map2(&x, &y, |x, y| x * y), 23.0);
}

#[test]
fn in_place_forms_are_the_allocating_ones() {
    let mut f = fixture(3);
    let (x, y) = (f.random(), f.random());
    let (cx, cy) = (f.encrypt(&x, 6), f.encrypt(&y, 4));
    let e = &f.evaluator;
    let scale = f.params.default_scale();
    let plain = f.encoder.encode(&y, 5, scale).unwrap();
    let c = Complex64::new(-0.4, 2.0);
    let same = |left: &Ciphertext, right: &Ciphertext| {
        assert!(left.b() == right.b() && left.a() == right.a());
        assert_eq!(left.scale(), right.scale());
        assert_eq!(left.noise(), right.noise());
    };
    let sum = in_place(&cx, |ct| e.add_assign(ct, &cy));
    same(&e.add(&cx, &cy).unwrap(), &sum);
    let difference = in_place(&cx, |ct| e.sub_assign(ct, &cy));
    same(&e.sub(&cx, &cy).unwrap(), &difference);

    // acc + x·c and acc + x·plain in one pass.
    let five = e.drop_to(&cx, 5).unwrap();
    let mut acc = e.mul_scalar(&five, c, scale).unwrap();
    e.mul_scalar_add_assign(&mut acc, &cx, c, scale).unwrap();
    e.mul_plain_add_assign(&mut acc, &cx, &plain).unwrap();
    let mut apart = e.mul_scalar(&five, c, scale).unwrap();
    e.add_assign(&mut apart, &e.mul_scalar(&five, c, scale).unwrap()).unwrap();
    e.add_assign(&mut apart, &e.mul_plain(&cx, &plain).unwrap()).unwrap();
    same(&acc, &apart);
}

#[test]
fn products_and_their_sums() {
    let mut f = fixture(4);
    let (x, y) = (f.random(), f.random());
    let limbs = f.params.fresh_limbs();
    let (cx, cy) = (f.encrypt(&x, limbs), f.encrypt(&y, limbs));
    let e = &f.evaluator;
    let xy = map2(&x, &y, |x, y| x * y);
    check(&f, &e.mul(&cx, &cy).unwrap(), &xy, 23.0);
    check(&f, &e.rescale(&e.mul(&cx, &cy).unwrap()).unwrap(), &xy, 23.0);
    let fused = e.mul_rescale(&cx, &cy).unwrap();
    check(&f, &fused, &xy, 23.0);
    assert_eq!(fused.limbs(), limbs - 1);
    let square = map2(&x, &x, |x, y| x * y);
    check(&f, &e.mul(&cx, &cx).unwrap(), &square, 23.0);
    check(&f, &e.mul_rescale(&cx, &cx).unwrap(), &square, 23.0);

    // x·y + x² + x·y, one relinearisation.
    let before = e.counters().snapshot();
    let mut sum = e.tensor(&cx, &cy).unwrap();
    e.tensor_add_assign(&mut sum, &cx, &cx).unwrap();
    e.add_tensor(&mut sum, &e.tensor(&cx, &cy).unwrap()).unwrap();
    let expected = map2(&x, &y, |x, y| 2.0 * x * y + x * x);
    check(&f, &e.relinearize_rescale(&sum).unwrap(), &expected, 21.0);
    let counts = e.counters().snapshot().since(&before);
    assert_eq!((counts.ct_mul, counts.key_switch, counts.rescale), (3, 1, 1));
}

#[test]
fn sums_of_products_and_multiples_are_relinearised_and_rescaled_once() {
    let mut f = fixture(14);
    let (x, y) = (f.random(), f.random());
    let (cx, cy) = (f.encrypt(&x, 6), f.encrypt(&y, 5));
    let e = &f.evaluator;
    let scale = cx.scale().times(cy.scale());
    let c = Complex64::new(0.3, -1.1);
    let mut sum = e.empty_tensor(4, scale).unwrap();
    e.tensor_add_multiple(&mut sum, &cx, c).unwrap();
    let linear = e.finish_tensor(sum.clone()).unwrap();
    let expected: Vec<Complex64> = x.iter().map(|x| c * x).collect();
    check(&f, &linear, &expected, 23.0);
    let short = e.drop_to(&cx, 4).unwrap();
    e.tensor_add_assign(&mut sum, &short, &cy).unwrap();
    let expected = map2(&x, &y, |x, y| c * x + x * y);
    let all = e.finish_tensor(sum).unwrap();
    assert_eq!(all.limbs(), 3);
    check(&f, &all, &expected, 20.0);
    // Reading it as another message changes only the scale.
    let half = all.clone().read_as(0.5).unwrap();
    let expected: Vec<Complex64> = expected.iter().map(|x| 0.5 * x).collect();
    check(&f, &half, &expected, 21.0);
    assert!(half.b() == all.b() && all.read_as(0.0).is_err());
}

#[test]
fn multiples_added_together_are_those_added_one_by_one() {
    let mut f = fixture(15);
    let vectors: Vec<_> = (0..12).map(|i| (f.random(), 4 + i % 3)).collect();
    let cts: Vec<_> = vectors.iter().map(|(v, limbs)| f.encrypt(v, *limbs)).collect();
    let e = &f.evaluator;
    let scale = cts[0].scale().times(cts[0].scale());
    let constant = |i: usize| Complex64::new(0.5 - i as f64 / 7.0, i as f64 / 11.0);
    let terms: Vec<_> = cts.iter().enumerate().map(|(i, ct)| (constant(i), ct)).collect();
    let mut one_by_one = e.empty_tensor(4, scale).unwrap();
    let mut together = one_by_one.clone();
    e.tensor_add_combination(&mut together, &[]).unwrap();
    for &(c, ct) in &terms {
        e.tensor_add_multiple(&mut one_by_one, ct, c).unwrap();
    }
    let before = e.counters().snapshot();
    e.tensor_add_combination(&mut together, &terms).unwrap();
    let counts = e.counters().snapshot().since(&before);
    assert_eq!((counts.scalar_mul, counts.add, counts.products), (12, 12, 2 * 4 * 12));
    assert!(together.parts() == one_by_one.parts() && together.noise() == one_by_one.noise());
    // A ciphertext that is too short, after one that is not.
    let short = e.drop_to(&cts[0], 3).unwrap();
    let refused = e.tensor_add_combination(&mut together, &[(constant(1), &cts[1]), (constant(2), &short)]);
    assert!(matches!(refused, Err(CkksError::LevelTooLow { limbs: 3, needed: 4, .. })));
    assert!(together.parts() == one_by_one.parts() && together.noise() == one_by_one.noise());
}

#[test]
fn a_product_at_every_level() {
    let mut f = fixture(5);
    let (x, y) = (f.random(), f.random());
    for limbs in 2..=f.params.fresh_limbs() {
        let (cx, cy) = (f.encrypt(&x, limbs), f.encrypt(&y, limbs));
        let product = f.evaluator.mul_rescale(&cx, &cy).unwrap();
        check(&f, &product, &map2(&x, &y, |x, y| x * y), 22.0);
    }
}

#[test]
fn powers_down_the_chain_keep_their_scale_and_precision() {
    let mut f = fixture(6);
    let x: Vec<Complex64> = f.random().iter().map(|x| x / x.norm()).collect();
    let mut ct = f.encrypt(&x, f.params.fresh_limbs());
    let mut expected = x;
    for _ in 0..f.params.levels() {
        ct = f.evaluator.mul_rescale(&ct, &ct).unwrap();
        expected = expected.iter().map(|x| x * x).collect();
        check(&f, &ct, &expected, 16.0);
    }
    assert!((ct.scale().log2() - 40.0).abs() < 1e-2, "{}", ct.scale());
}

#[test]
fn rotations_and_conjugation() {
    let mut f = fixture(7);
    let x = f.random();
    let limbs = f.params.fresh_limbs();
    let e = &f.evaluator;
    let turned = |steps: i64| {
        let mut x = x.clone();
        let steps = steps.rem_euclid(x.len() as i64) as usize;
        x.rotate_left(steps);
        x
    };
    let plain = f.encoder.encode(&x, limbs, f.params.default_scale()).unwrap();
    let ct = f.encryptor.encrypt(&plain, &mut f.rng).unwrap();
    for steps in ROTATIONS {
        check(&f, &e.rotate(&ct, steps).unwrap(), &turned(steps), 23.0);
    }
    let conjugated: Vec<Complex64> = x.iter().map(Complex64::conj).collect();
    check(&f, &e.conjugate(&ct).unwrap(), &conjugated, 23.0);
    // At three primes the short key for one step is used: it has fewer special primes.
    let short = e.drop_to(&ct, 3).unwrap();
    check(&f, &e.rotate(&short, 1).unwrap(), &turned(1), 23.0);
    assert!(e.rotate(&ct, 0).unwrap().b() == ct.b());

    let before = e.counters().snapshot();
    let hoisted = e.hoist(&ct).unwrap();
    for steps in ROTATIONS {
        let one = e.rotate_hoisted(&hoisted, steps).unwrap();
        let other = e.rotate(&ct, steps).unwrap();
        assert!(one.b() == other.b() && one.a() == other.a(), "{steps}");
    }
    let counts = e.counters().snapshot().since(&before);
    assert_eq!((counts.rotation, counts.mod_up), (10, 6));
    let many = e.rotate_many(&ct, &[ROTATIONS, [0; 5]].concat()).unwrap();
    for (one, steps) in many.iter().zip(ROTATIONS) {
        let other = e.rotate(&ct, steps).unwrap();
        assert!(one.b() == other.b() && one.a() == other.a(), "{steps}");
    }
    assert!(many.len() == 10 && many[9].b() == ct.b());
}

#[test]
fn laws_that_hold_whatever_the_message() {
    let mut f = fixture(8);
    let (x, y) = (f.random(), f.random());
    let (cx, cy) = (f.encrypt(&x, 5), f.encrypt(&y, 5));
    let e = &f.evaluator;
    let close = |left: &Ciphertext, right: &Ciphertext| {
        let right = f.decryptor.decrypt_raw(right).unwrap();
        let (least, _) = f.bits(left, &right);
        assert!(least > 21.0, "{least}");
    };
    // Rotations add up; conjugation undoes itself; both are linear.
    let once = e.rotate(&cx, 1).unwrap();
    close(&e.rotate(&once, 2).unwrap(), &e.rotate(&cx, 3).unwrap());
    close(&e.conjugate(&e.conjugate(&cx).unwrap()).unwrap(), &cx);
    let sum = e.add(&cx, &cy).unwrap();
    let turned = e.add(&once, &e.rotate(&cy, 1).unwrap()).unwrap();
    close(&e.rotate(&sum, 1).unwrap(), &turned);
    // i·i = −1; conjugation negates i.
    let mul_i = |ct: &Ciphertext| in_place(ct, |ct| e.mul_i_assign(ct));
    let neg = |ct: &Ciphertext| in_place(ct, |ct| e.neg_assign(ct));
    close(&mul_i(&mul_i(&cx)), &neg(&cx));
    let left = e.conjugate(&mul_i(&cx)).unwrap();
    let right = neg(&mul_i(&e.conjugate(&cx).unwrap()));
    close(&left, &right);
    // Products commute exactly, and distribute over sums.
    let (xy, yx) = (e.mul(&cx, &cy).unwrap(), e.mul(&cy, &cx).unwrap());
    assert!(xy.b() == yx.b() && xy.a() == yx.a());
    let left = e.mul_rescale(&sum, &cx).unwrap();
    let right = e.add(&e.mul_rescale(&cx, &cx).unwrap(), &e.mul_rescale(&cx, &cy).unwrap()).unwrap();
    close(&left, &right);
}

#[test]
fn any_number_of_threads_makes_the_same_bytes() {
    let results: Vec<_> = [1, 3]
        .into_iter()
        .map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let mut f = fixture(9);
                let x = f.random();
                let ct = f.encrypt(&x, 6);
                let e = &f.evaluator;
                let ct = e.mul_rescale(&ct, &ct).unwrap();
                let ct = e.rotate(&ct, 3).unwrap();
                e.rescale(&e.mul_scalar(&ct, 0.3.into(), f.params.default_scale()).unwrap()).unwrap()
            })
        })
        .collect();
    assert!(results[0].b().data() == results[1].b().data());
    assert!(results[0].a().data() == results[1].a().data());
}

#[test]
fn many_threads_share_one_evaluator() {
    let mut f = fixture(10);
    let x = f.random();
    let ct = f.encrypt(&x, 5);
    let e = &f.evaluator;
    let hoisted = e.hoist(&ct).unwrap();
    let expected = e.rotate(&ct, 2).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let found = e.rotate_hoisted(&hoisted, 2).unwrap();
                assert!(found.b() == expected.b());
            });
        }
    });
}

#[test]
fn refusals_name_level_scale_and_remedy() {
    let mut f = fixture(11);
    let x = f.random();
    let ct = f.encrypt(&x, 2);
    let e = &f.evaluator;
    let down = e.rescale(&ct).unwrap();
    let error = e.add(&ct, &down).err().unwrap();
    assert!(matches!(error, CkksError::ScaleMismatch { .. }));
    assert!(error.to_string().contains("2^40"), "{error}");
    assert!(matches!(e.rescale(&down), Err(CkksError::LevelTooLow { limbs: 1, needed: 2, .. })));
    assert!(matches!(e.mul_rescale(&down, &down), Err(CkksError::LevelTooLow { limbs: 1, needed: 2, .. })));
    assert!(matches!(e.drop_to(&ct, 3), Err(CkksError::LevelTooLow { limbs: 2, needed: 3, .. })));
    assert!(matches!(e.drop_to(&ct, 0), Err(CkksError::LimbCount { .. })));
    let error = e.rotate(&ct, 5).err().unwrap();
    assert!(matches!(error, CkksError::MissingRotation { steps: 5, limbs: 2, longest: 0, .. }));
    assert!(error.to_string().contains("add it to the key specs"), "{error}");
    let long = f.encrypt(&x, f.params.max_limbs());
    assert!(matches!(f.evaluator.rotate(&long, 1), Err(CkksError::MissingRotation { longest: 10, .. })));
    assert!(matches!(f.evaluator.conjugate(&long), Err(CkksError::MissingKey { longest: 10, .. })));
    let keyless = Evaluator::without_keys(&f.params);
    assert!(matches!(keyless.rotate(&ct, 1), Err(CkksError::NoKeys { operation: "rotate" })));

    let other = CkksParams::insecure_test(11, 6).unwrap();
    let specs = KeySpecs::new();
    let g = Fixture::new(&other, &specs, 1);
    assert!(matches!(g.evaluator.add(&ct, &ct), Err(CkksError::OtherParameters { .. })));
    assert!(matches!(g.decryptor.decrypt(&ct), Err(CkksError::OtherParameters { .. })));
    let keys = f.evaluator.keys("test").unwrap().clone();
    assert!(matches!(Evaluator::new(&other, keys), Err(CkksError::OtherParameters { .. })));
}

#[test]
fn the_whole_declared_range_is_served() {
    // Values up to 2^8, near q0/scale = 2^10, under one prime.
    let mut f = fixture(12);
    let x: Vec<Complex64> = random(&mut f.rng, f.params.slots()).iter().map(|x| x * 180.0).collect();
    let ct = f.encrypt(&x, 1);
    let (least, _) = f.bits(&ct, &x);
    assert!(least > 24.0, "{least}");
}

#[test]
fn a_real_ring_multiplies_and_rotates() {
    let params = CkksParams::n15_shallow().unwrap();
    let specs = params.key_specs(3, true, &[1], false).unwrap();
    let mut f = Fixture::new(&params, &specs, 13);
    let (x, y) = (f.random(), f.random());
    let (cx, cy) = (f.encrypt(&x, 3), f.encrypt(&y, 3));
    let product = f.evaluator.mul_rescale(&cx, &cy).unwrap();
    check(&f, &product, &map2(&x, &y, |x, y| x * y), 18.0);
    let mut turned = x.clone();
    turned.rotate_left(1);
    check(&f, &f.evaluator.rotate(&cx, 1).unwrap(), &turned, 19.0);
}
