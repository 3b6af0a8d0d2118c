//! Remez' second algorithm on a union of intervals (all extrema exchanged at once; Cheney, *Introduction to
//! Approximation Theory*, ch. 3). The theory asks of the set only that it is compact, so gaps between the pieces cost
//! nothing: where nothing is asked of the polynomial it is free, and the error elsewhere is the lower for it.

use super::{Fit, Interval, chebyshev_row, clenshaw, least_squares_solution};
use crate::error::MathError;

/// Remez converges quadratically: a dozen exchanges are many.
const MAX_EXCHANGES: usize = 60;

/// Least points of a piece, however narrow: its ends, and enough between them to see an extremum.
const PIECE_POINTS: usize = 9;

/// The polynomial of `degree` with least greatest `weight(x)·|f(x) − p(x)|` on [low, high]; for the plain error give
/// `|_| 1.0`.
///
/// # Errors
/// [`MathError::InvalidFit`] if the interval is empty, the degree above [`super::MAX_DEGREE`], or a value not finite or
/// a weight not positive.
pub fn minimax(
    f: impl Fn(f64) -> f64,
    weight: impl Fn(f64) -> f64,
    degree: usize,
    low: f64,
    high: f64,
) -> Result<Fit, MathError> {
    minimax_over(f, weight, degree, (low, high), &[(low, high)])
}

/// The polynomial of `degree` with least greatest `weight(x)·|f(x) − p(x)|` over `pieces`, intervals in ascending order
/// inside `hull`. The hull is what the Chebyshev form is mapped from; f and weight are asked on the pieces only, and
/// the errors are those on the pieces.
///
/// # Errors
/// As [`minimax`]; also if the pieces are not ascending, or reach out of the hull.
pub fn minimax_over(
    f: impl Fn(f64) -> f64,
    weight: impl Fn(f64) -> f64,
    degree: usize,
    hull: (f64, f64),
    pieces: &[(f64, f64)],
) -> Result<Fit, MathError> {
    let interval = Interval::new(degree, hull.0, hull.1)?;
    let refused = MathError::InvalidFit {
        degree,
        low: hull.0,
        high: hull.1,
    };
    if !ascending(hull, pieces) {
        return Err(refused);
    }
    // 256 points between two extrema on average, so that the greatest error on the grid is within (π/512)²/2 < 2·10^−5
    // of the greatest at all.
    let grid: Vec<Point> = points(interval, pieces, 256 * (degree + 1))
        .map(|x| Point {
            t: interval.to_unit(x),
            y: f(x),
            w: weight(x),
        })
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
    let (_, coefficients) = best.ok_or(refused)?;
    // Measured on another grid, not in step with the one that was fitted on.
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

/// Points of the pieces, spaced as the cosine of the hull spaces `across` intervals: dense where extrema are.
pub(super) fn points(
    interval: Interval,
    pieces: &[(f64, f64)],
    across: usize,
) -> impl Iterator<Item = f64> + '_ {
    let angle = move |x: f64| (-interval.to_unit(x)).clamp(-1.0, 1.0).acos();
    pieces.iter().flat_map(move |&(low, high)| {
        let (from, to) = (angle(low), angle(high));
        let share = (to - from) / std::f64::consts::PI;
        let last = (share * across as f64).round() as usize;
        let last = last.max(PIECE_POINTS - 1);
        (0..=last).map(move |i| {
            // The ends exactly, so that f is never asked outside.
            let at = from + (to - from) * i as f64 / last as f64;
            interval.at(-at.cos()).clamp(low, high)
        })
    })
}

/// The points nearest to the extrema of T_(count − 1): for one interval the first polynomial is then already near the
/// best. None if there are fewer points.
fn first_reference(grid: &[Point], count: usize) -> Option<Vec<usize>> {
    let mut reference = Vec::with_capacity(count);
    let mut from = 0;
    for i in 0..count {
        let wanted = -(std::f64::consts::PI * i as f64 / (count - 1) as f64).cos();
        // As many points must be left as extrema are.
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
