//! Remez' second algorithm on a union of intervals (all extrema exchanged at once; Cheney, *Introduction to
//! Approximation Theory*, ch. 3). The theory only requires a compact set, so gaps between the pieces cost nothing: the
//! polynomial is free there, which lowers the error elsewhere.

use super::{Fit, Interval, chebyshev_row, clenshaw, least_squares_solution};
use crate::error::MathError;

/// Remez converges quadratically: a dozen exchanges are many.
const MAX_EXCHANGES: usize = 60;

/// Minimum number of points per piece, however narrow: its ends, and enough between them to see an extremum.
const PIECE_POINTS: usize = 9;

/// The polynomial of `degree` that minimises the largest `weight(x)·|f(x) − p(x)|` on [low, high]; pass `|_| 1.0` for
/// the plain error.
///
/// # Errors
/// [`MathError::InvalidFit`] if the interval is empty, the degree is above [`super::MAX_DEGREE`], a value is not finite
/// or a weight is not positive.
pub fn minimax(
    f: impl Fn(f64) -> f64,
    weight: impl Fn(f64) -> f64,
    degree: usize,
    low: f64,
    high: f64,
) -> Result<Fit, MathError> {
    minimax_over(f, weight, degree, (low, high), &[(low, high)])
}

/// The polynomial of `degree` that minimises the largest `weight(x)·|f(x) − p(x)|` over `pieces`, intervals in
/// ascending order inside `hull`. The Chebyshev form is that of the hull; f and weight are evaluated on the pieces
/// only, and the errors are those on the pieces.
///
/// # Errors
/// As [`minimax`]; also if the pieces are not ascending or extend beyond the hull.
pub fn minimax_over(
    f: impl Fn(f64) -> f64,
    weight: impl Fn(f64) -> f64,
    degree: usize,
    hull: (f64, f64),
    pieces: &[(f64, f64)],
) -> Result<Fit, MathError> {
    let interval = Interval::new(degree, hull.0, hull.1)?;
    let refused = MathError::InvalidFit { degree, low: hull.0, high: hull.1 };
    if !ascending(hull, pieces) {
        return Err(refused);
    }
    // 256 points between two extrema on average, so that the largest error on the grid is within (π/512)²/2 < 2·10^−5
    // of the largest of all.
    let grid: Vec<Point> = points(interval, pieces, 256 * (degree + 1))
        .map(|x| Point { t: interval.to_unit(x), y: f(x), w: weight(x) })
        .collect();
    let sound = |p: &Point| p.y.is_finite() && p.w.is_finite() && p.w > 0.0;
    if !grid.iter().all(sound) {
        return Err(refused);
    }
    let mut reference = first_reference(&grid, degree + 2).ok_or(refused)?;
    let mut best: Option<(f64, Vec<f64>)> = None;
    for _ in 0..MAX_EXCHANGES {
        let Some((coefficients, level)) = level_error(&grid, &reference) else {
            break;
        };
        let errors: Vec<f64> = grid.iter().map(|p| p.w * (p.y - clenshaw(&coefficients, p.t))).collect();
        let greatest = errors.iter().fold(0.0_f64, |m, e| m.max(e.abs()));
        if best.as_ref().is_none_or(|(least, _)| greatest < *least) {
            best = Some((greatest, coefficients));
        }
        // De la Vallée Poussin: the level is a lower bound on the least error, and the largest error an upper bound.
        if greatest <= level.abs() * (1.0 + 1e-9) {
            break;
        }
        match exchange(&errors, reference.len()) {
            Some(next) if next != reference => reference = next,
            _ => break,
        }
    }
    let (_, coefficients) = best.ok_or(refused)?;
    // Measured on another grid, out of step with the one used for fitting.
    let check = points(interval, pieces, 1009 * (degree + 1)).map(|x| (x, f(x), weight(x)));
    Ok(Fit::new(interval, coefficients).measured(check))
}

/// A point of the grid: t in [−1, 1], f and the weight there.
struct Point {
    t: f64,
    y: f64,
    w: f64,
}

fn ascending(hull: (f64, f64), pieces: &[(f64, f64)]) -> bool {
    let ends = pieces.iter().flat_map(|p| [p.0, p.1]);
    let all: Vec<f64> = [hull.0].into_iter().chain(ends).chain([hull.1]).collect();
    // Not `>`: a NaN is refused too. A piece may be a single point.
    !pieces.is_empty() && all.windows(2).all(|w| w[0] <= w[1])
}

/// Points of the pieces, spaced like `across` intervals of the hull under the cosine: dense where the extrema are.
fn points(interval: Interval, pieces: &[(f64, f64)], across: usize) -> impl Iterator<Item = f64> + '_ {
    let angle = move |x: f64| (-interval.to_unit(x)).clamp(-1.0, 1.0).acos();
    pieces.iter().flat_map(move |&(low, high)| {
        let (from, to) = (angle(low), angle(high));
        let share = (to - from) / std::f64::consts::PI;
        let last = (share * across as f64).round() as usize;
        let last = last.max(PIECE_POINTS - 1);
        (0..=last).map(move |i| {
            // Exact at the ends, so that f is never evaluated outside.
            let at = from + (to - from) * i as f64 / last as f64;
            interval.at(-at.cos()).clamp(low, high)
        })
    })
}

/// The points nearest to the extrema of T_(count − 1): on a single interval the first polynomial is then already close
/// to the best. None if there are too few points.
fn first_reference(grid: &[Point], count: usize) -> Option<Vec<usize>> {
    let mut reference = Vec::with_capacity(count);
    let mut from = 0;
    for i in 0..count {
        let wanted = -(std::f64::consts::PI * i as f64 / (count - 1) as f64).cos();
        // As many points must be left as there are extrema to come.
        let last = grid.len().checked_sub(count - i)?;
        let near = grid.partition_point(|p| p.t < wanted);
        let below = near.saturating_sub(1);
        let nearest = match (grid.get(below), grid.get(near)) {
            (Some(a), Some(b)) if wanted - a.t > b.t - wanted => near,
            _ => below,
        };
        let chosen = nearest.clamp(from, last.max(from));
        reference.push(chosen);
        from = chosen + 1;
    }
    (from <= grid.len()).then_some(reference)
}

/// The polynomial whose weighted error alternates between ±level on the reference, and that level.
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

/// `count` extrema of alternating sign: the largest of each run of one sign, without the smaller ones at the ends. None
/// if the error has fewer runs, which rounding causes when f is itself a polynomial of that degree.
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
        let (first, last) = (errors[extrema[0]].abs(), errors[extrema[extrema.len() - 1]].abs());
        // Removing ends one at a time keeps the signs alternating.
        if first < last {
            extrema.remove(0);
        } else {
            extrema.pop();
        }
    }
    (extrema.len() == count).then_some(extrema)
}
