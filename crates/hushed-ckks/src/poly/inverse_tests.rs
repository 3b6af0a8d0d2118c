//! Inverses in the clear: errors as stated, scales exact, counts as reported.

use super::*;
use crate::poly::clear::{Clear, Tally};
use crate::poly::testing::{chain, spread};

#[test]
fn the_inverse_has_the_stated_error_scale_and_cost() {
    for (low, high, error) in [(0.9, 1.1, 1e-6), (0.01, 2.0, 1e-5), (0.5, 400.0, 1e-4)] {
        let inverse = Inverse::new(low, high, error).unwrap();
        let report = inverse.report();
        assert!(report.error <= error);
        // The bound is reached at the ends.
        let worst = greatest(low, high, |x| inverse.eval(x) * x - 1.0);
        assert!((worst / report.error - 1.0).abs() < 1e-3, "{worst} {report}");
        let ar = Clear::new(chain(inverse.levels()));
        let values = spread(low, high, 1000);
        // The input at scale 2^40, the result at 2^39.
        let x = ar.real(&values, Scale::from_bits(40));
        let y = inverse.evaluate(&ar, &x, Scale::from_bits(39)).unwrap();
        assert!(y.scale.matches(Scale::from_bits(39)));
        assert_eq!(y.limbs, 1);
        for (v, x) in y.slots.iter().zip(&values) {
            let relative = v.re * x - 1.0;
            assert!(relative.abs() < 1.1 * report.error + 1e-7, "{x}: {relative}");
        }
        assert_eq!(without_rescales(&ar), tally_of(&report));
    }
}

#[test]
fn relaxation_halves_the_steps() {
    // Plain Goldschmidt needs log2(1/e) + log2(bits) steps, 10 + 4 here.
    let inverse = Inverse::new(1.0 / 1024.0, 1.0, 1e-6).unwrap();
    assert_eq!(inverse.steps(), 8);
    let exact = Inverse::new(0.25, 1.0, 2f64.powi(-48)).unwrap();
    assert!((exact.eval(0.3) * 0.3 - 1.0).abs() < 1e-13);
}

#[test]
fn the_root_has_the_stated_error_scale_and_cost() {
    for (low, high, seed, error, levels) in
        [(0.5, 2.0, 1, 1e-5, 7), (0.2, 150.0, 3, 1e-4, 11), (0.7, 2500.0, 7, 1e-3, 12)]
    {
        let root = InverseSqrt::new(low, high, seed, error).unwrap();
        let report = root.report();
        assert!(report.error <= 1.001 * error, "{report}");
        assert_eq!(root.levels(), levels, "{report}");
        let ar = Clear::new(chain(levels));
        let values = spread(low, high, 1000);
        let x = ar.real(&values, Scale::from_bits(40));
        let y = root.evaluate(&ar, &x, Scale::from_bits(41)).unwrap();
        assert!(y.scale.matches(Scale::from_bits(41)));
        assert_eq!(y.limbs, 1);
        for (v, x) in y.slots.iter().zip(&values) {
            let relative = v.re * x.sqrt() - 1.0;
            assert!(relative.abs() < 1.1 * report.error + 1e-8, "{x}: {relative}");
        }
        assert_eq!(without_rescales(&ar), tally_of(&report));
    }
}

#[test]
fn errors_of_rescaling_stay_small() {
    let root = InverseSqrt::new(0.2, 150.0, 3, 1e-5).unwrap();
    let ar = Clear::new(chain(root.levels())).with_errors(1 << 16, 5);
    let values = spread(0.2, 150.0, 4096);
    let x = ar.real(&values, Scale::from_bits(40));
    let y = root.evaluate(&ar, &x, Scale::from_bits(40)).unwrap();
    let worst = y.slots.iter().zip(&values).map(|(v, x)| (v.re * x.sqrt() - 1.0).abs());
    let worst = worst.fold(0.0, f64::max);
    assert!(worst < 1e-4, "{worst}");
}

fn tally_of(report: &Approximation) -> Tally {
    Tally {
        products: report.cost.products,
        relinearisations: report.cost.relinearisations,
        multiples: report.cost.multiples,
        rescales: 0,
    }
}

fn without_rescales(ar: &Clear) -> Tally {
    Tally { rescales: 0, ..ar.take_tally() }
}

#[test]
fn steps_asked_for_are_those_that_an_error_asks_for() {
    let by_error = Inverse::new(0.01, 2.0, 1e-4).unwrap();
    let by_steps = Inverse::with_steps(0.01, 2.0, by_error.steps()).unwrap();
    assert_eq!(by_steps, by_error);
    let by_error = InverseSqrt::new(0.01, 1.0, 15, 1e-4).unwrap();
    assert!(by_error.steps() > 0);
    let by_steps = InverseSqrt::with_steps(0.01, 1.0, 15, by_error.steps()).unwrap();
    assert_eq!(by_steps, by_error);
    assert_eq!(InverseSqrt::with_steps(0.1, 1.0, 7, 0).unwrap().steps(), 0);
    for refused in [0, 65] {
        assert!(Inverse::with_steps(0.1, 1.0, refused).is_err());
    }
    assert!(InverseSqrt::with_steps(0.1, 1.0, 7, 65).is_err());
}

#[test]
fn refusals() {
    assert!(matches!(Inverse::new(0.0, 1.0, 1e-3), Err(PolyError::Range { .. })));
    assert!(matches!(Inverse::new(2.0, 1.0, 1e-3), Err(PolyError::Range { .. })));
    assert!(matches!(Inverse::new(0.1, 1.0, 0.0), Err(PolyError::Parameter { .. })));
    assert!(matches!(InverseSqrt::new(0.1, 1.0, 0, 1e-3), Err(PolyError::Parameter { .. })));
    let inverse = Inverse::new(0.1, 1.0, 1e-3).unwrap();
    let ar = Clear::new(chain(inverse.levels() - 1));
    let x = ar.real(&[0.5], Scale::from_bits(40));
    assert!(matches!(inverse.evaluate(&ar, &x, Scale::from_bits(40)), Err(PolyError::LevelsTooFew { .. })));
}
