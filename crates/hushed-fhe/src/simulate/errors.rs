//! The errors of a simulation: normal numbers drawn from a seed, the history of a vector and the slot, so they do not
//! depend on the order of threads. They model a run; none of them is secret.
//!
//! *Rescale* (as in [`hushed_ckks::poly::Clear`], for the real part of a slot): r_b + r_a·s, of deviation √(N/24)·√(1 +
//! (2N/3)·|κ|²) over the scale, where κ, complex normal of variance 1, is the secret's value in the slot over its
//! deviation. It is the same for every rescale, so some slots have three times the mean error.
//!
//! *Rotation, conjugation*: the same, at the scale of the vector. Division by the special primes leaves little of the
//! noise of keys, and rounds as a rescale does (measured at N = 2^16, at all levels: both have deviation 2^13.4 over
//! the scale).
//!
//! *Encoded factors*: only rounding, √(N/24) over their scale, as for slots that all differ; factors with equal slots
//! have smaller errors.
//!
//! *Refresh*: a normal error with the deviation measured for bootstraps, distributed over the slots as that of a
//! rescale, and the error of the sine of the modular reduction: v·c·(3/4 − v²), c = (2π/1024)²/6.

use hushed_math::rng::splitmix::split;

/// (2π/ρ)²/6 at q0/scale = ρ = 2^10.
const BEND: f64 = 6.275_2e-6;

pub(super) struct Errors {
    seed: u64,
    /// √(N/24).
    rounding: f64,
    /// √(1 + (2N/3)·|κ|²) of each slot.
    spread: Vec<f64>,
    /// Root mean square of `spread`.
    mean_spread: f64,
}

impl Errors {
    /// For ring degree `n`.
    pub(super) fn new(seed: u64, n: usize, slots: usize) -> Errors {
        let n = n as f64;
        let secret = 2.0 * n / 3.0;
        let part = |i: usize| normal(mix(seed, i as u64)).powi(2) / 2.0;
        let modulus = |slot: usize| part(2 * slot) + part(2 * slot + 1);
        Errors {
            seed,
            rounding: (n / 24.0).sqrt(),
            spread: (0..slots).map(|slot| (1.0 + secret * modulus(slot)).sqrt()).collect(),
            mean_spread: (1.0 + secret).sqrt(),
        }
    }

    /// Adds the error of a rescale to scale `scale`, or of a key switch at it.
    pub(super) fn rescale(&self, slots: &mut [f64], id: u64, scale: f64) {
        self.add(slots, id, self.rounding / scale);
    }

    /// Adds the error of numbers encoded at scale `scale`.
    pub(super) fn encoding(&self, slots: &mut [f64], id: u64, scale: f64) {
        let stream = mix(self.seed, id);
        for (i, v) in slots.iter_mut().enumerate() {
            *v += self.rounding / scale * normal(stream.wrapping_add(i as u64));
        }
    }

    /// Adds the errors of a refresh of messages within `bound`; `deviation` is for messages within 1.
    pub(super) fn refresh(&self, slots: &mut [f64], id: u64, bound: f64, deviation: f64) {
        for v in slots.iter_mut() {
            let part = *v / bound;
            *v += *v * BEND * (0.75 - part * part);
        }
        self.add(slots, id, bound * deviation / self.mean_spread);
    }

    fn add(&self, slots: &mut [f64], id: u64, unit: f64) {
        let stream = mix(self.seed, id);
        for (i, (v, spread)) in slots.iter_mut().zip(&self.spread).enumerate() {
            *v += unit * spread * normal(stream.wrapping_add(i as u64));
        }
    }
}

/// Mixes two numbers into one, by SplitMix64.
pub(super) fn mix(a: u64, b: u64) -> u64 {
    split(a ^ split(b))
}

/// The identity of an input, from its contents.
pub(super) fn name(values: &[f64]) -> u64 {
    values.iter().fold(values.len() as u64, |h, v| mix(h, v.to_bits()))
}

/// A nearly standard normal number: the sum of 64 coin flips and a uniform number, with variance 16 + 1/12. Its fourth
/// moment is 1 % below that of a normal number, and it is an order of magnitude faster than with logarithms.
fn normal(x: u64) -> f64 {
    let (coins, between) = (split(x), split(!x));
    let uniform = (between >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
    (f64::from(coins.count_ones()) - 32.0 + uniform) / 4.010_403_8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_size_of_a_rescale_and_only_their_history_decides() {
        let errors = Errors::new(3, 1 << 16, 4096);
        let mut slots = vec![0.0; 4096];
        errors.rescale(&mut slots, 1, 1.0);
        let variance = slots.iter().map(|v| v * v).sum::<f64>() / 4096.0;
        // √(N/24)·√(2N/3) = 2^13.4.
        assert!((variance.sqrt().log2() - 13.42).abs() < 0.1);
        let mut again = vec![0.0; 4096];
        errors.rescale(&mut again, 1, 1.0);
        assert_eq!(slots, again);
        errors.rescale(&mut again, 2, 1.0);
        assert!(slots.iter().zip(&again).all(|(a, b)| a != b));
    }
}
