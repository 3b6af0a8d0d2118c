//! Arithmetic modulo one odd q below 2^50, on residues in [0, q), in constant time in the operands.
//!
//! Products are reduced by Barrett's method (Handbook of Applied Cryptography, Alg. 14.42, in base 2): with k bits of
//! q and μ = ⌊2^2k / q⌋, the quotient of z < q² is estimated by ⌊⌊z / 2^(k-1)⌋ · μ / 2^(k+1)⌋, at most 2 too small.
//! The bound 2^50 leaves two bits below the 52 of the vector multiplier, for lazy sums up to 4q.

use crate::error::MathError;

/// An odd modulus, 2 < q < 2^50, with its precomputed constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modulus {
    q: u64,
    bits: u32,
    /// ⌊2^2k / q⌋ ≤ 2^51.
    mu: u64,
    /// ⌊2^64 / q⌋.
    ratio: u64,
    /// 2^64 mod q.
    word: u64,
}

impl Modulus {
    /// Largest number of bits of a modulus.
    pub const MAX_BITS: u32 = 50;

    /// Checks `q` and prepares its constants. Primality is not required here.
    ///
    /// # Errors
    /// [`MathError::InvalidModulus`] unless q is odd and 2 < q < 2^50.
    pub fn new(q: u64) -> Result<Modulus, MathError> {
        if q.is_multiple_of(2) || q < 3 || q >> Modulus::MAX_BITS != 0 {
            return Err(MathError::InvalidModulus { value: q });
        }
        let bits = 64 - q.leading_zeros();
        Ok(Modulus {
            q,
            bits,
            mu: ((1_u128 << (2 * bits)) / u128::from(q)) as u64,
            ratio: ((1_u128 << 64) / u128::from(q)) as u64,
            word: ((1_u128 << 64) % u128::from(q)) as u64,
        })
    }

    /// q.
    pub fn value(&self) -> u64 {
        self.q
    }

    /// The k with 2^(k-1) < q < 2^k.
    pub fn bits(&self) -> u32 {
        self.bits
    }

    /// a + b mod q.
    #[inline]
    pub fn add(&self, a: u64, b: u64) -> u64 {
        csub(a + b, self.q)
    }

    /// a − b mod q.
    #[inline]
    pub fn sub(&self, a: u64, b: u64) -> u64 {
        csub(a + self.q - b, self.q)
    }

    /// −a mod q.
    #[inline]
    pub fn neg(&self, a: u64) -> u64 {
        csub(self.q - a, self.q)
    }

    /// a·b mod q.
    #[inline]
    pub fn mul(&self, a: u64, b: u64) -> u64 {
        self.reduce_product(u128::from(a) * u128::from(b))
    }

    /// a^e mod q; constant time in `a`, not in the exponent.
    pub fn pow(&self, a: u64, exponent: u64) -> u64 {
        let mut result = 1;
        for bit in (0..64 - exponent.leading_zeros()).rev() {
            result = self.mul(result, result);
            if exponent >> bit & 1 == 1 {
                result = self.mul(result, a);
            }
        }
        result
    }

    /// The inverse of a modulo q, if there is one. For public values: Euclid's steps depend on `a`.
    pub fn inv(&self, a: u64) -> Option<u64> {
        let (mut r, mut next_r) = (self.q as i64, a as i64);
        let (mut t, mut next_t) = (0_i64, 1_i64);
        while next_r != 0 {
            let quotient = r / next_r;
            (r, next_r) = (next_r, r - quotient * next_r);
            (t, next_t) = (next_t, t - quotient * next_t);
        }
        (r == 1).then(|| t.rem_euclid(self.q as i64) as u64)
    }

    /// Reduces any word modulo q.
    #[inline]
    pub fn reduce(&self, a: u64) -> u64 {
        // a/q − ⌊a·ratio/2^64⌋ < 2, so the remainder is below 2q.
        let quotient = (u128::from(a) * u128::from(self.ratio)) >> 64;
        csub(a.wrapping_sub((quotient as u64).wrapping_mul(self.q)), self.q)
    }

    /// Reduces any double word modulo q.
    #[inline]
    pub fn reduce_u128(&self, a: u128) -> u64 {
        // high·(2^64 mod q) + low ≤ (q−1)² + q − 1 < q².
        let high = self.reduce((a >> 64) as u64);
        let low = self.reduce(a as u64);
        self.reduce_product(u128::from(high) * u128::from(self.word) + u128::from(low))
    }

    /// Reduces a signed number modulo q, in constant time.
    #[inline]
    pub fn reduce_signed(&self, a: i64) -> u64 {
        let r = self.reduce(a.unsigned_abs());
        let sign = (a >> 63) as u64;
        r ^ ((r ^ self.neg(r)) & sign)
    }

    /// The representative of a in (−q/2, q/2), in constant time.
    #[inline]
    pub fn centre(&self, a: u64) -> i64 {
        let above = ((self.q >> 1).wrapping_sub(a) as i64 >> 63) as u64;
        a.wrapping_sub(self.q & above) as i64
    }

    /// ⌊w·2^64 / q⌋, the second word that [`Modulus::mul_shoup_lazy`] needs for a constant w.
    pub fn shoup(&self, w: u64) -> u64 {
        ((u128::from(w) << 64) / u128::from(self.q)) as u64
    }

    /// w·a mod q, plus at most one q: in [0, 2q) for any word a (Harvey 2014, Thm 1: below q·(1 + a/2^64)).
    #[inline(always)]
    pub fn mul_shoup_lazy(&self, a: u64, w: u64, w_shoup: u64) -> u64 {
        let quotient = ((u128::from(a) * u128::from(w_shoup)) >> 64) as u64;
        a.wrapping_mul(w).wrapping_sub(quotient.wrapping_mul(self.q))
    }

    /// z mod q for z < q².
    #[inline]
    fn reduce_product(&self, z: u128) -> u64 {
        let top = (z >> (self.bits - 1)) as u64; // < 2^(k+1)
        let quotient = (u128::from(top) * u128::from(self.mu)) >> (self.bits + 1);
        let r = (z as u64).wrapping_sub((quotient as u64).wrapping_mul(self.q)); // < 3q
        csub(csub(r, self.q << 1), self.q)
    }
}

/// a if a < b, else a − b; for a, b < 2^63, without a branch.
#[inline(always)]
pub(crate) fn csub(a: u64, b: u64) -> u64 {
    let difference = a.wrapping_sub(b);
    difference.wrapping_add(b & ((difference as i64 >> 63) as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SecretRng;

    fn moduli() -> Vec<Modulus> {
        let values = [3, 5, 17, 257, (1 << 41) - 21, (1 << 49) - 1, (1 << 49) + 1, (1 << 50) - 27, (1 << 50) - 1];
        values.into_iter().map(|q| Modulus::new(q).unwrap()).collect()
    }

    #[test]
    fn refuses_what_the_kernels_cannot_use() {
        for q in [0, 1, 2, 4, 1 << 49, (1 << 50) + 1, u64::MAX] {
            assert_eq!(Modulus::new(q), Err(MathError::InvalidModulus { value: q }));
        }
    }

    #[test]
    fn agrees_with_wide_integers() {
        let mut rng = SecretRng::insecure_from_seed(1);
        for m in moduli() {
            let q = m.value();
            assert_eq!(1 << m.bits(), q.next_power_of_two());
            let mut values = vec![0, 1, 2, q / 2, q / 2 + 1, q - 2, q - 1];
            values.extend((0..50).map(|_| rng.next_u64() % q));
            for &a in &values {
                for &b in &values {
                    let (wide_a, wide_b, wide_q) = (u128::from(a), u128::from(b), u128::from(q));
                    assert_eq!(u128::from(m.add(a, b)), (wide_a + wide_b) % wide_q);
                    assert_eq!(u128::from(m.sub(a, b)), (wide_a + wide_q - wide_b) % wide_q);
                    assert_eq!(u128::from(m.mul(a, b)), wide_a * wide_b % wide_q);
                    let lazy = m.mul_shoup_lazy(a, b, m.shoup(b));
                    assert!(lazy < 2 * q);
                    assert_eq!(m.reduce(lazy), m.mul(a, b));
                }
                assert_eq!(m.add(a, m.neg(a)), 0);
                assert_eq!(m.reduce_signed(m.centre(a)), a);
                assert!(2 * m.centre(a).unsigned_abs() < q);
                if let Some(inverse) = m.inv(a) {
                    assert_eq!(m.mul(a, inverse), 1);
                }
            }
            assert_eq!(m.inv(0), None);
            assert_eq!(m.inv(2).map(|x| m.mul(2, x)), Some(1));
            assert_eq!(m.pow(2, 77), (0..77).fold(1, |x, _| m.mul(x, 2)));
            assert_eq!(m.pow(0, 0), 1);
            for word in [u64::MAX, u64::MAX - 1, 1 << 63, q, 2 * q - 1, rng.next_u64()] {
                assert_eq!(m.reduce(word), word % q);
                let wide = u128::from(word) << 64 | u128::from(rng.next_u64());
                assert_eq!(u128::from(m.reduce_u128(wide)), wide % u128::from(q));
                let signed = i128::from(word as i64).rem_euclid(i128::from(q));
                assert_eq!(i128::from(m.reduce_signed(word as i64)), signed);
                assert!(m.mul_shoup_lazy(word, q - 1, m.shoup(q - 1)) < 2 * q);
            }
            assert_eq!(u128::from(m.reduce_u128(u128::MAX)), u128::MAX % u128::from(q));
            assert_eq!(m.reduce_signed(i64::MIN), (i128::from(i64::MIN)).rem_euclid(i128::from(q)) as u64);
        }
    }
}
