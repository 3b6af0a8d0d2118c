//! Polynomials that approximate a function on an interval, in f64, with their greatest error.
//!
//! * [`minimax`]: least greatest weighted error w(x)·|f(x) − p(x)|, by Remez' second algorithm (all extrema exchanged at
//!   once; Cheney, *Introduction to Approximation Theory*, ch. 3);
//! * [`least_squares`]: least ∫ w(x)·(f(x) − p(x))² dx, on a uniform grid;
//! * [`least_squares_points`]: least Σ w_i·(y_i − p(x_i))², for measured distributions.
//!
//! All work in Chebyshev polynomials of the interval mapped to [−1, 1], where the systems are well conditioned. The
//! errors reported are those of the *monomial* form, evaluated in f64 as a user would, so they contain what the change
//! of basis loses; above degree 20 or so, or far from 0, prefer the Chebyshev form.

use crate::error::MathError;
use std::f64::consts::PI;

/// Highest degree.
pub const MAX_DEGREE: usize = 64;

/// A fitted polynomial.
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Coefficients of x^0, x^1, ….
    pub monomial: Vec<f64>,
    /// Coefficients of T_0(t), T_1(t), … with t = (2x − low − high)/(high − low).
    pub chebyshev: Vec<f64>,
    /// Greatest |f(x) − p(x)| found on the interval, or among the points of a point fit: without the weight.
    pub max_error: f64,
    /// Greatest w(x)·|f(x) − p(x)| found (of the square root of the weight, for least squares).
    pub max_weighted_error: f64,
}

impl Fit {
    /// p(x) by Horner's rule on the monomial form.
    pub fn eval(&self, x: f64) -> f64 {
        self.monomial
            .iter()
            .rev()
            .fold(0.0, |value, c| value.mul_add(x, *c))
    }

    /// p(x) by Clenshaw's rule on the Chebyshev form.
    pub fn eval_chebyshev(&self, x: f64) -> f64 {
        clenshaw(
            &self.chebyshev,
            (2.0 * x - self.low - self.high) / (self.high - self.low),
        )
    }

    fn new(interval: Interval, chebyshev: Vec<f64>) -> Fit {
        let monomial = interval.monomial(&chebyshev);
        let Interval { low, high } = interval;
        Fit {
            low,
            high,
            monomial,
            chebyshev,
            max_error: 0.0,
            max_weighted_error: 0.0,
        }
    }

    /// Measures the errors at `points` of (x, f(x), w(x)).
    fn measured(mut self, points: impl IntoIterator<Item = (f64, f64, f64)>) -> Fit {
        for (x, y, w) in points {
            let error = (y - self.eval(x)).abs();
            self.max_error = self.max_error.max(error);
            self.max_weighted_error = self.max_weighted_error.max(w * error);
        }
        self
    }
}

/// The polynomial of `degree` with least greatest `weight(x)·|f(x) − p(x)|` on [low, high]; for the plain error give
/// `|_| 1.0`.
///
/// # Errors
/// [`MathError::InvalidFit`] if the interval is empty, the degree above [`MAX_DEGREE`], or a value not finite or a
/// weight not positive.
pub fn minimax(
    f: impl Fn(f64) -> f64,
    weight: impl Fn(f64) -> f64,
    degree: usize,
    low: f64,
    high: f64,
) -> Result<Fit, MathError> {
    let interval = Interval::new(degree, low, high)?;
    let grid = interval.grid(degree, &f, &weight)?;
    // Extrema of T_(degree+1): the reference for which the first polynomial is already near the best.
    let last = degree + 1;
    let mut reference: Vec<usize> = (0..=last).map(|i| i * (grid.len() - 1) / last).collect();
    let mut best: Option<(f64, Vec<f64>)> = None;
    for _ in 0..MAX_EXCHANGES {
        let Some((coefficients, level)) = level_error(&grid, &reference) else {
            break;
        };
        let errors: Vec<f64> = grid
            .iter()
            .map(|p| p.w * (p.y - clenshaw(&coefficients, p.t)))
            .collect();
        let greatest = errors.iter().fold(0.0_f64, |m, e| m.max(e.abs()));
        if best.as_ref().is_none_or(|(least, _)| greatest < *least) {
            best = Some((greatest, coefficients));
        }
        // De la Vallée Poussin: the level is a lower bound of the least error, the greatest error an upper one.
        if greatest <= level.abs() * (1.0 + 1e-9) {
            break;
        }
        match exchange(&errors, reference.len()) {
            Some(next) if next != reference => reference = next,
            _ => break,
        }
    }
    let Some((_, coefficients)) = best else {
        return Err(MathError::InvalidFit { degree, low, high });
    };
    Ok(Fit::new(interval, coefficients).measured(interval.check(degree, &f, &weight)))
}

/// The polynomial of `degree` with least ∫ weight·(f − p)² over [low, high].
///
/// # Errors
/// As [`minimax`], but a weight may be 0 where enough others are not.
pub fn least_squares(
    f: impl Fn(f64) -> f64,
    weight: impl Fn(f64) -> f64,
    degree: usize,
    low: f64,
    high: f64,
) -> Result<Fit, MathError> {
    let interval = Interval::new(degree, low, high)?;
    let count = 64 * (degree + 2);
    let points: Vec<(f64, f64, f64)> = (0..count)
        .map(|i| {
            let x = low + (high - low) * (i as f64 + 0.5) / count as f64;
            (x, f(x), weight(x))
        })
        .collect();
    let coefficients = solve_points(interval, degree, &points)?;
    let root = |x: f64| weight(x).sqrt();
    Ok(Fit::new(interval, coefficients).measured(interval.check(degree, &f, &root)))
}

/// The polynomial of `degree` with least Σ w·(y − p(x))² over `points` (x, y, w); the interval is their range.
///
/// # Errors
/// As [`least_squares`], or if fewer than degree + 1 different points have weight.
pub fn least_squares_points(points: &[(f64, f64, f64)], degree: usize) -> Result<Fit, MathError> {
    let low = points.iter().fold(f64::INFINITY, |m, p| m.min(p.0));
    let high = points.iter().fold(f64::NEG_INFINITY, |m, p| m.max(p.0));
    let interval = Interval::new(degree, low, high)?;
    let coefficients = solve_points(interval, degree, points)?;
    Ok(Fit::new(interval, coefficients).measured(points.iter().map(|&(x, y, w)| (x, y, w.sqrt()))))
}

/// Remez converges quadratically: a dozen exchanges are many.
const MAX_EXCHANGES: usize = 60;

#[derive(Clone, Copy)]
struct Interval {
    low: f64,
    high: f64,
}

/// A point of the grid: t in [−1, 1], f and the weight there.
struct Point {
    t: f64,
    y: f64,
    w: f64,
}

impl Interval {
    fn new(degree: usize, low: f64, high: f64) -> Result<Interval, MathError> {
        if degree > MAX_DEGREE || !low.is_finite() || !high.is_finite() || low >= high {
            return Err(MathError::InvalidFit { degree, low, high });
        }
        Ok(Interval { low, high })
    }

    fn at(self, t: f64) -> f64 {
        // The ends exactly, so that f is never asked outside.
        ((self.low + self.high) / 2.0 + (self.high - self.low) / 2.0 * t).clamp(self.low, self.high)
    }

    /// Points dense where extrema of the error are: 256 between two of them on average, so that the greatest error on
    /// the grid is within (π/512)²/2 < 2·10^−5 of the greatest at all.
    fn grid(
        self,
        degree: usize,
        f: impl Fn(f64) -> f64,
        weight: impl Fn(f64) -> f64,
    ) -> Result<Vec<Point>, MathError> {
        let last = 256 * (degree + 1);
        (0..=last)
            .map(|i| {
                let t = -(PI * i as f64 / last as f64).cos();
                let (y, w) = (f(self.at(t)), weight(self.at(t)));
                if y.is_finite() && w.is_finite() && w > 0.0 {
                    Ok(Point { t, y, w })
                } else {
                    Err(MathError::InvalidFit {
                        degree,
                        low: self.low,
                        high: self.high,
                    })
                }
            })
            .collect()
    }

    /// (x, f(x), w(x)) on another grid, not in step with the one that was fitted on.
    fn check(
        self,
        degree: usize,
        f: impl Fn(f64) -> f64,
        weight: impl Fn(f64) -> f64,
    ) -> impl Iterator<Item = (f64, f64, f64)> {
        let last = 1009 * (degree + 1);
        (0..=last).map(move |i| {
            let x = self.at(-(PI * i as f64 / last as f64).cos());
            (x, f(x), weight(x))
        })
    }

    /// Coefficients of powers of x, from the recurrence of T_k((2x − low − high)/(high − low)).
    fn monomial(self, chebyshev: &[f64]) -> Vec<f64> {
        let scale = 2.0 / (self.high - self.low);
        let shift = -(self.low + self.high) / (self.high - self.low);
        let mut sum = vec![0.0; chebyshev.len()];
        let (mut now, mut before) = (vec![0.0; chebyshev.len()], vec![0.0; chebyshev.len()]);
        now[0] = 1.0;
        for (k, &c) in chebyshev.iter().enumerate() {
            for (s, &coefficient) in sum.iter_mut().zip(&now) {
                *s += c * coefficient;
            }
            // T_1 = t·T_0, then T_(k+1) = 2t·T_k − T_(k−1).
            let twice = if k == 0 { 1.0 } else { 2.0 };
            let mut next: Vec<f64> = before.iter().map(|&b| -b).collect();
            for (i, &coefficient) in now.iter().enumerate() {
                next[i] += twice * shift * coefficient;
                if i + 1 < next.len() {
                    next[i + 1] += twice * scale * coefficient;
                }
            }
            before = std::mem::replace(&mut now, next);
        }
        sum
    }
}

/// Σ c_k·T_k(t).
fn clenshaw(c: &[f64], t: f64) -> f64 {
    let (mut b1, mut b2) = (0.0, 0.0);
    for &c in c.iter().skip(1).rev() {
        (b1, b2) = (2.0 * t * b1 - b2 + c, b1);
    }
    t * b1 - b2 + c.first().copied().unwrap_or(0.0)
}

/// T_0(t) … T_degree(t).
fn chebyshev_row(degree: usize, t: f64) -> Vec<f64> {
    let mut row = vec![1.0, t];
    for k in 2..=degree {
        row.push(2.0 * t * row[k - 1] - row[k - 2]);
    }
    row.truncate(degree + 1);
    row
}

/// The polynomial whose weighted error is ±level in turn at the reference, and that level.
fn level_error(grid: &[Point], reference: &[usize]) -> Option<(Vec<f64>, f64)> {
    let degree = reference.len() - 2;
    let system = reference.iter().enumerate().map(|(i, &at)| {
        let p = &grid[at];
        let sign = if i % 2 == 0 { 1.0 } else { -1.0 };
        let mut row = chebyshev_row(degree, p.t);
        row.push(sign / p.w);
        (row, p.y)
    });
    let (rows, right): (Vec<_>, Vec<_>) = system.unzip();
    let mut solution = least_squares_solution(rows, right)?;
    let level = solution.pop()?;
    Some((solution, level))
}

/// `count` extrema of alternating sign: the greatest of each run of one sign, then without the lesser ends. None if the
/// error has fewer runs, as rounding gives them when f is itself a polynomial of the degree.
fn exchange(errors: &[f64], count: usize) -> Option<Vec<usize>> {
    let mut extrema: Vec<usize> = Vec::new();
    for (i, &error) in errors.iter().enumerate() {
        match extrema.last_mut() {
            Some(last) if errors[*last] * error >= 0.0 => {
                if error.abs() > errors[*last].abs() {
                    *last = i;
                }
            }
            _ => extrema.push(i),
        }
    }
    while extrema.len() > count {
        let (first, last) = (
            errors[extrema[0]].abs(),
            errors[extrema[extrema.len() - 1]].abs(),
        );
        // Ends one at a time keep the signs alternating.
        if first < last {
            extrema.remove(0);
        } else {
            extrema.pop();
        }
    }
    (extrema.len() == count).then_some(extrema)
}

fn solve_points(
    interval: Interval,
    degree: usize,
    points: &[(f64, f64, f64)],
) -> Result<Vec<f64>, MathError> {
    let Interval { low, high } = interval;
    let refused = MathError::InvalidFit { degree, low, high };
    let (mut rows, mut right) = (Vec::new(), Vec::new());
    for &(x, y, w) in points {
        if !(x.is_finite() && y.is_finite() && w.is_finite() && w >= 0.0) {
            return Err(refused);
        }
        let root = w.sqrt();
        let t = (2.0 * x - low - high) / (high - low);
        rows.push(
            chebyshev_row(degree, t)
                .into_iter()
                .map(|v| v * root)
                .collect(),
        );
        right.push(y * root);
    }
    least_squares_solution(rows, right).ok_or(refused)
}

/// The x that minimises |A·x − b|, by Householder reflections; None if A has not full column rank.
fn least_squares_solution(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Option<Vec<f64>> {
    let columns = a.first()?.len();
    if a.len() < columns {
        return None;
    }
    for k in 0..columns {
        let norm = a[k..].iter().map(|row| row[k] * row[k]).sum::<f64>().sqrt();
        if norm.is_nan() || norm < 1e-13 {
            return None;
        }
        let pivot = if a[k][k] > 0.0 { -norm } else { norm };
        let mut v: Vec<f64> = a[k..].iter().map(|row| row[k]).collect();
        v[0] -= pivot;
        let square: f64 = v.iter().map(|x| x * x).sum();
        for j in k..columns {
            let dot: f64 = v.iter().zip(&a[k..]).map(|(v, row)| v * row[j]).sum();
            for (v, row) in v.iter().zip(&mut a[k..]) {
                row[j] -= 2.0 * dot / square * v;
            }
        }
        let dot: f64 = v.iter().zip(&b[k..]).map(|(v, b)| v * b).sum();
        for (v, b) in v.iter().zip(&mut b[k..]) {
            *b -= 2.0 * dot / square * v;
        }
    }
    let mut x = vec![0.0; columns];
    for k in (0..columns).rev() {
        let known: f64 = (k + 1..columns).map(|j| a[k][j] * x[j]).sum();
        x[k] = (b[k] - known) / a[k][k];
    }
    x.iter().all(|x| x.is_finite()).then_some(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GELU with the tanh of its usual approximation.
    fn gelu(x: f64) -> f64 {
        0.5 * x * (1.0 + ((2.0 / PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
    }

    #[test]
    fn minimax_of_exp_has_the_known_errors() {
        // Least greatest errors of exp on [−1, 1] of degrees 0 to 4 (Meinardus 1967, table; degree 0: sinh 1).
        for (degree, known) in [1.175201, 0.278802, 0.045017, 0.005528, 0.000547]
            .into_iter()
            .enumerate()
        {
            let fit = minimax(f64::exp, |_| 1.0, degree, -1.0, 1.0).unwrap();
            assert!(
                (fit.max_error - known).abs() < 4e-6,
                "degree {degree}: {}",
                fit.max_error
            );
        }
        // Degree 10 on [−8, 0]: about 2·e^−4·I_11(4), the first term left out, and equal at both ends.
        let fit = minimax(f64::exp, |_| 1.0, 10, -8.0, 0.0).unwrap();
        assert!((2e-6..3e-6).contains(&fit.max_error), "{}", fit.max_error);
        let end = |x: f64| (x.exp() - fit.eval(x)).abs();
        assert!(
            (end(-8.0) / fit.max_error - 1.0).abs() < 1e-3
                && (end(0.0) / fit.max_error - 1.0).abs() < 1e-3
        );
    }

    #[test]
    fn relative_error_by_a_weight() {
        let fit = minimax(f64::exp, |x| (-x).exp(), 6, -4.0, 0.0).unwrap();
        assert!(fit.max_weighted_error < fit.max_error * 60.0);
        let relative = |x: f64| (fit.eval(x) / x.exp() - 1.0).abs();
        // Levelled: as great at the small end as at the large one.
        assert!((relative(-4.0) / fit.max_weighted_error - 1.0).abs() < 1e-3);
        assert!((relative(0.0) / fit.max_weighted_error - 1.0).abs() < 1e-3);
    }

    #[test]
    fn gelu_fits_and_minimax_is_no_worse_than_least_squares() {
        for degree in [3, 4, 6, 8, 12] {
            let best = minimax(gelu, |_| 1.0, degree, -5.0, 3.0).unwrap();
            let squares = least_squares(gelu, |_| 1.0, degree, -5.0, 3.0).unwrap();
            assert!(best.max_error <= squares.max_error * (1.0 + 1e-6));
            assert!(
                best.max_error > squares.max_error / 20.0,
                "neither is far off"
            );
        }
        assert!(minimax(gelu, |_| 1.0, 12, -5.0, 3.0).unwrap().max_error < 2e-3);
    }

    #[test]
    fn polynomials_are_found_in_both_forms() {
        let p = |x: f64| 3.0 - 2.0 * x + 0.5 * x.powi(3);
        for fit in [
            minimax(p, |_| 1.0, 3, 1.0, 4.0).unwrap(),
            minimax(p, |_| 1.0, 5, 1.0, 4.0).unwrap(),
            least_squares(p, |x| x, 4, 1.0, 4.0).unwrap(),
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
        assert!(
            (constant.monomial[0] - 1.0).abs() < 1e-12 && (constant.max_error - 1.0).abs() < 1e-12
        );
    }

    #[test]
    fn least_squares_is_orthogonal_to_polynomials_and_follows_its_points() {
        let weight = |x: f64| (-x * x / 2.0).exp();
        let fit = least_squares(gelu, weight, 4, -4.0, 4.0).unwrap();
        for k in 0..=4 {
            let integral: f64 = (0..8000)
                .map(|i| -4.0 + (f64::from(i) + 0.5) / 1000.0)
                .map(|x| weight(x) * (gelu(x) - fit.eval(x)) * x.powi(k))
                .sum();
            assert!(integral.abs() / 1000.0 < 2e-4, "moment {k}: {integral}");
        }
        let points: Vec<_> = (0..20)
            .map(f64::from)
            .map(|x| (x, 2.0 * x + 1.0, 1.0))
            .collect();
        let line = least_squares_points(&points, 1).unwrap();
        assert!((line.monomial[0] - 1.0).abs() < 1e-12 && (line.monomial[1] - 2.0).abs() < 1e-12);
        assert_eq!((line.low, line.high), (0.0, 19.0));
    }

    #[test]
    fn refuses_what_has_no_answer() {
        let refused =
            |fit: Result<Fit, MathError>| matches!(fit, Err(MathError::InvalidFit { .. }));
        assert!(refused(minimax(f64::exp, |_| 1.0, 3, 1.0, 1.0)));
        assert!(refused(minimax(
            f64::exp,
            |_| 1.0,
            MAX_DEGREE + 1,
            0.0,
            1.0
        )));
        assert!(refused(minimax(f64::ln, |_| 1.0, 3, -1.0, 1.0)));
        assert!(refused(minimax(f64::exp, |x| x, 3, -1.0, 1.0)));
        assert!(refused(least_squares_points(
            &[(0.0, 1.0, 1.0), (1.0, 1.0, 1.0)],
            2
        )));
        assert!(refused(least_squares_points(&[], 0)));
    }
}
