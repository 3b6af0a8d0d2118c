//! Converts residues to centred numbers, exactly and without big integers.
//!
//! With at most two primes a coefficient is an i128 by Garner's formula. With more primes it is computed from the first
//! two, and if all coefficients agree with all other residues, they are correct (the integer in (−Q/2, Q/2) is unique).
//! Otherwise we use mixed-radix digits d_i with value Σ d_i·q_0···q_(i-1). The digits of (Q−1)/2 are (q_i − 1)/2, so
//! sign and magnitude follow from the digits, and the f64 is summed from the top, where nothing cancels.
//!
//! The path taken depends on whether a coefficient reaches q_0·q_1/2; within a path the time is constant.

use hushed_math::{Coeff, Modulus, RnsPoly};
use zeroize::Zeroizing;

/// The coefficients as their representatives in (−Q/2, Q/2), rounded to f64.
pub(super) fn centred(poly: &RnsPoly<Coeff>) -> Zeroizing<Vec<f64>> {
    Zeroizing::new(numbers(poly))
}

fn numbers(poly: &RnsPoly<Coeff>) -> Vec<f64> {
    let moduli: Vec<Modulus> = poly.ids().iter().map(|&id| *poly.basis().modulus(id)).collect();
    let every = |j: usize| poly.limb(j).iter().copied();
    let Some(q1) = moduli.get(1) else {
        return every(0).map(|r| moduli[0].centre(r) as f64).collect();
    };
    let q0 = moduli[0];
    let pair = Pair::new(&q0, q1);
    let values = every(0).zip(every(1)).map(|(x, y)| pair.value(x, y));
    let values: Zeroizing<Vec<i128>> = Zeroizing::new(values.collect());
    let agree = moduli.iter().enumerate().skip(2).all(|(j, m)| {
        let differences = values.iter().zip(every(j)).fold(0, |all, (&value, r)| all | (reduce(m, value) ^ r));
        differences == 0
    });
    if agree {
        return values.iter().map(|&v| v as f64).collect();
    }
    let mixed = MixedRadix::new(&moduli);
    let mut digits = Zeroizing::new(vec![0; moduli.len()]);
    (0..poly.n())
        .map(|k| {
            for (j, digit) in digits.iter_mut().enumerate() {
                *digit = poly.limb(j)[k];
            }
            mixed.value(&mut digits)
        })
        .collect()
}

/// Reconstructs integers from two primes.
struct Pair {
    q0: Modulus,
    q1: Modulus,
    inverse: u64,
}

impl Pair {
    fn new(q0: &Modulus, q1: &Modulus) -> Self {
        // By Fermat: the moduli of a basis are distinct primes.
        let inverse = q1.pow(q1.reduce(q0.value()), q1.value() - 2);
        Self { q0: *q0, q1: *q1, inverse }
    }

    /// The integer in (−q0·q1/2, q0·q1/2) with residues x and y.
    fn value(&self, x: u64, y: u64) -> i128 {
        let t = self.q1.mul(self.q1.sub(y, self.q1.reduce(x)), self.inverse);
        let modulus = i128::from(self.q0.value()) * i128::from(self.q1.value());
        let value = i128::from(x) + i128::from(self.q0.value()) * i128::from(t);
        let above = (modulus / 2 - value) >> 127; // all ones where value > Q/2
        value - (modulus & above)
    }
}

/// x modulo m, for |x| < 2^127.
fn reduce(m: &Modulus, x: i128) -> u64 {
    let r = m.reduce_u128(x.unsigned_abs());
    let sign = (x >> 127) as u64;
    r ^ ((r ^ m.neg(r)) & sign)
}

/// Converts residues under many primes.
struct MixedRadix {
    moduli: Vec<Modulus>,
    /// q_j^-1 modulo q_i at `[i][j]`, j < i.
    inverses: Vec<Vec<u64>>,
}

impl MixedRadix {
    fn new(moduli: &[Modulus]) -> Self {
        let inverses = moduli
            .iter()
            .enumerate()
            .map(|(i, m)| {
                let earlier = moduli.iter().take(i);
                earlier.map(|q| m.pow(m.reduce(q.value()), m.value() - 2)).collect()
            })
            .collect();
        Self { moduli: moduli.to_vec(), inverses }
    }

    /// The number with the residues in `digits`, which are replaced by its mixed-radix digits.
    fn value(&self, digits: &mut [u64]) -> f64 {
        for (i, (m, inverses)) in self.moduli.iter().zip(&self.inverses).enumerate() {
            let (known, rest) = digits.split_at_mut(i);
            if let Some(digit) = rest.first_mut() {
                for (&d, &inverse) in known.iter().zip(inverses) {
                    *digit = m.mul(m.sub(*digit, m.reduce(d)), inverse);
                }
            }
        }
        // Is it above (Q−1)/2? The highest digit that differs from half decides.
        let negative = self.moduli.iter().zip(&*digits).fold(0, |lower, (m, &d)| {
            let half = m.value() / 2;
            let (more, equal) = (u64::from(d > half), u64::from(d == half));
            more | (equal & lower)
        });
        let mask = negative.wrapping_neg();
        let sum = self.moduli.iter().zip(&*digits).rev().fold(0.0, |sum, (m, &d)| {
            // Q − 1 − value has the digits q_i − 1 − d_i.
            let d = (d & !mask) | ((m.value() - 1 - d) & mask);
            sum * m.value() as f64 + d as f64
        });
        // value − Q = −((Q − 1 − value) + 1).
        let negative = negative as f64;
        (1.0 - 2.0 * negative) * (sum + negative)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::CkksParams;
    use num_bigint::BigInt;

    fn poly(params: &CkksParams, limbs: usize, values: &[BigInt]) -> RnsPoly<Coeff> {
        let basis = params.rlwe().basis();
        let mut poly = RnsPoly::zero(basis, &params.rlwe().ciphertext_ids(limbs));
        for (id, limb) in poly.limbs_mut() {
            let q = BigInt::from(basis.modulus(id).value());
            for (r, v) in limb.iter_mut().zip(values) {
                let residue = ((v % &q) + &q) % &q;
                *r = u64::try_from(residue).unwrap();
            }
        }
        poly
    }

    #[test]
    fn numbers_of_any_size_come_back() {
        let params = CkksParams::insecure_test(4, 3).unwrap();
        for limbs in [1, 2, 3, 5, 15] {
            let q: BigInt = params.rlwe().q()[..limbs].iter().map(|&q| BigInt::from(q)).product();
            let half: BigInt = q / 2;
            let shifted = |bits: usize| -> BigInt { half.clone() >> bits };
            let mut values: Vec<BigInt> = (0..6usize).map(|i| shifted(7 * i) - BigInt::from(i * i)).collect();
            values.extend((0..6usize).map(|i| -shifted(9 * i)));
            values.extend([0, 1, -1, 12345].map(BigInt::from));
            let found = centred(&poly(&params, limbs, &values));
            for (found, value) in found.iter().zip(&values) {
                let expected: f64 = value.to_string().parse().unwrap();
                let error = (found - expected).abs();
                assert!(error <= expected.abs() * 2f64.powi(-49), "{limbs}: {value}");
            }
        }
    }

    #[test]
    fn small_numbers_are_exact_under_many_primes() {
        let params = CkksParams::insecure_test(4, 3).unwrap();
        let values: Vec<BigInt> = (0..16).map(|i| BigInt::from((i - 8) * 1_234_567_891_234i64)).collect();
        let found = centred(&poly(&params, 10, &values));
        for (i, found) in found.iter().enumerate() {
            assert_eq!(*found, ((i as i64 - 8) * 1_234_567_891_234) as f64);
        }
    }
}
