use hushed_ckks::CkksParams;
use hushed_ckks::poly::Arithmetic;
use hushed_model::plain::activation as exact;

use super::*;
use crate::simulate::Op;
use crate::{Interval, Simulator};

fn interval(low: f64, high: f64) -> Column {
    Interval { low, high }.into()
}

#[test]
fn a_polynomial_a_column_and_the_same_operations_for_all() {
    let on = Simulator::new(&CkksParams::insecure_test(10, 14).unwrap(), 64).unwrap();
    let intervals = [interval(-6.0, 4.0), interval(-2.0, 9.0), interval(-6.0, 4.0)];
    for (f, degree, tolerance) in [
        (Activation::Gelu, 15, 0.06),
        (Activation::Gelu, 31, 4e-3),
        (Activation::GeluTanh, 23, 0.02),
        // Where few arguments are expected a fit is only bounded.
        (Activation::Relu, 31, 1.0),
    ] {
        let polynomials = Polynomials::default();
        let limbs = on.floor() + levels(degree);
        let t = |i: usize| -1.0 + 2.0 * i as f64 / 63.0;
        let columns: Vec<_> = (0..3)
            .map(|_| {
                let v = on.vector((0..64).map(t).collect(), limbs + 1).unwrap();
                let scale = argument_scale(&on, limbs).unwrap();
                on.mul_vector(&v, &[1.0; 64], scale).unwrap()
            })
            .collect();
        on.tally().reset();
        let out = activation(&on, f, 0, columns, &intervals, degree, &polynomials).unwrap();
        for (y, i) in out.iter().zip(&intervals) {
            assert_eq!(on.limbs(y), on.floor());
            for (s, y) in y.values().iter().enumerate() {
                let domain = fits::domain(*i);
                let x = domain.middle() + domain.half() * t(s);
                // Outside the column's own interval it is only bounded.
                let inside = (i.low..=i.high).contains(&x);
                let tolerance = if inside { tolerance } else { 50.0 };
                assert!((y - exact(f, x)).abs() < tolerance, "{f:?} {degree} {x} {y}");
            }
        }
        let counts = on.tally().counts();
        let each = counts.total(Op::Relinearise) / 3;
        assert_eq!(each * 3, counts.total(Op::Relinearise));
        assert!(counts.rotations.is_empty());
    }
}

#[test]
fn the_map_of_intervals_is_in_the_weights() {
    let map = LinearMap { rows: 2, columns: 1, weights: vec![1.0, -3.0], bound: 4.0, bias: Some(vec![0.5, 1.0]) };
    let mapped = unit_map(map.clone(), &[interval(-1.0, 3.0), interval(-5.0, 5.0)]).unwrap();
    // Row 0 at x = 2.5 is 3, the upper end; row 1 at x = 2 is −5, the lower.
    let (bias, end) = (mapped.bias.unwrap(), 1.0 / fits::BEYOND);
    assert!((mapped.weights[0] * 2.5 + bias[0] - end).abs() < 1e-12);
    assert!((mapped.weights[1] * 2.0 + bias[1] + end).abs() < 1e-12);
    assert!(unit_map(map.clone(), &[interval(-1.0, 3.0)]).is_err());
    assert!(unit_map(map, &[interval(-1.0, 3.0), interval(2.0, 2.0)]).is_err());
}

/// The largest difference between `p` and `f` on [low, high], by sampling.
fn greatest_error(p: impl Fn(f64) -> f64, f: impl Fn(f64) -> f64, low: f64, high: f64) -> f64 {
    const SAMPLES: u32 = 8192;
    let at = |i: u32| low + (high - low) * f64::from(i) / f64::from(SAMPLES);
    (0..=SAMPLES).map(|i| (p(at(i)) - f(at(i))).abs()).fold(0.0, f64::max)
}

/// On the interval of the paper (MOAI, §4) and on narrower ones.
#[test]
fn fits_measured() {
    let ours = |degree, low, high| {
        let p = fits::activation(Activation::Gelu, interval(low, high), degree).unwrap();
        let domain = fits::domain(interval(low, high));
        move |x: f64| p.eval((x - domain.middle()) / domain.half())
    };
    let gelu = |x: f64| exact(Activation::Gelu, x);
    // Degree, interval, and the largest error where arguments are expected, on the interval, where the fit is bounded,
    // and on twice the interval's width.
    for (degree, (low, high), expected, within, bounded, beyond) in [
        (23, (-20.0, 10.0), 6e-2, 0.7, 12.0, 2e11),
        (31, (-20.0, 10.0), 2e-2, 0.2, 4.0, 1e15),
        (15, (-6.0, 4.0), 2e-3, 4e-2, 0.4, 4e5),
        (23, (-6.0, 4.0), 2e-5, 3e-4, 5e-3, 8e7),
        (31, (-6.0, 4.0), 2e-8, 3e-7, 8e-6, 4e9),
        (15, (-4.0, 3.0), 3e-5, 6e-4, 8e-3, 2e4),
    ] {
        let p = ours(degree, low, high);
        let (middle, half) = ((low + high) / 2.0, (high - low) / 2.0);
        let error = |half: f64| greatest_error(&p, gelu, middle - half, middle + half);
        let found = [half / fits::OUTER, half, fits::BEYOND * half, 2.0 * half].map(error);
        for (found, most) in found.into_iter().zip([expected, within, bounded, beyond]) {
            assert!((most / 2.5..most).contains(&found), "{degree} {low} {found}");
        }
    }
}
