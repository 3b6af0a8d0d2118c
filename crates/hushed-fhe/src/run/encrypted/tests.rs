//! Every operation of [`Slots`], encrypted and simulated: the same primes, the same scales, the same numbers within the
//! error that the ciphertext carries.

use hushed_ckks::keys::KeyUse;
use hushed_ckks::poly::Arithmetic;
use hushed_ckks::{Ciphertext, CkksParams, Scale};

use hushed_model::StepId;

use super::testing::{Keys, distance, random, seeded};
use crate::simulate::{Simulator, Vector};
use crate::slots::Slots;
use crate::{FheError, KeyDemand};
use hushed_lower::LinearMap;

const LOG_N: u32 = 9;

fn map(rows: usize, columns: usize, bias: bool) -> LinearMap {
    let mut rng = seeded(77);
    LinearMap {
        rows,
        columns,
        weights: random(&mut rng, rows * columns).iter().map(|w| w / columns as f64).collect(),
        bound: 1.0 / columns as f64,
        bias: bias.then(|| random(&mut rng, rows).iter().map(|b| b / 4.0).collect()),
    }
}

/// One of each operation.
fn circuit<S: Slots>(on: &S, x: &[S::Value]) -> Result<Vec<S::Value>, FheError> {
    let (slots, scale) = (on.slots(), on.default_scale());
    let mut rng = seeded(5);
    let v = random(&mut rng, slots);
    let runs: Vec<f64> = (0..slots).map(|i| f64::from((i % 4) as u32) / 4.0).collect();
    let mut out = Vec::new();
    // Linear maps, whole and in blocks, to a different scale.
    let target = Scale::new(scale.value() * 0.75)?;
    let whole = map(5, x.len(), true);
    out.extend(on.linear(&whole, x, target)?);
    let bias = whole.bias.clone();
    let first = LinearMap { bias, ..whole.columns(0..1) };
    let partial = on.linear_add(&first, &x[..1], target, None)?;
    let partial = on.linear_add(&whole.columns(1..x.len()), &x[1..], target, Some(partial))?;
    out.extend(on.linear_finish(partial)?);
    let low = on.limbs(&x[0]) - 1;
    out.extend(on.linear_at(&whole, x, (low, target))?);
    // Plaintext vectors.
    out.push(on.add_vector(x[0].clone(), &v)?);
    out.push(on.add_vector(x[0].clone(), &runs)?);
    out.push(on.mul_vector(&x[1], &v, target)?);
    out.push(on.mul_vector(&x[1], &vec![0.5; slots], scale)?);
    // Rotations.
    let hoisted = on.hoist(&x[2])?;
    for by in [0, 3, slots - 3] {
        out.push(on.rotate_hoisted(&hoisted, by)?);
    }
    out.push(on.rotate(&x[2], 3)?);
    drop(hoisted);
    // Sums of products; operands of two lengths.
    let left: Vec<Vec<_>> = vec![x[..2].to_vec(), x[1..3].to_vec()];
    let short = |x: &S::Value| on.drop_to(x, on.limbs(x) - 2);
    let right: Vec<Vec<_>> = [[&x[0], &x[3], &x[1]], [&x[3], &x[2], &x[0]]]
        .iter()
        .map(|row| row.iter().map(|x| short(x)).collect())
        .collect::<Result<_, FheError>>()?;
    out.extend(on.dot_grid(&left, &right)?.into_iter().flatten());
    // Sums and differences at the shorter length.
    let mut sum = x[0].clone();
    on.add_assign(&mut sum, &on.drop_to(&x[1], on.limbs(&x[1]) - 1)?)?;
    on.sub_assign(&mut sum, &x[3])?;
    let half = on.mul_vector(&sum, &vec![0.25; slots], Scale::new(scale.value() * 0.9)?)?;
    // Refreshes of an odd number of vectors, at a scale other than the default.
    let halves = vec![on.drop_to(&half, on.floor())?, half.clone(), on.drop_to(&half, on.floor() + 1)?];
    out.extend(on.refresh(StepId::outside("halves"), halves, on.floor() + 3)?);
    out.extend(on.refresh(StepId::outside("one"), vec![x[3].clone()], on.top())?);
    Ok(out)
}

#[test]
fn encrypted_steps_are_the_simulated_ones() {
    let params = CkksParams::insecure_test(LOG_N, 14).unwrap();
    let slots = params.slots();
    let top = params.fresh_limbs();
    let mut rng = seeded(3);
    let inputs: Vec<Vec<f64>> = (0..4).map(|_| random(&mut rng, slots)).collect();

    let simulator = Simulator::new(&params, slots).unwrap();
    let vectors: Vec<Vector> = inputs.iter().map(|x| simulator.vector(x.clone(), top).unwrap()).collect();
    let expected = circuit(&simulator, &vectors).unwrap();

    let demand = KeyDemand::of(&params, &simulator.tally().counts());
    let mut keys = Keys::new(&params, |bootstrap| demand.specs(&params, bootstrap).unwrap());
    let columns: Vec<Ciphertext> = inputs.iter().map(|x| keys.encrypt(x, top)).collect();
    let found = circuit(&keys.on, &columns).unwrap();

    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found.limbs(), simulator.limbs(expected), "{i}");
        assert!(found.scale().matches(simulator.scale(expected)), "{i}");
        let error = distance(&keys.open(found), expected.values());
        let predicted = found.noise().deviation();
        assert!(error < 9.0 * predicted && error < 2f64.powi(-13), "{i}: {error:e}, predicted {predicted:e}");
    }
}

#[test]
fn what_cannot_be_refreshed_or_multiplied_is_refused() {
    let params = CkksParams::insecure_test(LOG_N, 14).unwrap();
    let mut keys = Keys::new(&params, Clone::clone);
    let slots = params.slots();
    let low = keys.encrypt(&vec![0.5; slots], params.bootstrap_limbs() - 1);
    let one = keys.encrypt(&vec![0.5; slots], 1);
    let good = keys.encrypt(&vec![0.5; slots], params.bootstrap_limbs());
    let long = keys.encrypt(&vec![0.5; slots], params.fresh_limbs());
    let on = &keys.on;
    let (floor, top) = (on.floor(), on.top());
    assert!(on.refresh(StepId::outside("here"), vec![good.clone(), low], top).is_err());
    assert!(on.refresh(StepId::outside("here"), vec![good.clone()], top + 1).is_err());
    assert!(on.refresh(StepId::outside("here"), vec![good.clone()], floor - 1).is_err());
    assert!(on.refresh(StepId::outside("here"), Vec::new(), top).unwrap().is_empty());
    let scale = on.default_scale();
    assert!(on.mul_vector(&one, &vec![1.0; slots], scale).is_err());
    assert!(on.mul_vector(&good, &vec![1.0; slots - 1], scale).is_err());
    assert!(on.add_vector(good.clone(), &[1.0]).is_err());
    assert!(on.linear(&map(2, 2, false), std::slice::from_ref(&good), scale).is_err());
    assert!(on.linear(&map(2, 1, false), &[one], scale).is_err());
    // A rotation that no bootstrap uses.
    let planned = on.bootstrapper().unwrap().key_specs();
    let serves = |steps: usize| {
        let key = KeyUse::Galois(params.rotation_element(steps as i64));
        let mut specs = planned.iter();
        specs.any(|spec| spec.key == key && spec.limbs >= long.limbs())
    };
    let missing = (1..slots).find(|&steps| !serves(steps)).unwrap();
    assert!(matches!(on.rotate(&long, missing), Err(FheError::Ckks(hushed_ckks::CkksError::MissingRotation { .. }))));
}

/// The same bytes with any number of threads.
#[test]
fn threads_change_nothing() {
    let params = CkksParams::insecure_test(LOG_N, 14).unwrap();
    let slots = params.slots();
    let simulator = Simulator::new(&params, slots).unwrap();
    let x: Vec<Vector> = (0..4).map(|_| simulator.vector(vec![0.1; slots], params.fresh_limbs()).unwrap()).collect();
    circuit(&simulator, &x).unwrap();
    let demand = KeyDemand::of(&params, &simulator.tally().counts());
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let mut keys = Keys::new(&params, |b| demand.specs(&params, b).unwrap());
            let mut rng = seeded(9);
            let columns: Vec<Ciphertext> =
                (0..4).map(|_| keys.encrypt(&random(&mut rng, slots), params.fresh_limbs())).collect();
            circuit(&keys.on, &columns).unwrap()
        })
    };
    let (one, two) = (run(1), run(2));
    for (one, two) in one.iter().zip(&two) {
        assert!(one.b() == two.b() && one.a() == two.a());
    }
}
