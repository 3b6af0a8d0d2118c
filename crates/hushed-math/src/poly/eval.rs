//! Operations on values.

use super::{Domain, Eval, RnsPoly};
use zeroize::Zeroize;

impl RnsPoly<Eval> {
    /// self ← self·other.
    ///
    /// # Panics
    /// If the bases or moduli differ.
    pub fn mul_assign(&mut self, other: &RnsPoly<Eval>) {
        self.each_with(other, |ntt, a, b| ntt.pointwise().mul_assign(a, b));
    }

    /// self ← self + a·b.
    ///
    /// # Panics
    /// If the bases or moduli differ.
    pub fn mul_add_assign(&mut self, a: &RnsPoly<Eval>, b: &RnsPoly<Eval>) {
        self.check_shape(b);
        let mut right = b.data.iter();
        self.each_with(a, |ntt, acc, a| {
            if let Some(b) = right.next() {
                ntt.pointwise().mul_add_assign(acc, a, b);
            }
        });
    }

    /// a(X) → a(X^g), g odd (taken modulo 2n): a permutation of the values, the same for every modulus, made once per
    /// basis.
    ///
    /// # Panics
    /// If g is even.
    pub fn automorphism(&self, g: usize) -> RnsPoly<Eval> {
        let permutation = self.basis.automorphism(g);
        let mut image = RnsPoly::scratch(&self.basis, &self.ids);
        for j in 0..self.ids.len() {
            permutation.apply(self.limb(j), image.limb_mut(j));
        }
        image
    }

    /// self ← self·X^k for any integer k (modulo 2n; X^n = −1).
    pub fn mul_monomial_assign(&mut self, k: i64) {
        let n = self.n();
        let exponent = k.rem_euclid(2 * n as i64) as usize;
        let mut monomial = crate::words::Words::scratch(n);
        self.each(|ntt, limb| {
            ntt.monomial(exponent, &mut monomial);
            ntt.pointwise().mul_assign(limb, &monomial);
        });
    }

    /// round(a / p) for the last modulus p, under the others, as for coefficients. Takes one inverse transform, and one
    /// forward transform per remaining modulus.
    ///
    /// # Panics
    /// If there is only one modulus.
    pub fn divide_by_last_and_round(mut self) -> RnsPoly<Eval> {
        let (mut quotient, last, inverses) = self.split_last();
        let id = self.ids[last];
        let p = *self.basis.modulus(id);
        let basis = std::sync::Arc::clone(&self.basis);
        basis.ntt(id).inverse(self.limb_mut(last));
        let mut inverses = inverses.into_iter();
        let mut lifted = crate::words::Words::scratch(self.n());
        quotient.each(|ntt, limb| {
            ntt.pointwise().lift_centred(&mut lifted, self.limb(last), &p);
            ntt.forward(&mut lifted);
            ntt.pointwise().sub_assign(limb, &lifted);
            ntt.pointwise().mul_scalar_assign(limb, inverses.next().unwrap_or(1));
        });
        lifted.zeroize();
        self.zeroize();
        quotient
    }
}

impl<D: Domain> RnsPoly<D> {
    /// All limbs but the last, the index of the last limb, and p^−1 under each other modulus.
    pub(super) fn split_last(&self) -> (RnsPoly<D>, usize, Vec<u64>) {
        let last = self.ids.len() - 1;
        assert!(last > 0, "a modulus to divide by and one to stay");
        let p = self.basis.modulus(self.ids[last]).value();
        let inverses = self.ids[..last]
            .iter()
            .map(|&id| {
                let q = self.basis.modulus(id);
                // By Fermat: the moduli of a basis are distinct primes.
                q.pow(q.reduce(p), q.value() - 2)
            })
            .collect();
        (self.keep_limbs(&self.ids[..last]), last, inverses)
    }
}
