//! Comparing two answers.

/// How close `found` is to `exact`: 1 − |found − exact|²/(2·`size`²). For vectors of length `size` this is their
/// cosine. It also sees lengths, which matter if a vector is a list of logits; a list of a single logit has no angle.
pub fn nearness(found: &[f64], exact: &[f64], size: f64) -> f64 {
    let apart = found.iter().zip(exact).map(|(a, b)| (a - b) * (a - b));
    1.0 - apart.sum::<f64>() / (2.0 * size * size)
}

/// Root of the sum of squares.
pub fn length(x: &[f64]) -> f64 {
    x.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// Cosine of the angle between two vectors with the same number of elements.
pub fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}
