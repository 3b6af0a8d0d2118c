//! Noise that hides the error of a decryption: nearly Gaussian, of any width up to 2^55, constant time.
//!
//! *Width.* Noise of deviation σ in each coefficient, added to an error e, is as noise alone up to a Kullback–Leibler divergence of
//! |e|²/(2σ²), where |e| is the Euclidean norm of all N coefficients together (Li, Micciancio, Schultz and Sorrell, CRYPTO 2022).
//! τ openings of s bits take σ² = 12·τ·2^s·|e|². With every slot's error within `reach` deviations of a part ([`crate::noise`]),
//! |e| is at most √N·reach times the deviation of a coefficient: at N = 2^16, 8 bits for the norm and 3.2 for the bound.
//!
//! *Shape.*
//! A binomial variable of 512 coins has deviation √128; the noise is Σ w_i·X_i for such X_i and weights 1 = w_0 < w_1 < …,
//! each at most about eight times the one before, so that every layer fills the gaps of the next (the smoothing parameter of Z for
//! 2^-40 is 3, and √(2π·128)/8 > 3; Gaussian convolution as in Micciancio and Walter, CRYPTO 2017). Its tails end at 22
//! deviations and its excess kurtosis is −0.004.

use hushed_math::rng::SecretRng;
use zeroize::Zeroizing;

use crate::ciphertext::Ciphertext;
use crate::noise::reach;
use crate::params::CkksParams;

/// Deviation of one layer: √(512/4).
const LAYER: f64 = 11.313_708_498_984_761;

/// Words of coins of one layer.
const WORDS: usize = 8;

/// Largest ratio of neighbouring weights.
const RATIO: f64 = 8.0;

/// Largest deviation: 22 deviations stay below 2^60.
const WIDEST: f64 = (1u64 << 55) as f64;

/// log2(√(12·τ·N)·2^(s/2)·reach): bits of precision that flooding costs in a ring of degree `n`.
pub(crate) fn cost_bits(n: usize, security: u32, decryptions: u64) -> f64 {
    let norm = 0.5 * (n as f64).log2() + reach(n / 2).log2();
    0.5 * (12.0 * decryptions.max(1) as f64).log2() + 0.5 * f64::from(security) + norm
}

/// One integer a coefficient, `cost` bits wider than a coefficient of the error that the ciphertext carries; `None` if that is too
/// wide.
pub(crate) fn sample(
    params: &CkksParams,
    ct: &Ciphertext,
    cost: f64,
) -> Option<Zeroizing<Vec<i64>>> {
    // The inverse of the slots' deviation: √(N·v/2)/scale.
    let deviation = ct.noise.deviation() * ct.scale.value() / (0.5 * params.n() as f64).sqrt();
    let weights = weights(deviation * cost.exp2())?;
    let mut rng = SecretRng::from_os("flooding");
    Some(draw(&mut rng, params.n(), &weights))
}

/// One integer a coefficient, such that each part of a slot has the deviation `slots` (or [`LAYER`] a coefficient, if that is more);
/// `None` if that is too wide.
pub(crate) fn noise(
    rng: &mut SecretRng,
    params: &CkksParams,
    slots: f64,
) -> Option<Zeroizing<Vec<i64>>> {
    let weights = weights(slots / (0.5 * params.n() as f64).sqrt())?;
    Some(draw(rng, params.n(), &weights))
}

/// Weights whose noise has at least this deviation.
fn weights(deviation: f64) -> Option<Vec<i64>> {
    if deviation.is_nan() || deviation >= WIDEST {
        return None;
    }
    let top = (deviation / LAYER).max(1.0);
    let layers = (top.log2() / RATIO.log2()).ceil() as i32;
    let ratio = top.powf(1.0 / f64::from(layers.max(1)));
    Some((0..=layers).map(|i| ratio.powi(i).ceil() as i64).collect())
}

fn draw(rng: &mut SecretRng, n: usize, weights: &[i64]) -> Zeroizing<Vec<i64>> {
    let mut out = Zeroizing::new(vec![0i64; n]);
    let mut coins = Zeroizing::new([0u64; WORDS]);
    for value in out.iter_mut() {
        for weight in weights {
            rng.fill_words(coins.as_mut_slice());
            let heads: u32 = coins.iter().map(|word| word.count_ones()).sum();
            *value += weight * (i64::from(heads) - 32 * WORDS as i64);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_noise_has_its_width_and_the_shape_of_a_gaussian() {
        for deviation in [3.0, 200.0, 1e6, 1e15] {
            let weights = weights(deviation).unwrap();
            let mut rng = SecretRng::insecure_from_seed(1);
            let n = 1 << 15;
            let values = draw(&mut rng, n, &weights);
            let moment =
                |k: i32| values.iter().map(|&x| (x as f64).powi(k)).sum::<f64>() / n as f64;
            let sigma = moment(2).sqrt();
            let expected = LAYER
                * weights
                    .iter()
                    .map(|&w| (w as f64).powi(2))
                    .sum::<f64>()
                    .sqrt();
            assert!((sigma / expected - 1.0).abs() < 0.02, "{sigma} {expected}");
            assert!(
                expected >= deviation.max(LAYER) && expected < 1.2 * deviation.max(LAYER) + 12.0
            );
            // Sampling error of the fourth moment: √(96/n) of 3σ⁴/3.
            assert!((moment(4) / sigma.powi(4) - 3.0).abs() < 0.35);
            assert!(moment(1).abs() < 6.0 * sigma / (n as f64).sqrt());
        }
        assert!(weights(1e17).is_none() && weights(f64::INFINITY).is_none());
        assert!(weights(f64::NAN).is_none());
    }

    /// √(12·τ)·2^(s/2) of the norm of all coefficients together, with a margin for the largest.
    #[test]
    fn costs_are_the_published_ones_for_the_whole_error() {
        for (s, tau, bits) in [(30, 1, 16.8), (30, 1 << 10, 21.8), (64, 1 << 20, 43.8)] {
            for (n, norm, margin) in [(1 << 10, 5.0, 2.66), (1 << 16, 8.0, 3.21)] {
                let found = cost_bits(n, s, tau);
                assert!((found - bits - norm - margin).abs() < 0.05, "{found}");
            }
        }
    }
}
