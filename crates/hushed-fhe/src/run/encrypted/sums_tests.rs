//! Sums over places, and polynomials of each slot, on ciphertexts of a small insecure ring with random numbers
//! in all slots, compared with f64 and with the counts of a simulation.

use std::sync::Arc;

use hushed_ckks::poly::{Polynomial, SlotPolynomial, evaluate_slots};
use hushed_ckks::{Ciphertext, CkksParams};

use super::testing::{Keys, distance, random, seeded};
use crate::ops::packed::rows::{Kept, PackedRows};
use crate::packing::Layout;
use crate::packing::heads::Heads;
use crate::simulate::{Counts, Op, Simulator};
use crate::tape::causal::tests::interpreted::Computation;
use crate::tape::packed::layer::squares;
use crate::tape::packed::{Packed, Places};
use crate::tape::run::{Inputs, alone};
use crate::{FheError, KeyDemand, Slots};

/// The decrypted results, after a check that the run does what was counted.
fn opened(params: &Arc<CkksParams>, computation: &impl Computation, x: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let on = Simulator::new(params, params.slots()).unwrap().counting();
    let shapes = x.iter().map(|_| on.vector(Vec::new(), on.top()));
    let shapes: Vec<_> = shapes.collect::<Result<_, _>>().unwrap();
    computation.run(&on, shapes).unwrap();
    let counts: Counts = on.tally().counts();
    let demand = KeyDemand::of(params, &counts);
    let mut keys = Keys::new(params, |bootstrap| demand.specs(params, bootstrap).unwrap());
    let limbs = keys.on.top();
    let x: Vec<Ciphertext> = x.iter().map(|x| keys.encrypt(x, limbs)).collect();
    keys.on.evaluator().counters().reset();
    let found = computation.run(&keys.on, x).unwrap();
    let done = keys.on.evaluator().counters().snapshot();
    let turned = counts.total(Op::Rotate) + counts.total(Op::Conjugate);
    assert_eq!(done.rotation, turned);
    assert_eq!(done.key_switch, turned + counts.total(Op::Relinearise));
    assert_eq!(done.rescale, counts.total(Op::Rescale));
    found.iter().map(|ct| keys.open(ct)).collect()
}

fn near(found: &[Vec<f64>], expected: &[Vec<f64>]) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = distance(found, expected);
        assert!(error < 1e-5, "result {i}: {error}");
    }
}

/// Over blocks of eight places, and the squares of the pair of two vectors.
struct Sums(Layout);

impl Computation for Sums {
    fn run<S: Slots>(&self, on: &S, x: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
        let heads = Heads::new(self.0, 8, 2, 4)?;
        let places = Places { heads, columns: self.0.spread(2 * self.0.columns(), 8)? };
        let rows = Arc::new(PackedRows::new(self.0, Vec::new())?);
        alone(on, Inputs::<S>::from([("columns", x)]), |t| {
            let p = Packed::new(t, &rows, places, false);
            let columns = t.input("columns", 2);
            let one = t.cut(columns, 0..1);
            let first = |place: usize| f64::from(u8::from(place.is_multiple_of(8)));
            let sums = p.over_places(t, one, 8, |t, sum| p.times(t, sum, Kept::All, vec![first]));
            let pair = t.pair(columns, false);
            let squares = squares(t, &p, pair, Kept::All);
            t.join(&[sums, squares])
        })
    }
}

#[test]
fn sums_of_full_random_slots() {
    let params = CkksParams::insecure_test(11, 4).unwrap();
    let layout = Layout::new(params.slots(), 16, 32).unwrap();
    let mut rng = seeded(3);
    // Sums of 32 places stay within 1.
    let mut vector = || -> Vec<f64> {
        let x = random(&mut rng, params.slots());
        x.iter().map(|v| v / 32.0).collect()
    };
    let x = [vector(), vector()];
    let found = opened(&params, &Sums(layout), &x);
    let all = |sum: &dyn Fn(usize) -> f64| (0..layout.slots()).map(sum).collect::<Vec<f64>>();
    let block = |slot: usize, length: usize| slot / length * length..(slot / length + 1) * length;
    let places = all(&|slot| block(slot, 8).map(|s| x[0][s]).sum());
    let square = |s: usize| x[0][s] * x[0][s] + x[1][s] * x[1][s];
    let squares = all(&|slot| block(slot, layout.columns()).map(square).sum());
    near(&found, &[places, squares]);
}

/// Two polynomials of different degrees, and none.
struct EachSlot(SlotPolynomial);

impl Computation for EachSlot {
    fn run<S: Slots>(&self, on: &S, x: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
        Ok(vec![evaluate_slots(on, &x[0], &self.0, on.default_scale())?])
    }
}

#[test]
fn each_slot_has_its_polynomial() {
    let params = CkksParams::insecure_test(11, 5).unwrap();
    let polynomial = |degree: usize, sign: f64| {
        let coefficients = (0..=degree).map(|k| sign / (k + 2) as f64);
        Polynomial::chebyshev(coefficients.collect(), -1.0, 1.0).unwrap()
    };
    let (long, short) = (polynomial(11, 0.5), polynomial(6, -0.75));
    let period = [Some(&long), None, Some(&short), Some(&long)];
    let each = SlotPolynomial::new(11, &period).unwrap();
    let x = random(&mut seeded(4), params.slots());
    let expected = x.iter().enumerate();
    let expected = expected.map(|(slot, &t)| period[slot % 4].map_or(0.0, |p| p.eval(t)));
    let expected: Vec<f64> = expected.collect();
    near(&opened(&params, &EachSlot(each), &[x]), &[expected]);
    // Of a higher degree, or another interval.
    assert!(SlotPolynomial::new(6, &period).is_err());
    let other = Polynomial::chebyshev(vec![0.0, 1.0], 0.0, 1.0).unwrap();
    assert!(SlotPolynomial::new(11, &[Some(&other)]).is_err());
}
