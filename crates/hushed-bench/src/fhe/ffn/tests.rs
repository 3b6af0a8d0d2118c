//! Layouts in the clear at full size; all forms in both layouts on a small ring, with their counts.

use hushed_ckks::lintrans::Diagonals;
use hushed_ckks::poly::Schedule;
use hushed_ckks::{CkksParams, Complex64};

use super::*;
use crate::ckks::Places;

const WIDTH: usize = 12;
const HIDDEN: usize = 48;

fn matrix(places: &Places, layer: &LinearMap) -> Diagonals {
    let weight = |row: usize, column: usize| layer.weights[row * layer.columns + column];
    places.matrix(weight).unwrap()
}

/// The sum of the shares by definition: diagonals times rotated slots, summed over the classes.
fn applied(places: &Places, layer: &LinearMap, x: &[Complex64]) -> Vec<Complex64> {
    let mut sum = matrix(places, layer).apply(x).unwrap();
    for by in places.folds() {
        let by = by as usize;
        let turned = (0..x.len()).map(|s| sum[(s + by) % x.len()]);
        sum = turned.zip(&sum).map(|(a, b)| a + b).collect();
    }
    sum
}

#[test]
fn one_vector_over_all_slots_is_the_matrix() {
    // The block of GPT-2 with its merged form, and the small one of these tests.
    for (slots, width, hidden, diagonals) in [(1 << 15, 768, 3072, 128), (256, 12, 48, 4)] {
        let mut random = Normal::new(5);
        let block = Block::random(width, hidden, &mut random);
        let [up, down] = &block.maps(Form::Linear, 1.0)[..] else {
            panic!("two maps");
        };
        let x: Vec<f64> = (0..width).map(|_| random.next()).collect();
        let first = Places::packed(slots, [hidden, width]).unwrap();
        let at = |slot: usize| first.column(slot).map_or(0.0, |c| x[c]);
        let input: Vec<Complex64> = (0..slots).map(|slot| at(slot).into()).collect();
        assert_eq!(matrix(&first, up).count(), diagonals);
        let h = applied(&first, up, &input);
        let period = hidden.next_power_of_two();
        for (slot, h) in h.iter().enumerate() {
            let row = (slot % period < hidden).then_some(slot % period);
            let terms = |r: usize| (0..width).map(|c| up.weights[r * width + c] * x[c]).sum();
            let expected: f64 = row.map_or(0.0, terms);
            assert!((h - expected).norm() < 1e-12, "{slot}");
        }
        let second = Places::repeated(slots, [width, hidden]).unwrap();
        assert_eq!(matrix(&second, down).count(), diagonals);
        let y = applied(&second, down, &h);
        for (row, y) in y.iter().enumerate().take(width) {
            let terms = (0..hidden).map(|c| down.weights[row * hidden + c] * h[c]);
            assert!((y - terms.sum::<Complex64>()).norm() < 1e-12, "{row}");
        }
        let [merged] = &block.maps(Form::Merged, 1.0)[..] else {
            panic!("one map");
        };
        let one = Places::packed(slots, [width, width]).unwrap();
        let at = |slot: usize| one.column(slot).map_or(0.0, |c| x[c]);
        let input: Vec<Complex64> = (0..slots).map(|slot| at(slot).into()).collect();
        let z = applied(&one, merged, &input);
        // The answer with biases, minus the answer to zero.
        let [zero, expected] = [vec![0.0; width], x].map(|x| block.answer(&x, |h| h).0);
        for (slot, z) in z.iter().enumerate() {
            let row = slot % width.next_power_of_two();
            let expected = (row < width).then(|| expected[row] - zero[row]);
            assert!((z - expected.unwrap_or(0.0)).norm() < 1e-11, "{slot}");
        }
    }
    // A class with as many slots as rows leaves no room for shifts; then too many rows for the slots.
    assert!(Places::repeated(256, [16, 48]).is_err());
    assert!(Places::packed(256, [300, 12]).is_err() && Places::packed(256, [1, 4]).is_err());
}

#[test]
fn every_form_in_every_layout_is_the_block_and_counts_what_it_says() {
    // Nine levels for degree 127.
    let params = CkksParams::insecure_shallow(9, 9).unwrap();
    let mut random = Normal::new(11);
    let block = Block::random(WIDTH, HIDDEN, &mut random);
    // Form, its levels; rotations and relinearisations over all slots, and in packed rows with three hidden vectors.
    for (form, levels, split, packed) in [
        (Form::Gelu { degree: 127 }, 9, (12, 20), (34, 120)),
        (Form::Gelu { degree: 28 }, 7, (12, 8), (34, 48)),
        (Form::Linear, 2, (12, 0), (31, 0)),
        (Form::Merged, 1, (4, 0), (8, 0)),
    ] {
        let gelu = form.degree().map(|degree| Gelu::new(degree).unwrap());
        let one = Split { slots: params.slots(), vectors: if gelu.is_some() { 1 } else { 2 } };
        let many = Packed::new(&params, 8).unwrap();
        assert_eq!(many.vectors(), 32);
        let shapes: [(&dyn Shape, _, u64); 2] = [(&one, split, 1), (&many, packed, 6)];
        for (shape, expected, columns) in shapes {
            let of = (form, gelu.as_ref());
            let run = Run::new(&params, &block, of, shape, &mut random).unwrap();
            let name = (form, shape.name());
            assert_eq!((run.chain.limbs, run.limbs_left), (levels + 1, 1), "{name:?}");
            assert!(run.bits.0 > 24.0, "{name:?}: {}", run.bits.0);
            let cost = gelu.as_ref().map(|gelu| Schedule::new(&[&gelu.polynomial]).cost());
            let relinearisations = cost.map_or(0, |cost| columns * cost.relinearisations as u64);
            assert_eq!(run.relinearisations(), relinearisations, "{name:?}");
            let counts = (run.counts.rotation, relinearisations);
            assert_eq!(counts, expected, "{name:?}");
            // The error of the polynomial shows in the answer, and is at most what the sum of the weights allows.
            let lacking = gelu.as_ref().map_or(0.0, |gelu| gelu.error);
            assert!(run.error <= 20.0 * lacking + 1e-7, "{name:?}: {}", run.error);
        }
    }
}

#[test]
fn a_higher_degree_is_nearer_to_gelu() {
    let [low, high] = [28, 127].map(|degree| Gelu::new(degree).unwrap());
    assert!(high.error < 1e-9 && low.error > 1e-5 && low.error < 0.1);
    assert_eq!((low.polynomial.degree(), high.polynomial.degree()), (28, 127));
}
