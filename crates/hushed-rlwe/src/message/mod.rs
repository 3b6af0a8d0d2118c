//! Coefficient encoding modulo 2^ℓ, exact in both directions, for 1 ≤ ℓ ≤ 64.
//!
//! A share x modulo 2^ℓ is represented by ⌊Q/2^ℓ · x⌉ modulo Q, so that sums and products with integers act modulo 2^ℓ
//! without any slot structure (BumbleBee, NDSS 2025, Appendix C; t = 2^ℓ with the scaling done here, not by a BFV
//! plaintext modulus). Rounding is half up throughout; Q is odd, so there are no ties when scaling down.
//!
//! *Up.* With r = (Q·x + 2^(ℓ-1)) mod 2^ℓ, ⌊Q·x/2^ℓ + 1/2⌋ = (Q·x + 2^(ℓ-1) − r)/2^ℓ, and Q ≡ 0 modulo q_i, so the
//! residue is (2^(ℓ-1) − r)·2^-ℓ mod q_i: one word product for r, and one modular product per prime.
//!
//! *Down.* The top ℓ bits of the fraction C/Q in fixed point (`message::fraction`), in as many words as make the
//! rounding exact.
//!
//! Shares are secret: no branch and no index depends on them.

mod fraction;
mod prime;

use std::sync::Arc;

use hushed_math::poly::Domain;
use hushed_math::{Coeff, RnsPoly};
use zeroize::Zeroizing;

use fraction::{Fractions, with_words};
pub use prime::PrimeScale;

use crate::error::RlweError;
use crate::params::RlweParams;

/// Converts between Z modulo 2^ℓ and the first primes of a parameter set.
#[derive(Clone)]
pub struct RingScale {
    params: Arc<RlweParams>,
    ell: u32,
    fractions: Fractions,
    /// Q modulo 2^64.
    q_word: u64,
    /// 2^-ℓ modulo every q_i.
    inverses: Vec<u64>,
}

impl RingScale {
    /// Scaling between `ell`-bit shares and ciphertexts of the first `limbs` primes.
    ///
    /// # Errors
    /// [`RlweError::RingBits`], [`RlweError::LimbCount`] for values out of range (also for a modulus beyond 2^260,
    /// which carries no shares).
    pub fn new(params: &Arc<RlweParams>, limbs: usize, ell: u32) -> Result<Self, RlweError> {
        if !(1..=64).contains(&ell) {
            return Err(RlweError::RingBits { ell });
        }
        let fractions = Fractions::new(params, limbs, ell)?;
        let q_word = params.q().iter().take(limbs).fold(1u64, |acc, &q| acc.wrapping_mul(q));
        let inverses = (0..limbs)
            .map(|i| params.basis().modulus(i))
            // The primes are odd, so the inverse exists.
            .map(|m| m.inv(m.reduce_u128(1u128 << ell)).ok_or(RlweError::RingBits { ell }))
            .collect::<Result<_, _>>()?;
        Ok(Self { params: params.clone(), ell, fractions, q_word, inverses })
    }

    /// The bits of a share.
    pub fn ell(&self) -> u32 {
        self.ell
    }

    /// The number of primes of the ciphertexts.
    pub fn limbs(&self) -> usize {
        self.fractions.limbs()
    }

    /// ⌊Q/2^ℓ · x_i⌉ for N shares (bits above ℓ are ignored).
    ///
    /// # Errors
    /// [`RlweError::Count`] unless `x` has N entries.
    pub fn scale_up(&self, x: &[u64]) -> Result<RnsPoly<Coeff>, RlweError> {
        let n = self.params.n();
        if x.len() != n {
            return Err(RlweError::Count { given: x.len(), expected: n });
        }
        let mask = u64::MAX >> (64 - self.ell);
        let half = 1u64 << (self.ell - 1);
        let remainders: Zeroizing<Vec<u64>> =
            Zeroizing::new(x.iter().map(|&x| self.q_word.wrapping_mul(x).wrapping_add(half) & mask).collect());
        let mut out = RnsPoly::scratch(self.params.basis(), &self.params.ciphertext_ids(self.limbs()));
        for (j, &inverse) in self.inverses.iter().enumerate() {
            let m = self.params.basis().modulus(j);
            let half = m.mul(m.reduce(half), inverse);
            let (pointwise, out) = (self.params.basis().ntt(j).pointwise(), out.limb_mut(j));
            pointwise.reduce(out, &remainders);
            pointwise.mul_scalar_assign(out, inverse);
            out.iter_mut().for_each(|x| *x = m.sub(half, *x));
        }
        Ok(out)
    }

    /// ⌊2^ℓ/Q · c_i⌉ mod 2^ℓ for every coefficient of `c`.
    ///
    /// # Errors
    /// [`RlweError::Limbs`] unless `c` carries exactly the primes of this scale.
    pub fn scale_down(&self, c: &RnsPoly<Coeff>) -> Result<Vec<u64>, RlweError> {
        check_limbs(&self.params, c, self.limbs())?;
        Ok(self.scale_down_unchecked(c, 0..self.params.n()))
    }

    /// As [`RingScale::scale_down`], for only the coefficients at `positions`, in that order.
    ///
    /// # Errors
    /// [`RlweError::Limbs`] likewise; [`RlweError::Positions`] for a position outside the ring.
    pub fn scale_down_at(&self, c: &RnsPoly<Coeff>, positions: &[usize]) -> Result<Vec<u64>, RlweError> {
        check_limbs(&self.params, c, self.limbs())?;
        let n = self.params.n();
        if positions.iter().any(|&i| i >= n) {
            return Err(RlweError::Positions { n });
        }
        Ok(self.scale_down_unchecked(c, positions.iter().copied()))
    }

    fn scale_down_unchecked(&self, c: &RnsPoly<Coeff>, positions: impl ExactSizeIterator<Item = usize>) -> Vec<u64> {
        let mut out = Vec::with_capacity(positions.len());
        with_words!(self.fractions.words(), W => {
            // One half of the last place: bit 64W − ℓ − 1.
            let mut half = [0; W];
            let at = 64 * W as u32 - self.ell - 1;
            half[(at / 64) as usize] = 1 << (at % 64);
            self.fractions.for_each(c, positions, half, |sum: [u64; W]| {
                out.push(sum[W - 1] >> (64 - self.ell));
            });
        });
        out
    }
}

/// Checks that `c` is over exactly the first `limbs` primes of `params`.
pub(crate) fn check_limbs<D: Domain>(params: &RlweParams, c: &RnsPoly<D>, limbs: usize) -> Result<(), RlweError> {
    if !Arc::ptr_eq(c.basis(), params.basis()) {
        return Err(RlweError::IncompatibleParameters);
    }
    if c.ids().iter().copied().eq(0..limbs) {
        return Ok(());
    }
    Err(RlweError::Limbs { given: c.ids().to_vec(), expected: params.ciphertext_ids(limbs) })
}
