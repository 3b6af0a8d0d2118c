use std::sync::Arc;

use hushed_ckks::poly::{Arithmetic, Inverse, Polynomial, Weight, evaluate};
use hushed_ckks::{CkksParams, Scale};

use hushed_model::StepId;

use super::{Op, Simulator, Vector};
use crate::{FheError, LinearMap, Slots};

const SLOTS: usize = 64;

fn params() -> Arc<CkksParams> {
    CkksParams::insecure_test(10, 14).unwrap()
}

fn exact() -> Simulator {
    Simulator::new(&params(), SLOTS).unwrap()
}

fn ramp(on: &Simulator, low: f64, high: f64) -> Vector {
    let at = |i: usize| low + (high - low) * i as f64 / (SLOTS - 1) as f64;
    on.vector((0..SLOTS).map(at).collect(), on.top()).unwrap()
}

fn map(rows: usize, columns: usize) -> LinearMap {
    LinearMap {
        rows,
        columns,
        weights: (0..rows * columns).map(|i| i as f64 / 10.0 - 0.3).collect(),
        bound: 1.0,
        bias: Some((0..rows).map(|i| i as f64).collect()),
    }
}

#[test]
fn polynomials_and_inverses_run_and_count() {
    let on = exact();
    let x = ramp(&on, 0.1, 1.0);
    let p = Polynomial::monomial(vec![0.0, 1.0, 0.5, 0.25]).unwrap();
    let target = on.default_scale();
    let y = evaluate(&on, &x, &p, target).unwrap();
    let inverse = Inverse::new(0.1, 1.0, 1e-6).unwrap();
    let z = inverse.evaluate(&on, &x, target).unwrap();
    for ((x, y), z) in x.values().iter().zip(y.values()).zip(z.values()) {
        assert!((p.eval(*x) - y).abs() < 1e-9 && (1.0 / x - z).abs() < 1e-5 / x);
    }
    assert_eq!(on.limbs(&z), on.top() - inverse.levels());
    assert_eq!(on.tally().counts().total(Op::Relinearise), 2 + inverse.report().cost.relinearisations as u64);
}

#[test]
fn linear_maps_in_blocks_are_linear_maps() {
    let on = exact();
    let x: Vec<Vector> = (0..5).map(|i| ramp(&on, -1.0, f64::from(i))).collect();
    let (map, target) = (map(7, 5), on.default_scale());
    let whole = on.linear(&map, &x, target).unwrap();
    let mut first = map.columns(0..2);
    first.bias = map.bias.clone();
    let part = on.linear_add(&first, &x[..2], target, None).unwrap();
    let part = on.linear_add(&map.columns(2..5), &x[2..], target, Some(part));
    let blocks = on.linear_finish(part.unwrap()).unwrap();
    for (row, (whole, blocks)) in whole.iter().zip(&blocks).enumerate() {
        assert!(on.scale(whole).matches(target) && on.limbs(whole) == on.top() - 1);
        for (slot, (a, b)) in whole.values().iter().zip(blocks.values()).enumerate() {
            let terms = (0..5).map(|i| map.weights[row * 5 + i] * x[i].values()[slot]);
            // Weights are rounded as those of a run.
            assert!((row as f64 + terms.sum::<f64>() - a).abs() < 1e-5 && (a - b).abs() < 1e-9);
        }
    }
    assert_eq!(on.tally().counts().total(Op::LinearTerm), 2 * 35);
}

#[test]
fn grids_are_sums_of_products() {
    let on = exact();
    let side = |n: usize, from: f64| -> Vec<Vec<Vector>> {
        (0..3).map(|k| (0..n).map(|i| ramp(&on, from, (k + i) as f64)).collect()).collect()
    };
    let (left, right) = (side(2, -1.0), side(4, 0.5));
    let grid = on.dot_grid(&left, &right).unwrap();
    for (i, row) in grid.iter().enumerate() {
        for (j, sum) in row.iter().enumerate() {
            let slot = 17;
            let term = |k: usize| left[k][i].values()[slot] * right[k][j].values()[slot];
            let want: f64 = (0..3).map(term).sum();
            assert!((sum.values()[slot] - want).abs() < 1e-12);
        }
    }
    let counts = on.tally().counts();
    assert_eq!((counts.total(Op::Tensor), counts.total(Op::Relinearise)), (24, 8));
}

#[test]
fn a_simulation_refuses_what_the_engine_refuses() {
    let on = exact();
    let mut x = ramp(&on, -1.0, 1.0);
    let other = on.read_as(ramp(&on, 0.0, 1.0), 0.5).unwrap();
    assert!(on.add_assign(&mut x, &other).is_err());
    let low = on.drop_to(&x, on.floor() - 1).unwrap();
    assert!(on.refresh(StepId::outside("here"), vec![low], on.top()).is_err());
    assert!(on.refresh(StepId::outside("here"), vec![x.clone()], on.top() + 1).is_err());
    let bottom = on.drop_to(&x, 1).unwrap();
    let vector = vec![1.0; SLOTS];
    assert!(on.mul_vector(&bottom, &vector, on.default_scale()).is_err());
    assert!(on.mul_vector(&x, &vector, Scale::from_bits(5)).is_err());
    assert!(on.add_vector(x.clone(), &[1.0]).is_err());
    let large = on.read_as(ramp(&on, 0.0, 1.0), 1.1).unwrap();
    assert!(on.refresh(StepId::outside("there"), vec![large], on.top()).is_ok());
    let large = on.vector(vec![1.1; SLOTS], on.top()).unwrap();
    assert!(matches!(
        on.refresh(StepId::outside("there"), vec![large], on.top()),
        Err(FheError::Range { site, value, .. }) if site == "there" && value == 1.1
    ));
    let huge = on.vector(vec![f64::NAN; SLOTS], on.top()).unwrap();
    assert!(on.mul_vector(&huge, &vector, on.default_scale()).is_err());
}

#[test]
fn errors_depend_on_the_computation_alone() {
    let run = |seed| {
        let on = Simulator::new(&params(), SLOTS).unwrap().with_errors(seed);
        let x: Vec<Vector> = (1..6).map(|i| ramp(&on, -0.1, f64::from(i) / 5.0)).collect();
        let y = on.linear(&map(9, 5), &x, on.default_scale()).unwrap();
        let square = on.scale(&y[0]).times(on.scale(&y[0]));
        let mut sum = on.sum(on.limbs(&y[0]), square).unwrap();
        on.add_product(&mut sum, &y[0], &y[1], Weight::ONE).unwrap();
        let z = on.finish(sum).unwrap();
        let z = on.mul_vector(&z, &vec![0.05; SLOTS], on.default_scale()).unwrap();
        on.refresh(StepId::outside("z"), vec![z], on.top()).unwrap()[0].values().to_vec()
    };
    let distance = |a: &[f64], b: &[f64]| {
        let squares = a.iter().zip(b).map(|(a, b)| (a - b).powi(2));
        (squares.sum::<f64>() / SLOTS as f64).sqrt()
    };
    let (one, two) = (run(1), run(2));
    assert_eq!(one, run(1));
    // The errors of two refreshes.
    let apart = distance(&one, &two) / super::REFRESH_DEVIATION;
    assert!((1.0..2.2).contains(&apart), "{apart}");
}

#[test]
fn a_simulation_without_numbers_counts_the_same() {
    let count = |on: &Simulator| {
        on.at(StepId::outside("layer.0.x"));
        let x: Vec<Vector> = (0..4).map(|_| ramp(on, 0.1, 1.0)).collect();
        let y = on.linear(&map(4, 4), &x, on.default_scale()).unwrap();
        let rotated = on.rotate(&y[0], 5).unwrap();
        on.at(StepId::outside("layer.0.y"));
        on.dot_grid(&[vec![rotated]], &[y]).unwrap();
        on.refresh(StepId::outside("x"), x, on.floor() + 2).unwrap();
        assert_eq!(on.tally().alive(), 0);
        on.tally().counts()
    };
    let (full, empty) = (count(&exact()), count(&exact().counting()));
    assert_eq!(full.operations, empty.operations);
    assert_eq!(full.rotations, empty.rotations);
    assert_eq!(full.total_in(Op::Bootstrap, "layer.0.y"), 2);
    assert_eq!(full.total_in(Op::Rotate, "layer.0.x"), 1);
    assert!(full.peak() >= 16 * exact().top() as u64);
    let nothing = LinearMap { weights: Vec::new(), bias: None, ..map(4, 4) };
    let on = exact().counting();
    let x = vec![on.vector(Vec::new(), on.top()).unwrap(); 4];
    assert_eq!(on.linear(&nothing, &x, on.default_scale()).unwrap().len(), 4);
    let on = exact();
    let x = vec![ramp(&on, 0.0, 1.0); 4];
    assert!(on.linear(&nothing, &x, on.default_scale()).is_err());
}
