//! Attention's products in packed rows on ciphertexts of a small insecure ring, two texts in all slots, compared with
//! their definition in f64 and with the counts of a simulation.

use hushed_ckks::{Ciphertext, CkksParams};

use super::testing::{Keys, distance};
use crate::KeyDemand;
use crate::packing::Layout;
use crate::packing::heads::Heads;
use crate::packing::heads_tests::{circuit, expected, inputs};
use crate::simulate::{Op, Simulator};
use crate::slots::Slots;

#[test]
fn encrypted_products_of_all_heads_are_the_clear_ones() {
    let params = CkksParams::insecure_test(11, 4).unwrap();
    let layout = Layout::new(params.slots(), 16, 32).unwrap();
    assert_eq!(layout.texts(), 2);
    let heads = Heads::new(layout, 8, 2, 4).unwrap();
    let x = inputs(&heads);

    let on = Simulator::new(&params, params.slots()).unwrap().counting();
    let shapes: Vec<_> = x.iter().map(|_| on.vector(Vec::new(), on.top()).unwrap()).collect();
    circuit(&on, &heads, &shapes).unwrap();
    let counts = on.tally().counts();
    let demand = KeyDemand::of(&params, &counts);
    let mut keys = Keys::new(&params, |bootstrap| demand.specs(&params, bootstrap).unwrap());
    let limbs = keys.on.top();
    let encrypted: Vec<Ciphertext> = x.iter().map(|x| keys.encrypt(x, limbs)).collect();
    keys.on.evaluator().counters().reset();
    let found = circuit(&keys.on, &heads, &encrypted).unwrap();
    let done = keys.on.evaluator().counters().snapshot();

    let expected = expected(&heads, 8, &x);
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let error = distance(&keys.open(found), expected);
        assert!(error < 1e-6, "vector {i}: {error}");
    }
    // The run does what was simulated.
    let total = |ops: &[Op]| ops.iter().map(|&op| counts.total(op)).sum::<u64>();
    let rotations = [Op::Rotate, Op::Conjugate, Op::MapBaby, Op::MapGiant];
    assert_eq!(done.rotation, total(&rotations));
    let relinearised = total(&[Op::Relinearise]);
    assert_eq!(done.key_switch, total(&rotations) + relinearised);
    assert_eq!(done.pt_mul, total(&[Op::MapTerm]));
    assert_eq!(done.rescale, total(&[Op::Rescale]));
}

#[test]
fn simulated_errors_are_those_of_ciphertexts() {
    let params = CkksParams::insecure_test(11, 4).unwrap();
    let layout = Layout::new(params.slots(), 16, 32).unwrap();
    let heads = Heads::new(layout, 8, 2, 4).unwrap();
    let x = inputs(&heads);
    let on = Simulator::new(&params, params.slots()).unwrap().with_errors(7);
    let vectors: Vec<_> = x.iter().map(|x| on.vector(x.clone(), on.top()).unwrap()).collect();
    let simulated = circuit(&on, &heads, &vectors).unwrap();
    let demand = KeyDemand::of(&params, &on.tally().counts());
    let mut keys = Keys::new(&params, |bootstrap| demand.specs(&params, bootstrap).unwrap());
    let limbs = keys.on.top();
    let encrypted: Vec<Ciphertext> = x.iter().map(|x| keys.encrypt(x, limbs)).collect();
    let found = circuit(&keys.on, &heads, &encrypted).unwrap();
    let expected = expected(&heads, 8, &x);
    let deviation = |a: &[f64], b: &[f64]| {
        let squares = a.iter().zip(b).map(|(a, b)| (a - b).powi(2));
        (squares.sum::<f64>() / a.len() as f64).sqrt()
    };
    for (i, expected) in expected.iter().enumerate() {
        let real = deviation(&keys.open(&found[i]), expected);
        let predicted = deviation(simulated[i].values(), expected);
        let ratio = real / predicted;
        assert!((0.4..2.5).contains(&ratio), "vector {i}: {real} {predicted}");
    }
}
