//! Coefficients modulo an odd t, exact in both directions: they carry the batch encoding modulo a prime.
//!
//! *Up*: with h = (t-1)/2 and r = (Q·x + h) mod t, ⌊Q·x/t⌉ = (Q·x + h − r)/t, so the residue is (h − r)·t^-1 mod q_i.
//! *Down*: the fraction C/Q times t, rounded, modulo t. Neither has ties: Q and t are odd and coprime.

use std::sync::Arc;

use hushed_math::{Coeff, Modulus, RnsPoly};
use zeroize::Zeroizing;

use super::check_limbs;
use super::fraction::{Fractions, with_words};
use crate::error::RlweError;
use crate::params::RlweParams;

/// Converts between Z modulo an odd t and the first primes of a parameter set.
#[derive(Clone)]
pub struct PrimeScale {
    params: Arc<RlweParams>,
    t: Modulus,
    fractions: Fractions,
    /// Q modulo t.
    q_mod_t: u64,
    /// t^-1 modulo every q_i.
    inverses: Vec<u64>,
}

impl PrimeScale {
    /// Scaling between residues modulo `t` and ciphertexts of the first `limbs` primes.
    ///
    /// # Errors
    /// [`RlweError::LimbCount`]; [`RlweError::Math`] if t is not an odd number between 3 and 2^50;
    /// [`RlweError::PlainModulus`] if t shares a factor with Q.
    pub fn new(params: &Arc<RlweParams>, limbs: usize, t: u64) -> Result<Self, RlweError> {
        let plain = Modulus::new(t)?;
        let fractions = Fractions::new(params, limbs, plain.bits())?;
        let q_mod_t = params.q().iter().take(limbs);
        let q_mod_t = q_mod_t.fold(1, |acc, &q| plain.mul(acc, plain.reduce(q)));
        let moduli = (0..limbs).map(|i| params.basis().modulus(i));
        let inverses =
            moduli.map(|m| m.inv(m.reduce(t)).ok_or(RlweError::PlainModulus { t })).collect::<Result<_, _>>()?;
        Ok(Self { params: params.clone(), t: plain, fractions, q_mod_t, inverses })
    }

    /// The modulus t.
    pub fn modulus(&self) -> &Modulus {
        &self.t
    }

    /// The number of primes of the ciphertexts.
    pub fn limbs(&self) -> usize {
        self.fractions.limbs()
    }

    /// ⌊Q/t · x_i⌉ for N residues below t.
    ///
    /// # Errors
    /// [`RlweError::Count`] unless `x` has N entries.
    pub fn scale_up(&self, x: &[u64]) -> Result<RnsPoly<Coeff>, RlweError> {
        let n = self.params.n();
        if x.len() != n {
            return Err(RlweError::Count { given: x.len(), expected: n });
        }
        let t = &self.t;
        let half = t.value() / 2;
        let remainder = |&x: &u64| t.add(t.mul(self.q_mod_t, t.reduce(x)), half);
        let remainders: Zeroizing<Vec<u64>> = Zeroizing::new(x.iter().map(remainder).collect());
        let mut out = RnsPoly::zero(self.params.basis(), &self.params.ciphertext_ids(self.limbs()));
        for (j, &inverse) in self.inverses.iter().enumerate() {
            let m = self.params.basis().modulus(j);
            let half = m.mul(m.reduce(half), inverse);
            for (out, &r) in out.limb_mut(j).iter_mut().zip(remainders.iter()) {
                *out = m.sub(half, m.mul(m.reduce(r), inverse));
            }
        }
        Ok(out)
    }

    /// ⌊t/Q · c_i⌉ mod t for every coefficient of `c`.
    ///
    /// # Errors
    /// [`RlweError::Limbs`] unless `c` carries exactly the primes of this scale.
    pub fn scale_down(&self, c: &RnsPoly<Coeff>) -> Result<Vec<u64>, RlweError> {
        check_limbs(&self.params, c, self.limbs())?;
        let n = self.params.n();
        let t = u128::from(self.t.value());
        let mut out = Vec::with_capacity(n);
        with_words!(self.fractions.words(), W => {
            self.fractions.for_each(c, 0..n, [0; W], |fraction: [u64; W]| {
                // t·fraction + 1/2: the carry out of the top word is the integer part, at most t.
                let last = fraction.len() - 1;
                let carry = fraction.iter().enumerate().fold(0u128, |carry, (w, &f)| {
                    let half = if w == last { 1u128 << 63 } else { 0 };
                    (t * u128::from(f) + carry + half) >> 64
                });
                out.push(self.t.reduce(carry as u64));
            });
        });
        Ok(out)
    }
}
