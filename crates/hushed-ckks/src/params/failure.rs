//! How likely a bootstrap fails: the tail of an Irwin–Hall distribution, in exact integers.
//!
//! ModRaise turns the phase m modulo q0 into m + q0·I. A coefficient of I is, up to the message, a sum of h + 1 independent
//! uniform variables on [-1/2, 1/2) for a secret of weight h (Bossuat, Troncoso-Pastoriza and Hubaux, ePrint 2022/024,
//! equation 1). EvalMod is right for |I| ≤ K; the union bound runs over 2·slots coefficients:
//!
//! ```text
//! P ≤ 2·slots · 2·P(S > K),   P(S > K) = 1/n! · Σ_{k ≤ x} (−1)^k C(n, k) (x − k)^n,   n = h + 1, x = n/2 − K
//! ```
//!
//! The sum alternates and its terms may be 2^100 times the result, so it is formed over integers of any length:
//! with X = 2x, (x − k)^n = (X − 2k)^n / 2^n.

use std::cmp::Ordering;

/// log2 of the probability that any of 2·`slots` coefficients leaves [-K, K] (K = `range`) in a bootstrap with an ephemeral
/// secret of weight `weight` ≤ 1000; negative infinity if none can.
pub fn log2_failure(weight: u32, range: u32, slots: usize) -> f64 {
    let n = u64::from(weight.min(1000)) + 1;
    let Some(double_x) = n.checked_sub(2 * u64::from(range)).filter(|&x| x > 0) else {
        return f64::NEG_INFINITY;
    };
    // C(n, k)·(X − 2k)^n for k = 0, 1, …, summed by sign.
    let (mut plus, mut minus) = (Natural::from(0), Natural::from(0));
    let mut binomial = Natural::from(1);
    for k in 0..=double_x / 2 {
        let mut term = binomial.clone();
        for _ in 0..n {
            term.mul(double_x - 2 * k);
        }
        if k % 2 == 0 { &mut plus } else { &mut minus }.add(&term);
        binomial.mul(n - k);
        binomial.div_exact(k + 1);
    }
    plus.sub(&minus);
    let log2_factorial: f64 = (2..=n).map(|k| (k as f64).log2()).sum();
    let tail = plus.log2() - n as f64 - log2_factorial;
    (tail + 1.0 + (2.0 * slots as f64).log2()).min(0.0)
}

/// A natural number: words of 32 bits, least first, no leading zero words.
#[derive(Clone)]
struct Natural(Vec<u32>);

impl Natural {
    fn from(value: u32) -> Self {
        let mut number = Self(vec![value]);
        number.trim();
        number
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    /// self ← self·factor, factor < 2^32.
    fn mul(&mut self, factor: u64) {
        let mut carry = 0;
        for word in &mut self.0 {
            let product = u64::from(*word) * factor + carry;
            *word = product as u32;
            carry = product >> 32;
        }
        self.0.push(carry as u32);
        self.trim();
    }

    /// self ← self/divisor, which divides it.
    fn div_exact(&mut self, divisor: u64) {
        let mut rest = 0;
        for word in self.0.iter_mut().rev() {
            let value = rest << 32 | u64::from(*word);
            *word = (value / divisor) as u32;
            rest = value % divisor;
        }
        self.trim();
    }

    fn add(&mut self, other: &Self) {
        let length = self.0.len().max(other.0.len()) + 1;
        self.0.resize(length, 0);
        let mut carry = 0;
        for (i, word) in self.0.iter_mut().enumerate() {
            let sum = u64::from(*word) + u64::from(other.0.get(i).copied().unwrap_or(0)) + carry;
            *word = sum as u32;
            carry = sum >> 32;
        }
        self.trim();
    }

    /// self ← self − other, zero if other is larger.
    fn sub(&mut self, other: &Self) {
        if self.cmp(other) == Ordering::Less {
            self.0.clear();
            return;
        }
        let mut borrow = 0i64;
        for (i, word) in self.0.iter_mut().enumerate() {
            let taken = i64::from(other.0.get(i).copied().unwrap_or(0)) + borrow;
            let difference = i64::from(*word) - taken;
            borrow = i64::from(difference < 0);
            *word = difference as u32;
        }
        self.trim();
    }

    fn cmp(&self, other: &Self) -> Ordering {
        let lengths = self.0.len().cmp(&other.0.len());
        lengths.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    fn log2(&self) -> f64 {
        let top = self.0.iter().rev().take(3);
        let value = top.fold(0.0, |acc, &word| acc * 4_294_967_296.0 + f64::from(word));
        value.log2() + 32.0 * self.0.len().saturating_sub(3) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Published figures: h = 32 and 64 at 2^15 slots.
    #[test]
    fn agrees_with_published_bounds() {
        for (weight, range, log2) in [
            (32, 16, -138.7),
            (32, 12, -34.0),
            (64, 28, -144.0),
            (128, 40, -112.0),
            (192, 25, -15.6),
            (192, 28, -23.0),
        ] {
            let found = log2_failure(weight, range, 1 << 15);
            assert!((found - log2).abs() < 0.6, "{weight} {range}: {found}");
        }
        assert!((log2_failure(32, 16, 1 << 15) + 138.7).abs() < 0.05);
    }

    #[test]
    fn edges() {
        assert_eq!(log2_failure(32, 17, 1 << 15), f64::NEG_INFINITY);
        assert_eq!(log2_failure(32, 0, 1 << 15), 0.0);
        // One uniform variable more than K = 0.5 … n = 2, K = 0: P(S > 0) = 1/2, two sides, two coefficients: 2 → 1.
        assert_eq!(log2_failure(1, 0, 1), 0.0);
        // n = 3, x = 1/2: P(S > 1) = (1/2)^3/6 = 1/48; times 4.
        assert!((log2_failure(2, 1, 1) - (4.0f64 / 48.0).log2()).abs() < 1e-12);
    }

    #[test]
    fn simulation_agrees_where_failure_is_frequent() {
        use hushed_math::rng::SecretRng;
        let mut rng = SecretRng::insecure_from_seed(1);
        let (n, range, trials) = (33, 4.0, 200_000);
        let mut uniform = || (rng.next_u64() >> 11) as f64 / 9_007_199_254_740_992.0 - 0.5;
        let out = (0..trials)
            .filter(|_| (0..n).map(|_| uniform()).sum::<f64>().abs() > range)
            .count();
        let expected = 2f64.powf(log2_failure(32, 4, 1) - 1.0);
        let found = out as f64 / f64::from(trials);
        let deviation = (expected / f64::from(trials)).sqrt();
        assert!(
            (found - expected).abs() < 6.0 * deviation,
            "{found} {expected}"
        );
    }
}
