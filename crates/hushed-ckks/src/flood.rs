//! Noise that hides the error of a decryption: nearly Gaussian, any width up to 2^55, sampled in constant time.
//!
//! *Width.* Noise of deviation σ in each coefficient, added to an error e, is indistinguishable from noise alone up to
//! a Kullback–Leibler divergence of |e|²/(2σ²), where |e| is the Euclidean norm of all N coefficients (Li, Micciancio,
//! Schultz and Sorrell, CRYPTO 2022). τ openings at s bits of security need σ² = 12·τ·2^s·|e|². For |e| we take the
//! bound that the ciphertext carries ([`crate::Noise::norm`]), which holds for every circuit of the engine's
//! operations. The estimate for independent errors does not: after ninety doublings of a ciphertext the error is 2^90
//! times as large and the estimate 2^45 times, so one decryption would reveal the rest of the error, and with it the
//! key.
//!
//! *Shape.* A binomial variable of 512 coins has deviation √128. The noise is Σ w_i·X_i for such X_i and weights 1 =
//! w_0 < w_1 < …, each at most about eight times the previous one, so that every layer fills the gaps of the next (the
//! smoothing parameter of Z for 2^-40 is 3, and √(2π·128)/8 > 3; Gaussian convolution as in Micciancio and Walter,
//! CRYPTO 2017). Its tails end at 22 deviations and its excess kurtosis is −0.004.

use hushed_math::rng::SecretRng;
use zeroize::Zeroizing;

use crate::ciphertext::Ciphertext;
use crate::error::CkksError;
use crate::noise::reach;
use crate::params::CkksParams;

/// Deviation of one layer: √(512/4).
const LAYER: f64 = 11.313_708_498_984_761;

/// Words of coins per layer.
const WORDS: usize = 8;

/// Largest ratio of consecutive weights.
const RATIO: f64 = 8.0;

/// The fewest bits of security: with fewer, a few thousand openings would show the error.
pub(crate) const LEAST_SECURITY: u32 = 20;

/// Largest deviation: 22 deviations stay below 2^60.
const WIDEST: f64 = (1u64 << 55) as f64;

/// √(12·τ)·2^(s/2): the deviation of the noise in each coefficient, divided by the norm of the whole error.
fn factor(security: u32, decryptions: u64) -> f64 {
    (12.0 * decryptions.max(1) as f64).sqrt() * (0.5 * f64::from(security)).exp2()
}

/// The noise for one opening.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flood {
    /// Deviation in each coefficient.
    deviation: f64,
    /// Bits after the binary point left at the worst slot.
    pub(crate) left: f64,
    /// Bits lost to flooding, by the error estimate.
    pub(crate) cost: f64,
}

impl Flood {
    /// Noise for the error of a ciphertext.
    ///
    /// # Errors
    /// [`CkksError::FloodingTooWeak`] below [`LEAST_SECURITY`], [`CkksError::UnknownError`] if it carries no bound,
    /// [`CkksError::ErrorOutgrown`] if the bound has reached the modulus, [`CkksError::FloodingTooLarge`] if the noise
    /// leaves nothing or is too wide to draw.
    pub(crate) fn new(
        params: &CkksParams,
        ct: &Ciphertext,
        security: u32,
        decryptions: u64,
    ) -> Result<Self, CkksError> {
        if security < LEAST_SECURITY {
            return Err(CkksError::FloodingTooWeak { security, least: LEAST_SECURITY });
        }
        let (norm, n) = (ct.noise.norm(), params.n());
        let certified = ct.noise.min_bits(params.slots());
        let (Some(certified), true) = (certified, norm.is_finite()) else {
            return Err(CkksError::UnknownError { operation: "flooded decryption" });
        };
        let error_bits = norm.log2() + ct.scale.log2();
        let modulus_bits = params.rlwe().log2_q(ct.limbs());
        // Half the modulus: beyond it the integer wraps around.
        if error_bits >= modulus_bits - 1.0 {
            return Err(CkksError::ErrorOutgrown { error_bits, modulus_bits });
        }
        let deviation = factor(security, decryptions) * norm * ct.scale.value();
        // Deviation of each part of a slot, as for the errors it replaces.
        let slots = deviation * (0.5 * n as f64).sqrt() / ct.scale.value();
        let left = -(slots * reach(params.slots())).log2();
        // An exact ciphertext has no bits to lose.
        let cost = if left.is_finite() { certified - left } else { 0.0 };
        if left < 1.0 || deviation >= WIDEST {
            return Err(CkksError::FloodingTooLarge { cost_bits: cost, left_bits: left });
        }
        Ok(Self { deviation, left, cost })
    }

    /// One integer per coefficient; `None` if the noise is too wide.
    pub(crate) fn sample(&self, params: &CkksParams) -> Option<Zeroizing<Vec<i64>>> {
        let weights = weights(self.deviation)?;
        let mut rng = SecretRng::from_os("flooding");
        Some(draw(&mut rng, params.n(), &weights))
    }
}

/// A bound, in integers, on the norm of [`noise`] with this deviation in each part of a slot. Rounding the weights up
/// makes the noise at most 1.2 times as wide plus 12, and the norm of N draws is within √2 of its mean.
pub(crate) fn noise_norm(params: &CkksParams, slots: f64) -> f64 {
    let coefficient = slots / (0.5 * params.n() as f64).sqrt();
    let most = 1.2 * coefficient.max(LAYER) + 12.0;
    most * (2.0 * params.n() as f64).sqrt()
}

/// One integer per coefficient, such that each part of a slot has deviation `slots` (or each coefficient [`LAYER`], if
/// that is more); `None` if that is too wide.
pub(crate) fn noise(rng: &mut SecretRng, params: &CkksParams, slots: f64) -> Option<Zeroizing<Vec<i64>>> {
    let weights = weights(slots / (0.5 * params.n() as f64).sqrt())?;
    Some(draw(rng, params.n(), &weights))
}

/// Weights for noise of at least this deviation.
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
            let moment = |k: i32| values.iter().map(|&x| (x as f64).powi(k)).sum::<f64>() / n as f64;
            let sigma = moment(2).sqrt();
            let expected = LAYER * weights.iter().map(|&w| (w as f64).powi(2)).sum::<f64>().sqrt();
            assert!((sigma / expected - 1.0).abs() < 0.02, "{sigma} {expected}");
            assert!(expected >= deviation.max(LAYER) && expected < 1.2 * deviation.max(LAYER) + 12.0);
            // Sampling error of the fourth moment, √(96/n), relative to 3σ⁴/3.
            assert!((moment(4) / sigma.powi(4) - 3.0).abs() < 0.35);
            assert!(moment(1).abs() < 6.0 * sigma / (n as f64).sqrt());
        }
        assert!(weights(1e17).is_none() && weights(f64::INFINITY).is_none());
        assert!(weights(f64::NAN).is_none());
    }

    #[test]
    fn the_factor_is_the_published_one() {
        for (s, tau, bits) in [(30, 1, 16.8), (30, 1 << 10, 21.8), (64, 1 << 20, 43.8)] {
            let found = factor(s, tau).log2();
            assert!((found - bits).abs() < 0.05, "{found}");
        }
    }
}
