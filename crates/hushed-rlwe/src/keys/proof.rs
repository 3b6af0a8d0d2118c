//! What makes a public key well formed, as a linear equation in bits that another party can check without seeing them.
//!
//! A key is well formed if b = −a·s + e with s ternary and |e_i| ≤ 21, as all errors of honest keys are. Write s_i =
//! x_i0 − x_i1 and e_i = Σ_k w_k·x_i,2+k − 21 with the weights 1, 2, 4, 8, 16 and 11, which give every number from 0 to
//! 42 and no other: every choice of the eight bits is within the bounds, so only the equation needs a proof. For a
//! random polynomial λ modulo a prime q, the constant coefficient of λ·(b + a·s − e) is 0 for a well-formed key, and 0
//! with probability 1/q otherwise. It is linear in the bits:
//!
//! > Σ_i rev(λ)_i·e_i − rev(λ·a)_i·s_i = (λ·b)_0, where (p·x)_0 = Σ_i rev(p)_i·x_i modulo X^N + 1.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_math::rng::PublicSeed;
use hushed_math::{Coeff, Eval, Modulus, RnsPoly, SecretPoly};
use zeroize::Zeroizing;

use super::{PublicKey, SecretKey};
use crate::ciphertext::{StreamDomain, uniform};
use crate::error::RlweError;

/// The weights of an error's bits, and what is subtracted from their sum.
const WEIGHTS: [u64; 6] = [1, 2, 4, 8, 16, 11];
const OFFSET: u64 = 21;

/// Bits that are proved of each coefficient: two of s, and those of e.
pub const WITNESS_BITS: usize = 2 + WEIGHTS.len();

impl SecretKey {
    /// The bits that make `public` well formed, erased on drop: [`WITNESS_BITS`] planes of N bits, packed into words.
    /// They are the key.
    ///
    /// # Errors
    /// [`hushed_math::MathError::Forked`].
    ///
    /// # Panics
    /// If the keys do not share their parameters.
    pub fn witness(&self, public: &PublicKey) -> Result<Zeroizing<Vec<u64>>, RlweError> {
        self.check_process()?;
        let first = self.params().basis().modulus(0);
        let s = SecretPoly::new(self.s().keep_limbs(&[0]));
        let mut e = public.b.keep_limbs(&[0]);
        e.mul_add_assign(&public.a.keep_limbs(&[0]), s.expose());
        let e = SecretPoly::new(e.into_coeff());
        let s = SecretPoly::new(self.s().keep_limbs(&[0]).into_coeff());
        let [s, e] = [&s, &e].map(|poly| poly.expose().limb(0));

        let minus_one = first.value() - 1;
        // Allocated at once: growing would leave bits behind.
        let mut words = Zeroizing::new(Vec::with_capacity(WITNESS_BITS * s.len().div_ceil(64)));
        for plane in 0..WITNESS_BITS {
            for (s, e) in s.chunks(64).zip(e.chunks(64)) {
                let bits = s.iter().zip(e).enumerate();
                words.push(bits.fold(0, |word, (i, (&s, &e))| {
                    // Branch-free: comparisons of residues below 2^50 by the sign of a difference. From 32 on the last
                    // weight is used, which leaves 21 to 31 for the others.
                    let sum = first.add(e, OFFSET);
                    let last = sum >> 5 & 1;
                    let bit = match plane {
                        0 => is_zero(s ^ 1),
                        1 => is_zero(s ^ minus_one),
                        7 => last,
                        _ => sum.wrapping_sub(11 * last) >> (plane - 2) & 1,
                    };
                    word | bit << i
                }));
            }
        }
        Ok(words)
    }
}

/// 1 for 0, and 0 for other words below 2^63.
fn is_zero(x: u64) -> u64 {
    x.wrapping_sub(1) >> 63
}

/// The equation that the bits of a well-formed key fulfil modulo one prime.
pub struct KeyEquation {
    /// The prime.
    pub modulus: Modulus,
    /// rev(λ·a) and rev(λ).
    ternary: Vec<u64>,
    error: Vec<u64>,
    /// What the sum over all bits must be.
    pub constant: u64,
}

impl KeyEquation {
    /// Σ weight·value over the values of all bits, plane by plane, as residues.
    pub fn sum<'a>(&self, planes: impl IntoIterator<Item = &'a [u64]>) -> u64 {
        let q = &self.modulus;
        let dot = |weights: &[u64], values: &[u64]| {
            weights.iter().zip(values).fold(0, |sum, (&w, &v)| q.add(sum, q.mul(w, v)))
        };
        planes.into_iter().enumerate().fold(0, |sum, (plane, values)| match plane {
            0 => q.sub(sum, dot(&self.ternary, values)),
            1 => q.add(sum, dot(&self.ternary, values)),
            _ => {
                let weight = WEIGHTS.get(plane - 2).copied().unwrap_or(0);
                q.add(sum, q.mul(weight, dot(&self.error, values)))
            }
        })
    }
}

impl PublicKey {
    /// One equation for each ciphertext prime, with λ from `challenge`, which must be drawn after the key and the bits
    /// are fixed.
    pub fn equations(&self, challenge: &PublicSeed) -> Vec<KeyEquation> {
        let basis = self.params.basis();
        let ids = self.params.ciphertext_ids(self.params.q_len());
        let lambda = uniform(challenge, StreamDomain::KeyProof, basis, &ids);
        let times = |other: &RnsPoly<Eval>| -> RnsPoly<Coeff> {
            let mut product = lambda.clone();
            product.mul_assign(other);
            product.into_coeff()
        };
        let (by_a, by_b) = (times(&self.a), times(&self.b));
        let lambda = lambda.into_coeff();
        let equation = |(j, &id): (usize, &usize)| {
            let q = *basis.modulus(id);
            let [ternary, error] = [&by_a, &lambda].map(|poly| reversed(&q, poly.limb(j)));
            let offset = error.iter().fold(0, |sum, &w| q.add(sum, w));
            let first = by_b.limb(j).first().copied().unwrap_or(0);
            let constant = q.add(first, q.mul(OFFSET, offset));
            KeyEquation { modulus: q, ternary, error, constant }
        };
        ids.iter().enumerate().map(equation).collect()
    }
}

/// The weights of x in the constant coefficient of p·x: p_0, −p_{N−1}, …, −p_1.
fn reversed(q: &Modulus, p: &[u64]) -> Vec<u64> {
    let first = p.iter().take(1).copied();
    first.chain(p.iter().skip(1).rev().map(|&c| q.neg(c))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::RlweParams;
    use hushed_math::rng::SecretRng;

    /// The bits as residues, plane by plane.
    fn values(witness: &[u64], n: usize) -> Vec<Vec<u64>> {
        let plane = |words: &[u64]| (0..n).map(|i| words[i / 64] >> (i % 64) & 1).collect();
        witness.chunks(n / 64).map(plane).collect()
    }

    fn holds(equation: &KeyEquation, values: &[Vec<u64>]) -> bool {
        equation.sum(values.iter().map(Vec::as_slice)) == equation.constant
    }

    #[test]
    fn a_well_formed_key_fulfils_every_equation_and_its_bits_are_the_key() {
        let params = RlweParams::olt_full().unwrap();
        let mut rng = SecretRng::insecure_from_seed(5);
        let secret = SecretKey::generate(&params, &mut rng);
        let public = PublicKey::generate(&secret, &mut rng);
        let bits = values(&secret.witness(&public).unwrap(), params.n());
        assert_eq!(bits.len(), WITNESS_BITS);
        // No coefficient of s is both 1 and −1, a third of them is 0, and errors are within ±21.
        assert!(bits[0].iter().zip(&bits[1]).all(|(one, minus)| one & minus == 0));
        let e = |i: usize| (0..6).map(|k| bits[2 + k][i] * WEIGHTS[k]).sum::<u64>();
        assert!((0..params.n()).all(|i| e(i) <= 42) && (0..params.n()).any(|i| e(i) >= 32));
        for challenge in 0..3 {
            let equations = public.equations(&PublicSeed([challenge; 16]));
            assert_eq!(equations.len(), 3);
            assert!(equations.iter().all(|equation| holds(equation, &bits)));
        }
    }

    /// Another bit, another b modulo one prime alone, a multiple of the key, an error beyond the bound.
    #[test]
    fn other_keys_fulfil_none() {
        let params = RlweParams::olt_full().unwrap();
        let mut rng = SecretRng::insecure_from_seed(6);
        let secret = SecretKey::generate(&params, &mut rng);
        let challenge = PublicSeed([9; 16]);
        let right = PublicKey::generate(&secret, &mut rng);
        let bits = values(&secret.witness(&right).unwrap(), params.n());
        for (plane, i) in [(0, 0), (1, 77), (2, 8191), (7, 4000)] {
            let mut wrong = bits.clone();
            wrong[plane][i] ^= 1;
            assert!(right.equations(&challenge).iter().all(|equation| !holds(equation, &wrong)), "{plane} {i}");
        }
        for prime in 0..3 {
            let mut wrong = PublicKey::generate(&secret, &mut rng);
            let bits = values(&secret.witness(&wrong).unwrap(), params.n());
            let q = params.basis().modulus(prime);
            let b = &mut wrong.b.limb_mut(prime)[13];
            *b = q.add(*b, 1);
            let found = wrong.equations(&challenge);
            for (j, equation) in found.iter().enumerate() {
                assert_eq!(holds(equation, &bits), j != prime, "{prime} {j}");
            }
        }
        // An error of 21 is the largest: at the first coefficient it has the bits of 21, and 22 has none.
        let first = secret.witness(&right).unwrap();
        let first = values(&first, params.n()).iter().skip(2).zip(WEIGHTS).map(|(bits, w)| bits[0] * w).sum::<u64>();
        let with = |sum: u64| {
            let mut key =
                PublicKey { params: params.clone(), seed: right.seed, b: right.b.clone(), a: right.a.clone() };
            for j in 0..3 {
                let q = params.basis().modulus(j);
                let more = q.reduce_signed(sum as i64 - first as i64);
                key.b.limb_mut(j).iter_mut().for_each(|b| *b = q.add(*b, more));
            }
            let bits = values(&secret.witness(&key).unwrap(), params.n());
            key.equations(&challenge).iter().filter(|equation| holds(equation, &bits)).count()
        };
        assert_eq!([0, 21, 31, 32, 42].map(with), [3; 5]);
        // Sums of 43 and more, or below 0, are errors beyond 21.
        assert_eq!([43, 64, 85, u64::MAX, 1 << 40].map(with), [0; 5]);
    }
}
