//! Operations on coefficients.

use super::{Coeff, RnsPoly};
use crate::rns::RnsBasis;
use std::sync::Arc;
use zeroize::Zeroize;

impl RnsPoly<Coeff> {
    /// The polynomial with these integer coefficients under every modulus of `ids`; constant time in the coefficients.
    ///
    /// # Panics
    /// If there are not n coefficients, or as [`RnsPoly::zero`].
    pub fn from_signed(basis: &Arc<RnsBasis>, ids: &[usize], coefficients: &[i64]) -> RnsPoly<Coeff> {
        assert_eq!(coefficients.len(), basis.n(), "one integer a coefficient");
        let mut poly = RnsPoly::scratch(basis, ids);
        poly.each(|ntt, limb| ntt.pointwise().reduce_signed(limb, coefficients));
        poly
    }

    /// a(X) → a(X^g), g odd (taken modulo 2n).
    ///
    /// # Panics
    /// If g is even.
    pub fn automorphism(&self, g: usize) -> RnsPoly<Coeff> {
        assert!(g % 2 == 1, "Galois elements are odd");
        let (n, g) = (self.n(), g % (2 * self.n()));
        let mut image = self.clone();
        for (j, &id) in self.ids.iter().enumerate() {
            let (q, source, out) = (self.basis.modulus(id), self.limb(j), image.limb_mut(j));
            let mut exponent = 0; // i·g modulo 2n; X^n = −1
            for &c in source {
                if exponent < n {
                    out[exponent] = c;
                } else {
                    out[exponent - n] = q.neg(c);
                }
                exponent = (exponent + g) & (2 * n - 1);
            }
        }
        image
    }

    /// a·X^k for any integer k (modulo 2n; X^n = −1).
    pub fn mul_monomial(&self, k: i64) -> RnsPoly<Coeff> {
        let n = self.n();
        let shift = k.rem_euclid(2 * n as i64) as usize;
        let (turn, negate) = (shift % n, shift >= n);
        let mut image = self.clone();
        for (j, &id) in self.ids.iter().enumerate() {
            let (pointwise, source) = (self.basis.ntt(id).pointwise(), self.limb(j));
            let out = image.limb_mut(j);
            // The last `turn` coefficients wrap around.
            out[turn..].copy_from_slice(&source[..n - turn]);
            out[..turn].copy_from_slice(&source[n - turn..]);
            pointwise.neg_assign(if negate { &mut out[turn..] } else { &mut out[..turn] });
        }
        image
    }

    /// round(a / p) for the last modulus p, under the others: each coefficient c in (−Q/2, Q/2) becomes
    /// (c − `[c]_p`)/p with `[c]_p` in (−p/2, p/2), which is the nearest integer (p odd: no ties).
    ///
    /// # Panics
    /// If there is only one modulus.
    pub fn divide_by_last_and_round(mut self) -> RnsPoly<Coeff> {
        let ones = vec![1; self.ids.len() - 1];
        self.divide_by_last(&ones);
        self.truncated()
    }

    /// As [`RnsPoly::divide_by_last_and_round`], times `scalars[j]` under modulus j. The dividend's memory is recycled
    /// without being erased: only for polynomials that need no erasure.
    ///
    /// # Panics
    /// As there, or if there is not one scalar per remaining modulus.
    #[must_use]
    pub fn divide_by_last_scaled(mut self, scalars: &[u64]) -> RnsPoly<Coeff> {
        self.divide_by_last(scalars);
        let stay = self.ids.len() - 1;
        self.truncate_limbs(stay)
    }

    /// Divides in place, under all moduli but the last.
    fn divide_by_last(&mut self, scalars: &[u64]) {
        let last = self.ids.len() - 1;
        assert!(last > 0, "a modulus to divide by and one to stay");
        assert_eq!(scalars.len(), last, "one scalar a modulus that stays");
        let p = *self.basis.modulus(self.ids[last]);
        let factor = |(&id, &scalar): (&usize, &u64)| {
            let q = self.basis.modulus(id);
            // By Fermat: the moduli of a basis are distinct primes.
            q.mul(q.pow(q.reduce(p.value()), q.value() - 2), scalar)
        };
        let factors: Vec<u64> = self.ids.iter().zip(scalars).map(factor).collect();
        let (stay, dropped) = self.data.split_at_mut(last);
        for ((&id, limb), &factor) in self.ids.iter().zip(stay).zip(&factors) {
            let pointwise = self.basis.ntt(id).pointwise();
            pointwise.sub_centred_mul_scalar_assign(limb, &dropped[0], &p, factor);
        }
    }

    /// Keeps all limbs but the last, which is erased.
    fn truncated(mut self) -> RnsPoly<Coeff> {
        let last = self.ids.len() - 1;
        self.data[last].zeroize();
        self.truncate_limbs(last)
    }
}
