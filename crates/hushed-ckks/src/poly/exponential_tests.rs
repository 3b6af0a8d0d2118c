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
    for (y, x) in y.slots.iter().zip(&values) {
        assert!((y.re - exp.eval(*x)).abs() < 1e-9);
    }
    assert!(ExpByLimit::new(-200.0, 0.0, 7).is_err());
    assert!(ExpByLimit::new(-1.0, 0.0, 0).is_err());
}
