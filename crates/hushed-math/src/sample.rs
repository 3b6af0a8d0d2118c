//! Distributions of secrets and noise, sampled in constant time in the values drawn.
//!
//! | function | distribution | bytes per sample |
//! |---|---|---|
//! | [`ternary`] | uniform on {−1, 0, 1}, exactly | 1, plus more for each rejection |
//! | [`sparse_ternary`] | a fixed number of ±1 at uniform places | 8 per nonzero value, plus more for each rejection |
//! | [`centred_binomial`] | difference of two sums of 21 coins: σ = √10.5 ≈ 3.24, within ±21 | 8 |
//! | [`uniform`] | uniform on [0, q), exactly | 8, plus more for each rejection |
//!
//! σ ≈ 3.24 is at least the 3.19 of the homomorphic encryption standard's tables.

use crate::modulus::Modulus;
use crate::rng::SecretRng;
use crate::taint;
use zeroize::Zeroizing;

/// Coins on each side of [`centred_binomial`].
const COINS: u32 = 21;

/// `n` independent values of {−1, 0, 1}: each is given by the third of 0..255 into which a byte falls. The byte 255 is
/// redrawn; how often is independent of the values kept.
pub fn ternary(rng: &mut SecretRng, n: usize) -> Zeroizing<Vec<i64>> {
    let mut out = Zeroizing::new(vec![0; n]);
    let mut bytes = Zeroizing::new([0; 512]);
    let mut done = 0;
    while done < n {
        let bytes = &mut bytes[..(n - done).min(512)];
        rng.fill_bytes(bytes);
        let rest = &mut out[done..];
        let mut kept = 0;
        for &mut byte in bytes {
            rest[kept] = i64::from(byte >= 85) + i64::from(byte >= 170) - 1;
            kept += taint::opened(usize::from(byte != 255));
        }
        done += kept;
    }
    out
}

/// `n` values, of which `weight`, chosen uniformly, are ±1 with even odds and all others 0. n is a power of two.
///
/// The places are drawn together and redrawn while two are equal, which reveals nothing about the places kept; then
/// every value is compared with every place.
///
/// # Panics
/// If n is not a power of two, or if `weight` is above n/8, where redrawing would take long.
pub fn sparse_ternary(rng: &mut SecretRng, n: usize, weight: usize) -> Zeroizing<Vec<i64>> {
    assert!(n.is_power_of_two() && weight <= n / 8, "few of 2^k places");
    let mut words = Zeroizing::new(vec![0_u64; weight]);
    let mask = n as u64 - 1;
    loop {
        rng.fill_words(&mut words);
        let repeats = |(i, word): (usize, &u64)| {
            let same = |other: &u64| u64::from((other ^ word) & mask == 0);
            words[..i].iter().map(same).sum::<u64>()
        };
        if taint::opened(words.iter().enumerate().map(repeats).sum::<u64>()) == 0 {
            break;
        }
    }
    let mut out = Zeroizing::new(vec![0; n]);
    for word in words.iter() {
        let (place, sign) = (word & mask, (word >> 62 & 2) as i64 - 1);
        for (i, value) in (0..).zip(out.iter_mut()) {
            let difference: u64 = i ^ place;
            // All ones where the difference is 0.
            let hit = (difference.wrapping_sub(1) & !difference) as i64 >> 63;
            *value |= sign & hit;
        }
    }
    out
}

/// `n` independent values of the centred binomial distribution of 42 coins.
pub fn centred_binomial(rng: &mut SecretRng, n: usize) -> Zeroizing<Vec<i64>> {
    const MASK: u64 = (1 << COINS) - 1;
    map_words(rng, n, |word| {
        let plus = (word & MASK).count_ones();
        let minus = ((word >> COINS) & MASK).count_ones();
        i64::from(plus) - i64::from(minus)
    })
}

/// Fills `out` with uniform secret residues. Rejected words are redrawn; their number is independent of the residues
/// kept.
pub fn uniform(rng: &mut SecretRng, modulus: &Modulus, out: &mut [u64]) {
    let (q, mask) = (modulus.value(), (1 << modulus.bits()) - 1);
    let mut done = 0;
    while done < out.len() {
        let mut words = Zeroizing::new([0; 64]);
        let words = &mut words[..(out.len() - done).min(64)];
        rng.fill_words(words);
        let rest = &mut out[done..];
        let mut kept = 0;
        for word in words {
            let candidate = *word & mask;
            rest[kept] = candidate;
            kept += taint::opened(usize::from(candidate < q));
        }
        done += kept;
    }
}

fn map_words(rng: &mut SecretRng, n: usize, f: impl Fn(u64) -> i64) -> Zeroizing<Vec<i64>> {
    let mut out = Zeroizing::new(vec![0; n]);
    let mut words = Zeroizing::new([0; 64]);
    for chunk in out.chunks_mut(64) {
        let words = &mut words[..chunk.len()];
        rng.fill_words(words);
        for (value, &word) in chunk.iter_mut().zip(words.iter()) {
            *value = f(word);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: usize = 200_000;

    fn moments(values: &[i64]) -> [f64; 3] {
        let moment = |k: i32| values.iter().map(|&x| (x as f64).powi(k)).sum::<f64>() / values.len() as f64;
        [moment(1), moment(2), moment(4)]
    }

    /// Within six standard errors of the expectation.
    fn close(found: f64, expected: f64, deviation: f64) {
        let error = deviation / (N as f64).sqrt();
        assert!((found - expected).abs() < 6.0 * error, "{found}, expected {expected} ± {error}");
    }

    #[test]
    fn ternary_is_uniform_on_three_values() {
        let values = ternary(&mut SecretRng::insecure_from_seed(1), N);
        assert!(values.iter().all(|x| (-1..=1).contains(x)));
        let [mean, square, _] = moments(&values);
        close(mean, 0.0, (2.0_f64 / 3.0).sqrt());
        close(square, 2.0 / 3.0, (2.0_f64 / 9.0).sqrt());
    }

    #[test]
    fn binomial_has_its_moments_and_range() {
        let values = centred_binomial(&mut SecretRng::insecure_from_seed(2), N);
        assert!(values.iter().all(|x| x.abs() <= 21));
        let [mean, square, fourth] = moments(&values);
        // 42 coins of ±1/2: variance v = 42/4, fourth moment 3v² − 42/8.
        let v = 10.5;
        let m4 = 3.0 * v * v - 42.0 / 8.0;
        close(mean, 0.0, f64::sqrt(v));
        close(square, v, f64::sqrt(m4 - v * v));
        // The eighth moment is about 105·v⁴.
        close(fourth, m4, f64::sqrt(105.0 * v.powi(4) - m4 * m4));
    }

    #[test]
    fn residues_are_uniform_and_neighbours_independent() {
        // A quarter of the words are rejected.
        let modulus = Modulus::new(3 << 20 | 1).unwrap();
        let mut values = vec![0; N];
        uniform(&mut SecretRng::insecure_from_seed(3), &modulus, &mut values);
        assert!(values.iter().all(|&x| x < modulus.value()));
        let mut cells = [0_f64; 16];
        for pair in values.chunks_exact(2) {
            let cell = |x: u64| (x * 4 / modulus.value()) as usize;
            cells[4 * cell(pair[0]) + cell(pair[1])] += 1.0;
        }
        let mean = N as f64 / 32.0;
        let chi: f64 = cells.iter().map(|c| (c - mean).powi(2) / mean).sum();
        assert!(chi < 55.0, "{chi}"); // 15 degrees of freedom: beyond the 1 − 10^−5 quantile
    }
}
