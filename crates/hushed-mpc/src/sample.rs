//! Noise that turns the argmax of the logits into a draw: the server's secret, which the client never sees.

use hushed_math::rng::SecretRng;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::formats::LOGIT;

/// The highest temperature: noise of at most 36.8 times this ([`Draw::noise`]) stays well inside [`LOGIT`].
pub const MAX_TEMPERATURE: f64 = 2.0;
/// The largest noise.
pub(crate) const MAX_NOISE: f64 = 36.8 * MAX_TEMPERATURE;

/// A server's source of noise. No `Debug`: it is secret.
pub struct Sampler {
    secret: Zeroizing<[u8; 32]>,
}

/// A token to draw, or one per row. The client chooses temperature and seed; the position is the row that the (first)
/// token follows.
pub struct Draw<'a> {
    sampler: &'a Sampler,
    temperature: f64,
    seed: u64,
    position: u64,
}

impl Sampler {
    /// A fresh secret.
    pub fn from_os() -> Sampler {
        let mut secret = Zeroizing::new([0; 32]);
        SecretRng::from_os("hushed gumbel noise").fill_bytes(&mut *secret);
        Sampler { secret }
    }

    /// The draw of one token at a temperature from 0, which means no noise, to [`MAX_TEMPERATURE`]; others are clamped.
    pub fn draw(&self, temperature: f64, seed: u64, position: usize) -> Draw<'_> {
        Draw {
            sampler: self,
            temperature: match temperature.is_nan() {
                true => 0.0,
                false => temperature.clamp(0.0, MAX_TEMPERATURE),
            },
            seed,
            position: position as u64,
        }
    }
}

impl Draw<'_> {
    /// The noise for `tokens` logits after each of `rows` rows, row after row, in units of 2^−12. It is secret.
    #[must_use]
    pub fn noise_of_rows(&self, rows: usize, tokens: usize) -> Vec<i64> {
        let draw = |position| Draw { position, ..*self };
        let positions = (0..rows as u64).map(|row| self.position + row);
        positions.flat_map(|position| draw(position).noise(tokens)).collect()
    }

    /// T·G for each token in [`LOGIT`], G = −ln(−ln u) with u uniform in (0, 1) from ChaCha20(SHA-256("hushed gumbel
    /// noise 1" ‖ secret ‖ seed ‖ temperature ‖ position)). The last three determine the noise, so that a client can
    /// repeat a text.
    ///
    /// u is an odd multiple of 2^−53, so −3.61 < G < 36.8. Rounding the noise and the logits to 2^−12 moves their sum
    /// by at most 2^−11: a token's probability is within a factor of e^(±2^−10/T) of the exact one.
    fn noise(&self, tokens: usize) -> Vec<i64> {
        let hash = Sha256::new()
            .chain_update(b"hushed gumbel noise 1")
            .chain_update(*self.sampler.secret)
            .chain_update(self.seed.to_le_bytes())
            .chain_update(self.temperature.to_le_bytes())
            .chain_update(self.position.to_le_bytes());
        let key = Zeroizing::new(hash.finalize().into());
        let mut rng = SecretRng::from_secret(&key, "hushed gumbel noise");
        let mut words = Zeroizing::new(vec![0; tokens]);
        rng.fill_words(&mut words);
        let noise = words.iter().map(|&w| self.temperature * gumbel(w));
        let unit = f64::from(1u32 << LOGIT.frac);
        noise.map(|g| nearest(g * unit)).collect()
    }
}

/// −ln(−ln u) for u = (2·⌊w/2^12⌋ + 1)/2^53, which is exact in f64.
fn gumbel(word: u64) -> f64 {
    let u = ((word >> 12) as i64 as f64 + 0.5) / (1u64 << 52) as f64;
    -ln(-ln(u))
}

/// The natural logarithm of a positive normal number, to a relative 2^−39, without the branches and tables of a
/// library's, because the noise is secret. x = m·2^e with m from √½ to √2, and ln m = 2·artanh(s) for s = (m − 1)/(m +
/// 1), where |s| < 0.172.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let e = (bits.wrapping_sub(std::f64::consts::FRAC_1_SQRT_2.to_bits()) as i64) >> 52;
    let m = f64::from_bits(bits.wrapping_sub((e as u64) << 52));
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let terms = [13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0];
    let series = terms.iter().fold(0.0, |sum, n| sum * z + 1.0 / n);
    e as f64 * std::f64::consts::LN_2 + 2.0 * s * series
}

/// The nearest integer for |x| < 2^50, by adding a constant that leaves no room for a fraction.
fn nearest(x: f64) -> i64 {
    const SHIFT: f64 = 1.5 * (1u64 << 52) as f64;
    (x + SHIFT).to_bits().wrapping_sub(SHIFT.to_bits()) as i64
}

#[cfg(test)]
mod tests {
    use hushed_twopc::testing::share;

    use super::*;
    use crate::shares::Shares;
    use crate::testing::run_pair;

    /// Makes tests repeatable.
    fn fixed() -> Sampler {
        Sampler { secret: Zeroizing::new([7; 32]) }
    }

    #[test]
    fn logarithms_and_roundings() {
        for x in [1e-300, 0.1, 0.5, 0.707, 0.7072, 0.999_999, 1.0, 1.414, 36.7, 1e300] {
            assert!((ln(x) - x.ln()).abs() <= 2e-12 * x.ln().abs(), "{x}");
        }
        let close = 1.0 - f64::EPSILON / 2.0;
        assert!((ln(close) / close.ln() - 1.0).abs() < 2e-12);
        for x in [0.0, 0.49, 0.51, -0.51, -3.6 * 4096.0, 1e9 + 0.3] {
            assert_eq!(nearest(x), x.round() as i64);
        }
    }

    /// 10^5 draws from 16 logits, as the rows of one protocol, against softmax: χ² with 15 degrees of freedom exceeds
    /// 44.3 once in 10^4 times.
    #[test]
    fn draws_are_from_softmax() {
        const DRAWS: usize = 100_000;
        let temperature = 0.8;
        let logits: Vec<f64> = (0..16).map(|i| f64::from(i % 5) * 0.7 - 40.0).collect();
        let sampler = fixed();
        let mut words = Vec::with_capacity(DRAWS * logits.len());
        for position in 0..DRAWS {
            let noise = sampler.draw(temperature, 5, position).noise(logits.len());
            let row = logits.iter().zip(noise);
            words.extend(row.map(|(l, g)| LOGIT.ring.encode(LOGIT.signed(*l) + g)));
        }
        let (x, y) = share(LOGIT.ring, &words, 3);
        let largest = |party: &mut crate::Protocol, x| {
            let mut levels = party.tournament(x, DRAWS, logits.len()).unwrap();
            let [_, places] = levels.pop().unwrap();
            places
        };
        let (client, server) = run_pair(|party| largest(party, &x), |party| largest(party, &y));
        let mut counts = [0.0f64; 16];
        for &place in client.add(&server).words() {
            counts[place as usize] += 1.0;
        }
        let weights: Vec<f64> = logits.iter().map(|l| (l / temperature).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let expected = weights.iter().map(|w| w / sum * DRAWS as f64);
        let chi = counts.iter().zip(expected).map(|(c, e)| (c - e).powi(2) / e);
        let chi: f64 = chi.sum();
        assert!(chi < 44.3, "χ² = {chi}");
    }

    #[test]
    fn the_noise_stays_in_its_range_and_follows_its_inputs() {
        assert!(gumbel(0) > -3.61 && gumbel(u64::MAX) < 36.8);
        let sampler = fixed();
        let noise = |seed, position| sampler.draw(1.0, seed, position).noise(1000);
        assert_eq!(noise(1, 2), noise(1, 2));
        assert_ne!(noise(1, 2), noise(2, 2));
        assert_ne!(noise(1, 2), noise(1, 3));
        assert_ne!(noise(1, 2), Sampler::from_os().draw(1.0, 1, 2).noise(1000));
        assert_eq!(sampler.draw(f64::NAN, 1, 2).noise(9), [0; 9]);
        // A row has the noise of its position, whatever rows it is run with.
        let rows = sampler.draw(1.0, 1, 2).noise_of_rows(2, 1000);
        assert_eq!(rows, [noise(1, 2), noise(1, 3)].concat());
        // The mean of a Gumbel variable is Euler's constant, its variance π²/6.
        let all = sampler.draw(1.0, 7, 0).noise(1 << 18);
        let all: Vec<f64> = all.iter().map(|&g| g as f64 / 4096.0).collect();
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        let variance = all.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / all.len() as f64;
        assert!((mean - 0.577_216).abs() < 0.02, "{mean}");
        assert!((variance - 1.644_934).abs() < 0.05, "{variance}");
    }
}
