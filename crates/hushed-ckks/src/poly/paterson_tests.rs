//! Evaluation in the clear: values, levels, exact scales, and counted products.

use super::*;
use crate::poly::clear::Clear;
use crate::poly::schedule::Cost;
use crate::poly::testing::{chain, spread};

/// Coefficients of both signs that decay slowly.
fn coeffs(degree: usize, parity: Parity) -> Vec<f64> {
    let c = |k: usize| ((k * k + 3 * k + 1) as f64).sin() / (1.0 + k as f64 / 8.0);
    (0..=degree).map(|k| if parity.has(k) { c(k) } else { 0.0 }).collect()
}

fn check(p: &Polynomial, low: f64, high: f64, input: Scale, target: Scale) {
    let ar = Clear::new(chain(p.depth()));
    let values = spread(low, high, 257);
    let y = evaluate(&ar, &ar.real(&values, input), p, target).unwrap();
    assert!(y.scale.matches(target), "{} instead of {target}", y.scale);
    assert_eq!(y.limbs, 1);
    for (v, x) in y.slots.iter().zip(&values) {
        let error = (v.re - p.eval(*x)).abs();
        // The rounding of the input counts degree² times at the ends.
        let allowed = 1e-9 + 1e-12 * (p.degree() * p.degree()) as f64;
        assert!(error < allowed, "degree {} at {x}: {error:e}", p.degree());
    }
    let cost = Schedule::new(&[p]).cost();
    let interval = usize::from(p.interval_map().is_some());
    let tally = ar.take_tally();
    let counted = Cost {
        products: tally.products,
        relinearisations: tally.relinearisations,
        depth: p.depth() - interval,
        ..cost
    };
    assert_eq!(counted, cost, "degree {}", p.degree());
}

#[test]
fn every_degree_in_both_bases_with_every_parity() {
    let scale = Scale::from_bits(40);
    for degree in 1..=40 {
        for parity in [Parity::None, Parity::Even, Parity::Odd] {
            if degree == 1 && parity == Parity::Even {
                continue;
            }
            let chebyshev = Polynomial::chebyshev(coeffs(degree, parity), -1.0, 1.0).unwrap();
            check(&chebyshev.with_parity(parity).unwrap(), -1.0, 1.0, scale, scale);
            let monomial = Polynomial::monomial(coeffs(degree, parity)).unwrap();
            check(&monomial.with_parity(parity).unwrap(), -1.0, 1.0, scale, scale);
        }
    }
}

#[test]
fn large_degrees_other_intervals_and_other_scales() {
    for degree in [59, 63, 127, 255] {
        let p = Polynomial::chebyshev(coeffs(degree, Parity::None), -3.0, 5.0).unwrap();
        check(&p, -3.0, 5.0, Scale::from_bits(40), Scale::from_bits(42));
    }
    // Scales away from the size of the primes, above and below, and not powers of two.
    let p = Polynomial::chebyshev(coeffs(30, Parity::Even), -1.0, 1.0).unwrap();
    let p = p.with_parity(Parity::Even).unwrap();
    for (input, target) in [(38.0, 40.0), (40.3, 37.7), (41.0, 45.0), (40.5, 40.0)] {
        let scale = |bits: f64| Scale::new(bits.exp2()).unwrap();
        check(&p, -1.0, 1.0, scale(input), scale(target));
    }
}

#[test]
fn several_polynomials_share_their_powers() {
    let polynomials: Vec<Polynomial> = [3, 15, 14]
        .into_iter()
        .map(|degree| Polynomial::chebyshev(coeffs(degree, Parity::None), -2.0, 2.0).unwrap())
        .collect();
    let targets = [40, 41, 39].map(Scale::from_bits);
    let wanted: Vec<_> = polynomials.iter().zip(targets).collect();
    let ar = Clear::new(chain(6));
    let values = spread(-2.0, 2.0, 100);
    let ys = evaluate_many(&ar, &ar.real(&values, Scale::from_bits(40)), &wanted).unwrap();
    for (y, (p, target)) in ys.iter().zip(&wanted) {
        assert!(y.scale.matches(*target));
        assert_eq!(y.limbs, 7 - p.depth());
        for (v, x) in y.slots.iter().zip(&values) {
            assert!((v.re - p.eval(*x)).abs() < 1e-8);
        }
    }
    let together = ar.take_tally().relinearisations;
    let apart: usize = polynomials.iter().map(|p| Schedule::new(&[p]).cost().relinearisations).sum();
    assert!(together < apart, "{together} {apart}");
    let other = Polynomial::monomial(vec![0.0, 1.0]).unwrap();
    let mixed = [(&other, targets[0]), (&polynomials[0], targets[0])];
    let x = ar.real(&values, Scale::from_bits(40));
    assert_eq!(evaluate_many(&ar, &x, &mixed), Err(PolyError::MixedBases));
    assert_eq!(evaluate_many(&ar, &x, &[]), Err(PolyError::MixedBases));
}

#[test]
fn compositions() {
    let inner = Polynomial::chebyshev(vec![0.0, 1.5, 0.0, -0.5], -1.0, 1.0).unwrap();
    let inner = inner.with_parity(Parity::Odd).unwrap();
    let ar = Clear::new(chain(6));
    let values = spread(-1.0, 1.0, 100);
    let all = vec![inner.clone(), inner.clone(), inner.clone()];
    let target = Scale::from_bits(40);
    let y = compose(&ar, &ar.real(&values, target), &all, target).unwrap();
    assert!(y.scale.matches(target) && y.limbs == 1);
    for (v, x) in y.slots.iter().zip(&values) {
        assert!((v.re - inner.eval(inner.eval(inner.eval(*x)))).abs() < 1e-8);
    }
    assert!(compose(&ar, &ar.real(&values, target), &[], target).is_err());
}

#[test]
fn a_scale_that_cannot_carry_the_factors_is_refused() {
    let p = Polynomial::chebyshev(coeffs(15, Parity::None), -1.0, 1.0).unwrap();
    let ar = Clear::new(chain(4));
    let x = ar.real(&[0.5], Scale::from_bits(46));
    // T_8 would have a scale of 2^88.
    assert!(matches!(
        evaluate(&ar, &x, &p, Scale::from_bits(40)),
        Err(PolyError::ScaleTooSmall { .. } | PolyError::Overflow { .. })
    ));
    let short = Clear::new(chain(3));
    let x = short.real(&[0.5], Scale::from_bits(40));
    assert_eq!(
        evaluate(&short, &x, &p, Scale::from_bits(40)),
        Err(PolyError::LevelsTooFew { needed: 4, available: 3, limbs: 4 })
    );
}
