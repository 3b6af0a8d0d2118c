//! Checks fits against published minimax errors and against the properties they must have.

use std::f64::consts::PI;

use super::*;

/// GELU with the tanh of its usual approximation.
fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
}

/// The polynomial that minimises ∫ weight·(f − p)² over [low, high], by a uniform grid.
fn least_squares(f: impl Fn(f64) -> f64, weight: impl Fn(f64) -> f64, degree: usize, low: f64, high: f64) -> Fit {
    let count = 64 * (degree + 2);
    let at = |i: usize| low + (high - low) * (i as f64 + 0.5) / count as f64;
    let points = (0..count).map(at).map(|x| (x, f(x), weight(x)));
    least_squares_points(&points.collect::<Vec<_>>(), degree).unwrap()
}

#[test]
fn minimax_of_exp_has_the_known_errors() {
    // Minimax errors of exp on [−1, 1] for degrees 0 to 4 (Meinardus 1967, table; degree 0: sinh 1).
    for (degree, known) in [1.175201, 0.278802, 0.045017, 0.005528, 0.000547].into_iter().enumerate() {
        let fit = minimax(f64::exp, |_| 1.0, degree, -1.0, 1.0).unwrap();
        assert!((fit.max_error - known).abs() < 4e-6, "degree {degree}: {}", fit.max_error);
    }
    // Degree 10 on [−8, 0]: about 2·e^−4·I_11(4), the first omitted term, and equal at both ends.
    let fit = minimax(f64::exp, |_| 1.0, 10, -8.0, 0.0).unwrap();
    assert!((2e-6..3e-6).contains(&fit.max_error), "{}", fit.max_error);
    let end = |x: f64| (x.exp() - fit.eval(x)).abs();
    assert!((end(-8.0) / fit.max_error - 1.0).abs() < 1e-3 && (end(0.0) / fit.max_error - 1.0).abs() < 1e-3);
}

#[test]
fn relative_error_by_a_weight() {
    let fit = minimax(f64::exp, |x| (-x).exp(), 6, -4.0, 0.0).unwrap();
    assert!(fit.max_weighted_error < fit.max_error * 60.0);
    let relative = |x: f64| (fit.eval(x) / x.exp() - 1.0).abs();
    // Level: as large at the small end as at the large one.
    assert!((relative(-4.0) / fit.max_weighted_error - 1.0).abs() < 1e-3);
    assert!((relative(0.0) / fit.max_weighted_error - 1.0).abs() < 1e-3);
}

#[test]
fn gelu_fits_and_minimax_is_no_worse_than_least_squares() {
    for degree in [3, 4, 6, 8, 12] {
        let best = minimax(gelu, |_| 1.0, degree, -5.0, 3.0).unwrap();
        let squares = least_squares(gelu, |_| 1.0, degree, -5.0, 3.0);
        assert!(best.max_error <= squares.max_error * (1.0 + 1e-6));
        assert!(best.max_error > squares.max_error / 20.0, "neither is far off");
    }
    assert!(minimax(gelu, |_| 1.0, 12, -5.0, 3.0).unwrap().max_error < 2e-3);
}

#[test]
fn polynomials_are_found_in_both_forms() {
    let p = |x: f64| 3.0 - 2.0 * x + 0.5 * x.powi(3);
    for fit in [
        minimax(p, |_| 1.0, 3, 1.0, 4.0).unwrap(),
        minimax(p, |_| 1.0, 5, 1.0, 4.0).unwrap(),
        least_squares(p, |x| x, 4, 1.0, 4.0),
    ] {
        assert!(fit.max_error < 1e-10, "{fit:?}");
        for (k, expected) in [3.0, -2.0, 0.0, 0.5].into_iter().enumerate() {
            assert!((fit.monomial[k] - expected).abs() < 1e-8, "{fit:?}");
        }
        for x in [1.0, 2.5, 4.0] {
            assert!((fit.eval(x) - fit.eval_chebyshev(x)).abs() < 1e-10);
        }
    }
    let constant = minimax(|x| x, |_| 1.0, 0, 0.0, 2.0).unwrap();
    assert!((constant.monomial[0] - 1.0).abs() < 1e-12 && (constant.max_error - 1.0).abs() < 1e-12);
}

#[test]
fn least_squares_is_orthogonal_to_polynomials_and_follows_its_points() {
    let weight = |x: f64| (-x * x / 2.0).exp();
    let fit = least_squares(gelu, weight, 4, -4.0, 4.0);
    for k in 0..=4 {
        let integral: f64 = (0..8000)
            .map(|i| -4.0 + (f64::from(i) + 0.5) / 1000.0)
            .map(|x| weight(x) * (gelu(x) - fit.eval(x)) * x.powi(k))
            .sum();
        assert!(integral.abs() / 1000.0 < 2e-4, "moment {k}: {integral}");
    }
    let points: Vec<_> = (0..20).map(f64::from).map(|x| (x, 2.0 * x + 1.0, 1.0)).collect();
    let line = least_squares_points(&points, 1).unwrap();
    assert!((line.monomial[0] - 1.0).abs() < 1e-12 && (line.monomial[1] - 2.0).abs() < 1e-12);
    assert_eq!((line.low, line.high), (0.0, 19.0));
}

#[test]
fn refuses_what_has_no_answer() {
    let refused = |fit: Result<Fit, MathError>| matches!(fit, Err(MathError::InvalidFit { .. }));
    assert!(refused(minimax(f64::exp, |_| 1.0, 3, 1.0, 1.0)));
    assert!(refused(minimax(f64::exp, |_| 1.0, MAX_DEGREE + 1, 0.0, 1.0)));
    assert!(refused(minimax(f64::ln, |_| 1.0, 3, -1.0, 1.0)));
    assert!(refused(minimax(f64::exp, |x| x, 3, -1.0, 1.0)));
    assert!(refused(least_squares_points(&[(0.0, 1.0, 1.0), (1.0, 1.0, 1.0)], 2)));
    assert!(refused(least_squares_points(&[], 0)));
}

#[test]
fn pieces_leave_the_gap_free() {
    // The sign on [−1, −a] ∪ [a, 1]: the best polynomial of degree 1, and of 2 as it is odd, is 2x/(1 + a), with error
    // (1 − a)/(1 + a).
    let a = 0.25;
    let sign = |x: f64| if x.abs() < a { f64::NAN } else { x.signum() };
    for degree in [1, 2] {
        let fit = minimax_over(sign, |_| 1.0, degree, (-1.0, 1.0), &[(-1.0, -a), (a, 1.0)]).unwrap();
        assert!((fit.max_error - 0.6).abs() < 1e-6, "{fit}");
        assert!((fit.chebyshev[1] - 1.6).abs() < 1e-6 && fit.chebyshev[0].abs() < 1e-6);
        assert_eq!((fit.degree(), fit.depth()), (degree, if degree == 1 { 1 } else { 2 }));
    }
    // Narrow pieces at the multiples of 1/2, fewer coefficients than pieces: the error is below that on the whole hull.
    let pieces: Vec<_> = (0..24).map(|i| f64::from(i) / 2.0).map(|c| (c, c + 1e-3)).collect();
    let f = |x: f64| (1.5 * x).cos();
    let hull = (0.0, 11.501);
    let whole = minimax(f, |_| 1.0, 20, hull.0, hull.1).unwrap();
    let apart = minimax_over(f, |_| 1.0, 20, hull, &pieces).unwrap();
    // 7.4315e-8 by linear programming on the same pieces.
    assert!((apart.max_error_chebyshev / 7.4315e-8 - 1.0).abs() < 1e-3);
    assert!(whole.max_error_chebyshev > 3.0 * apart.max_error_chebyshev, "{whole}");
    // The whole interval cut into pieces gives the same polynomial.
    let cut = minimax_over(f64::exp, |_| 1.0, 5, (0.0, 2.0), &[(0.0, 0.7), (0.7, 2.0)]).unwrap();
    let one = minimax(f64::exp, |_| 1.0, 5, 0.0, 2.0).unwrap();
    assert!((cut.max_error / one.max_error - 1.0).abs() < 1e-3);
}

#[test]
fn refuses_pieces_out_of_order_or_outside() {
    for pieces in [vec![], vec![(0.0, 2.0)], vec![(-2.0, 0.0)], vec![(0.5, 1.0), (0.0, 0.2)], vec![(0.5, f64::NAN)]] {
        let fit = minimax_over(|x| x, |_| 1.0, 2, (-1.0, 1.0), &pieces);
        assert!(matches!(fit, Err(MathError::InvalidFit { .. })), "{pieces:?}");
    }
    // Single points are valid pieces; there must be enough points in all, counted as they are spaced.
    let points = [(-1.0, -1.0), (0.0, 0.0), (1.0, 1.0)];
    let line = minimax_over(f64::abs, |_| 1.0, 1, (-1.0, 1.0), &points).unwrap();
    assert!((line.max_error - 0.5).abs() < 1e-9, "{line}");
}
