//! exp in the clear.

use super::*;
use crate::poly::clear::Clear;
use crate::poly::testing::{chain, spread};

#[test]
fn the_limit_is_what_it_says() {
    let exp = ExpByLimit::new(-16.0, 0.0, 7).unwrap();
    let report = exp.report();
    // x²·e^x/2^8, greatest at −2: 4·e^-2/256.
    assert!((report.error / 2.11e-3 - 1.0).abs() < 0.02, "{report}");
    let ar = Clear::new(chain(8));
    let values = spread(-16.0, 0.0, 500);
    let target = Scale::from_bits(38);
    let y = exp
        .evaluate(&ar, &ar.real(&values, Scale::from_bits(40)), target)
        .unwrap();
    assert!(y.scale.matches(target));
    assert_eq!(y.limbs, 1);
    let folded: Vec<f64> = values.iter().map(|x| x / 128.0).collect();
    let at = exp.folded_scale(&ar, 8, target).unwrap();
    let mut x = ar.real(&folded, at);
    x.limbs = 8;
    let z = exp.evaluate_folded(&ar, &x, target).unwrap();
    assert_eq!(z.limbs, 1);
    for ((y, z), x) in y.slots.iter().zip(&z.slots).zip(&values) {
        assert!((y.re - exp.eval(*x)).abs() < 1e-9);
        assert!((z.re - exp.eval(*x)).abs() < 1e-9);
    }
    x.scale = Scale::from_bits(20);
    assert!(matches!(
        exp.evaluate_folded(&ar, &x, target),
        Err(PolyError::ScaleMismatch { .. })
    ));
    assert!(ExpByLimit::new(-200.0, 0.0, 7).is_err());
    assert!(ExpByLimit::new(-1.0, 0.0, 0).is_err());
}

#[test]
fn a_polynomial_squared_is_precise_in_relative_error() {
    let exp = ExpBySquarings::new(-20.0, 4.0, 7, 3).unwrap();
    let report = exp.report();
    assert!(report.error < 1e-4 && report.relative, "{report}");
    // One level for the interval, three for degree 7, three squarings.
    assert_eq!(exp.levels(), 7);
    let ar = Clear::new(chain(7)).with_errors(1 << 16, 11);
    let values = spread(-20.0, 4.0, 2000);
    let target = Scale::from_bits(40);
    let y = exp
        .evaluate(&ar, &ar.real(&values, target), target)
        .unwrap();
    assert!(y.scale.matches(target));
    for (y, x) in y.slots.iter().zip(&values) {
        assert!(
            (y.re - x.exp()).abs() < 1e-4 * x.exp() + 1e-5,
            "{x}: {}",
            y.re
        );
    }
    let tally = ar.take_tally();
    assert_eq!(tally.relinearisations, report.cost.relinearisations);
    assert_eq!(tally.products, report.cost.products);
    let without = ExpBySquarings::new(-1.0, 1.0, 8, 0).unwrap();
    assert!(without.report().error < 1e-7);
}
