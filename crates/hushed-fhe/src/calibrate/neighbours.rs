//! Whether the nearest neighbours of texts stay the same: a cosine to the exact answer is dominated by the largest
//! columns, and says little where all answers lie close together.

use hushed_model::cosine;

/// How much farther a neighbour may be than the nearest, relative to the distance between that and the mean of all: of
/// two that are about as near, either may be found.
const TIE: f64 = 0.1;

/// The least share of texts whose nearest neighbour must stay the same.
pub(super) const WANTED: f64 = 0.95;

/// The share of texts whose nearest other text by `found` is also nearest by `exact`, up to ties.
pub(super) fn agreement(exact: &[Vec<f64>], found: &[Option<Vec<f64>>]) -> f64 {
    let count = exact.len().min(found.len());
    // One other text is always the nearest.
    if count < 3 {
        return 1.0;
    }
    let others = |i: usize| (0..count).filter(move |&j| j != i);
    let agrees = |i: usize| {
        let near = |j: usize| exact.get(i).zip(exact.get(j)).map_or(0.0, |(a, b)| cosine(a, b));
        let seen = |j: usize| match (found.get(i), found.get(j)) {
            (Some(Some(a)), Some(Some(b))) => cosine(a, b),
            _ => f64::NEG_INFINITY,
        };
        let nearest = others(i).map(near).fold(f64::NEG_INFINITY, f64::max);
        let mean = others(i).map(near).sum::<f64>() / (count - 1) as f64;
        let chosen = others(i).max_by(|&a, &b| seen(a).total_cmp(&seen(b)));
        let there = found.get(i).is_some_and(Option::is_some);
        there && chosen.is_some_and(|j| near(j) >= nearest - TIE * (nearest - mean))
    };
    (0..count).filter(|&i| agrees(i)).count() as f64 / count as f64
}

/// The answers as a client keeps them: rounded to `bits` after the point.
pub(super) fn rounded(found: &mut [Option<Vec<f64>>], bits: u32) {
    let unit = (-f64::from(bits)).exp2();
    let numbers = found.iter_mut().flatten().flatten();
    numbers.for_each(|x| *x = (*x / unit).round() * unit);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One column of a thousand, others of one: rounding to 1 bit leaves every cosine above 0.9999 and changes the
    /// neighbours of a third of the texts.
    #[test]
    fn m5_neighbours_change_where_cosines_do_not() {
        let number = |i: usize, j: usize| ((i * 7919 + j * 104_729 + i * j * 31) % 997) as f64 / 498.5 - 1.0;
        let text = |large: f64| {
            move |i: usize| -> Vec<f64> {
                let column = |j: usize| {
                    if j == 0 { large + number(i, j) } else { number(i, j) }
                };
                (0..32).map(column).collect()
            }
        };
        for (large, lost) in [(0.0, false), (1000.0, true)] {
            let exact: Vec<Vec<f64>> = (0..60).map(text(large)).collect();
            let mut found: Vec<Option<Vec<f64>>> = exact.iter().cloned().map(Some).collect();
            assert_eq!(agreement(&exact, &found), 1.0);
            // A bound of 8192 leaves 1 bit, one of 1 leaves many.
            rounded(&mut found, if lost { 1 } else { 8 });
            let least = exact.iter().zip(&found).map(|(a, b)| cosine(a, b.as_ref().unwrap()));
            assert!(least.fold(1.0, f64::min) > 0.9999);
            assert_eq!(agreement(&exact, &found) < WANTED, lost, "{large}");
            found[7] = None;
            assert!(agreement(&exact, &found) < 1.0);
        }
        assert_eq!(agreement(&[vec![1.0], vec![-1.0]], &[None, None]), 1.0);
    }
}
