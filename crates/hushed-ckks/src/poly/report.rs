//! Properties of an approximation: interval, degree, error, cost.

use std::fmt;

use super::schedule::Cost;

/// Interval, degree, error and cost of an approximation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Approximation {
    /// What is approximated, and how.
    pub name: &'static str,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// Degree as a polynomial of the input.
    pub degree: usize,
    /// Largest relative error on the interval in exact arithmetic.
    pub error: f64,
    /// Products, relinearisations, multiples, levels.
    pub cost: Cost,
}

impl fmt::Display for Approximation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} on [{}, {}]: degree {}, relative error {:.3e}, {} levels, {} products, {} relinearisations",
            self.name,
            self.low,
            self.high,
            self.degree,
            self.error,
            self.cost.depth,
            self.cost.products,
            self.cost.relinearisations
        )
    }
}

/// The largest `error` over [low, high], by sampling, for smooth functions with at most a few dozen extrema.
pub(super) fn greatest(low: f64, high: f64, error: impl Fn(f64) -> f64) -> f64 {
    const SAMPLES: u32 = 20_000;
    // Half are evenly spaced, half dense at the lower end, where inverses bend.
    let at = |i: u32| {
        let u = f64::from(i) / f64::from(SAMPLES);
        [low + (high - low) * u, low + (high - low) * u.powi(4)]
    };
    let samples = (0..=SAMPLES).flat_map(at);
    samples.map(|x| error(x).abs()).fold(0.0, f64::max)
}
