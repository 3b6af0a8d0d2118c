//! The failure probability of a bootstrap: the tail of an Irwin–Hall distribution, in exact integers.
//!
//! ModRaise turns the phase m modulo q0 into m + q0·I. Here b = m − T modulo q0, where T is the sum of h terms ±a_j for
//! a secret of weight h. With both parts lifted to centred residues, I = round((T − m)/q0). The a_j/q0 are uniform on
//! [−1/2, 1/2), so T/q0 is a sum S_h of h such variables (Bossuat, Troncoso-Pastoriza and Hubaux, ePrint 2022/024,
//! equation 1, which counts one more for b; the rounding cancels it). EvalMod is correct for |I| < K
//! ([`crate::poly::EvalMod`] is fitted at I = −K + 1, …, K − 1), so a coefficient is wrong if |S_h − m/q0| > K − 1/2.
//! The union bound runs over 2·slots coefficients:
//!
//! ```text
//! P ≤ 2·slots · 2·P(S_h > K − 1/2),   P(S_n > t) = 1/n! · Σ_{k ≤ x} (−1)^k C(n, k) (x − k)^n,   x = n/2 − t
//! ```
//!
//! This is for m = 0; a message within 2^-9·q0 adds less than a fifth of a bit at h = 32, K = 16: 32·log2(1 + 2·2^-9).
//!
//! The sum alternates and its terms may be 2^100 times the result, so it is computed with big integers: with X = 2x,
//! (x − k)^n = (X − 2k)^n / 2^n.

use std::cmp::Ordering;

/// log2 of a bound on the probability that any of 2·`slots` coefficients reaches ±K (K = `range`), where EvalMod ends,
/// in a bootstrap with an ephemeral secret of weight `weight` ≤ 1000. Negative infinity if none can.
pub fn log2_failure(weight: u32, range: u32, slots: usize) -> f64 {
    // |I| ≥ 0 always.
    let Some(threshold) = (2 * u64::from(range)).checked_sub(1) else {
        return 0.0;
    };
    let tail = log2_tail(u64::from(weight.min(1000)), threshold);
    (tail + 1.0 + (2.0 * slots as f64).log2()).min(0.0)
}

/// log2 of P(S_n > t), t = `double_threshold`/2; negative infinity for t ≥ n/2.
fn log2_tail(n: u64, double_threshold: u64) -> f64 {
    let Some(double_x) = n.checked_sub(double_threshold).filter(|&x| x > 0) else {
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
    plus.log2() - n as f64 - log2_factorial
}

/// A natural number: 32-bit words, least significant first, no leading zeros.
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

    /// self ← self/divisor, which must divide exactly.
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

    /// self ← self − other, or zero if other is larger.
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

    /// Published figures for S_(h+1) beyond K at 2^15 slots.
    #[test]
    fn agrees_with_published_bounds() {
        for (weight, range, log2) in
            [(32, 16, -138.7), (32, 12, -34.0), (64, 28, -144.0), (128, 40, -112.0), (192, 25, -15.6), (192, 28, -23.0)]
        {
            let found = log2_tail(weight + 1, 2 * range) + 17.0;
            assert!((found - log2).abs() < 0.6, "{weight} {range}: {found}");
        }
    }

    /// 2·2^16·(1/2)^32/32!: the 32 terms are within 1/2 of their extreme, in total.
    #[test]
    fn the_bound_is_for_integers_that_the_fit_does_not_reach() {
        let log2_factorial: f64 = (2..=32).map(|k| f64::from(k).log2()).sum();
        let found = log2_failure(32, 16, 1 << 15);
        assert!((found - (17.0 - 32.0 - log2_factorial)).abs() < 1e-9);
        assert!((found + 132.7).abs() < 0.05, "{found}");
    }

    #[test]
    fn edges() {
        assert_eq!(log2_failure(32, 17, 1 << 15), f64::NEG_INFINITY);
        assert_eq!(log2_failure(32, 0, 1 << 15), 0.0);
        // A sum of one never rounds to 1.
        assert_eq!(log2_failure(1, 1, 1), f64::NEG_INFINITY);
        // n = 2, x = 1/2: P(S > 1/2) = (1/2)^2/2 = 1/8; two sides, two coefficients.
        assert!((log2_failure(2, 1, 1) + 1.0).abs() < 1e-12);
        // n = 3, x = 1/2: P(S > 1) = (1/2)^3/6 = 1/48.
        assert!((log2_tail(3, 2) - (1.0f64 / 48.0).log2()).abs() < 1e-12);
    }

    /// ModRaise itself on one coefficient: the sum of the centred residues of b and of the terms ±a_j.
    #[test]
    fn simulation_agrees_where_failure_is_frequent() {
        use hushed_math::rng::SecretRng;
        let mut rng = SecretRng::insecure_from_seed(1);
        let (weight, range, trials) = (32, 5, 200_000);
        let q = 1i64 << 50;
        let centred = |x: i64| {
            let x = x.rem_euclid(q);
            x - if 2 * x >= q { q } else { 0 }
        };
        let mut out = 0;
        for _ in 0..trials {
            let mut uniform = || centred((rng.next_u64() >> 14) as i64);
            let terms: i64 = (0..weight).map(|_| uniform()).sum();
            let message = uniform() >> 10;
            let phase = centred(message - terms) + terms;
            assert_eq!((phase - message) % q, 0);
            out += i32::from(((phase - message) / q).abs() >= range);
        }
        let expected = 2f64.powf(log2_failure(32, 5, 1) - 1.0);
        let found = f64::from(out) / f64::from(trials);
        let deviation = (expected / f64::from(trials)).sqrt();
        assert!((found - expected).abs() < 6.0 * deviation, "{found} {expected}");
    }
}
