//! Polynomials that approximate a function on an interval, in f64, with their largest error.
//!
//! * [`minimax`], [`minimax_over`]: minimise the largest weighted error w(x)·|f(x) − p(x)|, on one interval or several,
//!   by Remez' second algorithm;
//! * [`least_squares_points`]: minimises Σ w_i·(y_i − p(x_i))², for measured distributions.
//!
//! All work in Chebyshev polynomials of the interval mapped to [−1, 1], where the systems are well conditioned. The
//! reported errors are those of each form evaluated in f64 as a user would, so that of the *monomial* form includes
//! what the change of basis loses; above degree 20 or so, or far from 0, prefer the Chebyshev form.

mod remez;
#[cfg(test)]
mod tests;

use std::fmt;

use crate::error::MathError;
pub use remez::{minimax, minimax_over};

/// Highest degree.
pub const MAX_DEGREE: usize = 128;

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
    /// Largest |f(x) − p(x)| found for the monomial form on the interval, or among the points of a point fit;
    /// unweighted.
    pub max_error: f64,
    /// The same for the Chebyshev form.
    pub max_error_chebyshev: f64,
    /// Largest w(x)·|f(x) − p(x)| of the Chebyshev form (with the square root of the weight, for least squares).
    pub max_weighted_error: f64,
}

/// A report: degree, interval, errors, depth.
impl fmt::Display for Fit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "degree {} on [{}, {}]: error {:.3e} (Chebyshev form {:.3e}, weighted {:.3e}), depth {}",
            self.degree(),
            self.low,
            self.high,
            self.max_error,
            self.max_error_chebyshev,
            self.max_weighted_error,
            self.depth()
        )
    }
}

impl Fit {
    /// The requested degree.
    pub fn degree(&self) -> usize {
        self.chebyshev.len() - 1
    }

    /// Least multiplicative depth of an evaluation, coefficients included: ⌈log2(degree + 1)⌉.
    pub fn depth(&self) -> u32 {
        self.chebyshev.len().next_power_of_two().trailing_zeros()
    }

    /// p(x) by Horner's rule on the monomial form.
    pub fn eval(&self, x: f64) -> f64 {
        self.monomial.iter().rev().fold(0.0, |value, c| value.mul_add(x, *c))
    }

    /// p(x) by Clenshaw's rule on the Chebyshev form.
    pub fn eval_chebyshev(&self, x: f64) -> f64 {
        clenshaw(&self.chebyshev, (2.0 * x - self.low - self.high) / (self.high - self.low))
    }

    fn new(interval: Interval, chebyshev: Vec<f64>) -> Fit {
        let monomial = interval.monomial(&chebyshev);
        let Interval { low, high } = interval;
        Fit { low, high, monomial, chebyshev, max_error: 0.0, max_error_chebyshev: 0.0, max_weighted_error: 0.0 }
    }

    /// Measures the errors at `points` of (x, f(x), w(x)).
    fn measured(mut self, points: impl IntoIterator<Item = (f64, f64, f64)>) -> Fit {
        for (x, y, w) in points {
            let error = (y - self.eval(x)).abs();
            self.max_error = self.max_error.max(error);
            let chebyshev = (y - self.eval_chebyshev(x)).abs();
            self.max_error_chebyshev = self.max_error_chebyshev.max(chebyshev);
            self.max_weighted_error = self.max_weighted_error.max(w * chebyshev);
        }
        self
    }
}

/// The polynomial of `degree` that minimises Σ w·(y − p(x))² over `points` (x, y, w); the interval is their range.
///
/// # Errors
/// [`MathError::InvalidFit`] if the degree is above [`MAX_DEGREE`], a number is not finite, a weight is negative, or
/// fewer than degree + 1 distinct points have weight.
pub fn least_squares_points(points: &[(f64, f64, f64)], degree: usize) -> Result<Fit, MathError> {
    let low = points.iter().fold(f64::INFINITY, |m, p| m.min(p.0));
    let high = points.iter().fold(f64::NEG_INFINITY, |m, p| m.max(p.0));
    let interval = Interval::new(degree, low, high)?;
    let coefficients = solve_points(interval, degree, points)?;
    Ok(Fit::new(interval, coefficients).measured(points.iter().map(|&(x, y, w)| (x, y, w.sqrt()))))
}

#[derive(Clone, Copy)]
struct Interval {
    low: f64,
    high: f64,
}

impl Interval {
    fn new(degree: usize, low: f64, high: f64) -> Result<Interval, MathError> {
        if degree > MAX_DEGREE || !low.is_finite() || !high.is_finite() || low >= high {
            return Err(MathError::InvalidFit { degree, low, high });
        }
        Ok(Interval { low, high })
    }

    /// Maps x to t in [−1, 1].
    fn to_unit(self, x: f64) -> f64 {
        (2.0 * x - self.low - self.high) / (self.high - self.low)
    }

    fn at(self, t: f64) -> f64 {
        // Exact at the ends, so that f is never evaluated outside.
        ((self.low + self.high) / 2.0 + (self.high - self.low) / 2.0 * t).clamp(self.low, self.high)
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

fn solve_points(interval: Interval, degree: usize, points: &[(f64, f64, f64)]) -> Result<Vec<f64>, MathError> {
    let Interval { low, high } = interval;
    let refused = MathError::InvalidFit { degree, low, high };
    let (mut rows, mut right) = (Vec::new(), Vec::new());
    for &(x, y, w) in points {
        if !(x.is_finite() && y.is_finite() && w.is_finite() && w >= 0.0) {
            return Err(refused);
        }
        let root = w.sqrt();
        let t = (2.0 * x - low - high) / (high - low);
        rows.push(chebyshev_row(degree, t).into_iter().map(|v| v * root).collect());
        right.push(y * root);
    }
    least_squares_solution(rows, right).ok_or(refused)
}

/// The x that minimises |A·x − b|, by Householder reflections; None if A lacks full column rank.
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
