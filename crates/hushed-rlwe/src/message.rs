//! Coefficient encoding modulo 2^ℓ, exact in both directions, for 1 ≤ ℓ ≤ 64.
//!
//! A share x modulo 2^ℓ is carried as ⌊Q/2^ℓ · x⌉ modulo Q, so that sums and products with integers act
//! modulo 2^ℓ without any slot structure (BumbleBee, NDSS 2025, Appendix C; t = 2^ℓ with the scaling done here,
//! not by a BFV plaintext modulus). Rounding is half up throughout; since Q is odd there are no ties when scaling down.
//!
//! *Up.* With r = (Q·x + 2^(ℓ-1)) mod 2^ℓ, ⌊Q·x/2^ℓ + 1/2⌋ = (Q·x + 2^(ℓ-1) − r)/2^ℓ, and Q ≡ 0 modulo q_i, so the residue is
//! (2^(ℓ-1) − r)·2^-ℓ mod q_i: one word product for r, one modular product a prime.
//!
//! *Down.* C/Q ≡ Σ_i y_i/q_i modulo 1 with y_i = [C·(Q/q_i)^-1] mod q_i. Every y_i/q_i is taken as
//! y_i·⌊2^(64w)/q_i⌋ in w words, too small by less than 2^(50-64w). The distance of 2^ℓ·C/Q + 1/2 to the integer below it is
//! at least 1/(2Q) (its numerator over 2Q is odd), so the result is exact when
//! 64w ≥ ℓ + 51 + log2(primes) + log2(Q), and w is chosen so.
//!
//! Shares are secret: no branch and no index depends on them.

use std::sync::Arc;

use hushed_math::bits::pack_bits;
use hushed_math::poly::Domain;
use hushed_math::{Coeff, Modulus, RnsPoly};
use zeroize::Zeroizing;

use crate::error::RlweError;
use crate::params::RlweParams;

/// Conversion between Z modulo 2^ℓ and the first primes of a parameter set.
#[derive(Clone)]
pub struct RingScale {
    params: Arc<RlweParams>,
    ell: u32,
    limbs: Vec<LimbScale>,
    /// Q modulo 2^64.
    q_word: u64,
    /// Words of the fixed-point fractions.
    words: usize,
}

#[derive(Clone)]
struct LimbScale {
    modulus: Modulus,
    /// 2^-ℓ modulo q_i.
    inv_two_ell: u64,
    /// (Q/q_i)^-1 modulo q_i.
    garner: u64,
    /// ⌊2^(64·words)/q_i⌋, least significant word first.
    fraction: Vec<u64>,
}

impl RingScale {
    /// Scaling between `ell`-bit shares and ciphertexts of the first `limbs` primes.
    ///
    /// # Errors
    /// [`RlweError::RingBits`], [`RlweError::LimbCount`] for values out of range (also for a modulus beyond 2^260,
    /// where no share is carried).
    pub fn new(params: &Arc<RlweParams>, limbs: usize, ell: u32) -> Result<Self, RlweError> {
        if !(1..=64).contains(&ell) {
            return Err(RlweError::RingBits { ell });
        }
        let bad_count = RlweError::LimbCount {
            given: limbs,
            available: params.q_len(),
        };
        // 50-bit primes and MAX_WORDS words: at most five primes, four of them at ℓ = 64.
        let log_q: u32 = (0..limbs.min(params.q_len()))
            .map(|i| params.basis().modulus(i).bits())
            .sum();
        let words = (ell + 51 + 4 + log_q).div_ceil(64).max(MIN_WORDS as u32) as usize;
        if limbs == 0 || limbs > params.q_len() || words > MAX_WORDS {
            return Err(bad_count);
        }
        let q_word = params
            .q()
            .iter()
            .take(limbs)
            .fold(1u64, |acc, &q| acc.wrapping_mul(q));
        let limbs = (0..limbs)
            .map(|i| {
                let m = *params.basis().modulus(i);
                let others = params
                    .q()
                    .iter()
                    .take(limbs)
                    .enumerate()
                    .filter(|(j, _)| *j != i);
                let cofactor = others.fold(1, |acc, (_, &q)| m.mul(acc, m.reduce(q)));
                Some(LimbScale {
                    modulus: m,
                    inv_two_ell: m.inv(m.reduce_u128(1u128 << ell))?,
                    garner: m.inv(cofactor)?,
                    fraction: reciprocal(m.value(), words),
                })
            })
            // Distinct odd primes: every inverse exists.
            .collect::<Option<Vec<_>>>()
            .ok_or(bad_count)?;
        Ok(Self {
            params: params.clone(),
            ell,
            limbs,
            q_word,
            words,
        })
    }

    /// Bits of a share.
    pub fn ell(&self) -> u32 {
        self.ell
    }

    /// Primes of the ciphertexts.
    pub fn limbs(&self) -> usize {
        self.limbs.len()
    }

    /// ⌊Q/2^ℓ · x_i⌉ for N shares (bits above ℓ are ignored).
    ///
    /// # Errors
    /// [`RlweError::Count`] unless `x` has N entries.
    pub fn scale_up(&self, x: &[u64]) -> Result<RnsPoly<Coeff>, RlweError> {
        let n = self.params.n();
        if x.len() != n {
            return Err(RlweError::Count {
                given: x.len(),
                expected: n,
            });
        }
        let mask = u64::MAX >> (64 - self.ell);
        let half = 1u64 << (self.ell - 1);
        let remainders: Zeroizing<Vec<u64>> = Zeroizing::new(
            x.iter()
                .map(|&x| self.q_word.wrapping_mul(x).wrapping_add(half) & mask)
                .collect(),
        );
        let mut out = RnsPoly::zero(
            self.params.basis(),
            &self.params.ciphertext_ids(self.limbs()),
        );
        for (j, limb) in self.limbs.iter().enumerate() {
            let m = &limb.modulus;
            let half = m.mul(m.reduce(half), limb.inv_two_ell);
            for (out, &r) in out.limb_mut(j).iter_mut().zip(remainders.iter()) {
                *out = m.sub(half, m.mul(m.reduce(r), limb.inv_two_ell));
            }
        }
        Ok(out)
    }

    /// ⌊2^ℓ/Q · c_i⌉ mod 2^ℓ for every coefficient of `c`.
    ///
    /// # Errors
    /// [`RlweError::Limbs`] unless `c` carries exactly the primes of this scale.
    pub fn scale_down(&self, c: &RnsPoly<Coeff>) -> Result<Vec<u64>, RlweError> {
        let mut out = vec![0; self.params.n()];
        self.check(c)?;
        self.scale_down_unchecked(c, 0..self.params.n(), &mut out);
        Ok(out)
    }

    /// As [`RingScale::scale_down`], only for the coefficients at `positions`, in their order.
    ///
    /// # Errors
    /// [`RlweError::Limbs`] as there; [`RlweError::Positions`] for a position outside the ring.
    pub fn scale_down_at(
        &self,
        c: &RnsPoly<Coeff>,
        positions: &[usize],
    ) -> Result<Vec<u64>, RlweError> {
        self.check(c)?;
        let n = self.params.n();
        if positions.iter().any(|&i| i >= n) {
            return Err(RlweError::Positions { n });
        }
        let mut out = vec![0; positions.len()];
        self.scale_down_unchecked(c, positions.iter().copied(), &mut out);
        Ok(out)
    }

    /// As [`RingScale::scale_down`], appending the shares to `out` at ℓ bits each, densely packed.
    ///
    /// # Errors
    /// [`RlweError::Limbs`] as there.
    pub fn scale_down_packed(
        &self,
        c: &RnsPoly<Coeff>,
        out: &mut Vec<u8>,
    ) -> Result<(), RlweError> {
        let shares = Zeroizing::new(self.scale_down(c)?);
        pack_bits(&shares, self.ell, out);
        Ok(())
    }

    fn check(&self, c: &RnsPoly<Coeff>) -> Result<(), RlweError> {
        check_limbs(&self.params, c, self.limbs())
    }

    fn scale_down_unchecked(
        &self,
        c: &RnsPoly<Coeff>,
        positions: impl Iterator<Item = usize>,
        out: &mut [u64],
    ) {
        match self.words {
            3 => self.scale_down_words::<3>(c, positions, out),
            4 => self.scale_down_words::<4>(c, positions, out),
            5 => self.scale_down_words::<5>(c, positions, out),
            _ => self.scale_down_words::<MAX_WORDS>(c, positions, out),
        }
    }

    /// The fixed-point sum, W = self.words words a fraction.
    fn scale_down_words<const W: usize>(
        &self,
        c: &RnsPoly<Coeff>,
        positions: impl Iterator<Item = usize>,
        out: &mut [u64],
    ) {
        // One half of the last place: bit 64W − ℓ − 1.
        let mut start = [0u64; W];
        let at = 64 * W as u32 - self.ell - 1;
        start[(at / 64) as usize] = 1 << (at % 64);
        let terms: Vec<(&LimbScale, &[u64], [u64; W])> = self
            .limbs
            .iter()
            .enumerate()
            .map(|(j, limb)| {
                let mut fraction = [0; W];
                fraction.copy_from_slice(&limb.fraction);
                (limb, c.limb(j), fraction)
            })
            .collect();
        for (out, i) in out.iter_mut().zip(positions) {
            let mut sum = start;
            for (limb, residues, fraction) in &terms {
                let y = u128::from(limb.modulus.mul(residues[i], limb.garner));
                let mut carry = 0u128;
                for (sum, &f) in sum.iter_mut().zip(fraction) {
                    // < 2^50·2^64 + 2^64 + 2^51: no overflow.
                    let t = y * u128::from(f) + u128::from(*sum) + carry;
                    *sum = t as u64;
                    carry = t >> 64;
                }
                // The carry out of the top word is an integer: nothing modulo 1.
            }
            *out = sum[W - 1] >> (64 - self.ell);
        }
    }
}

/// Integers as a polynomial over the first `limbs` primes, unscaled: what multiplies a ciphertext.
/// For a share modulo 2^ℓ use its signed representative ([`signed_share`]): it is half as large.
///
/// # Errors
/// [`RlweError::Count`] unless there are N of them, [`RlweError::LimbCount`].
pub fn plain_signed(
    params: &RlweParams,
    limbs: usize,
    values: &[i64],
) -> Result<RnsPoly<Coeff>, RlweError> {
    if limbs == 0 || limbs > params.q_len() {
        return Err(RlweError::LimbCount {
            given: limbs,
            available: params.q_len(),
        });
    }
    if values.len() != params.n() {
        return Err(RlweError::Count {
            given: values.len(),
            expected: params.n(),
        });
    }
    Ok(RnsPoly::from_signed(
        params.basis(),
        &params.ciphertext_ids(limbs),
        values,
    ))
}

/// The representative of a share in [-2^(ℓ-1), 2^(ℓ-1)), constant time.
pub fn signed_share(x: u64, ell: u32) -> i64 {
    let shift = 64 - ell;
    ((x << shift) as i64) >> shift
}

/// Whether `c` carries exactly the first `limbs` primes of `params`.
pub(crate) fn check_limbs<D: Domain>(
    params: &RlweParams,
    c: &RnsPoly<D>,
    limbs: usize,
) -> Result<(), RlweError> {
    if !Arc::ptr_eq(c.basis(), params.basis()) {
        return Err(RlweError::IncompatibleParameters);
    }
    if c.ids().iter().copied().eq(0..limbs) {
        return Ok(());
    }
    Err(RlweError::Limbs {
        given: c.ids().to_vec(),
        expected: params.ciphertext_ids(limbs),
    })
}

const MIN_WORDS: usize = 3;
const MAX_WORDS: usize = 6;

/// ⌊2^(64·words)/q⌋ by long division, least significant word first.
fn reciprocal(q: u64, words: usize) -> Vec<u64> {
    let mut out = vec![0; words];
    let mut remainder = 1u128;
    for word in out.iter_mut().rev() {
        let dividend = remainder << 64;
        *word = (dividend / u128::from(q)) as u64;
        remainder = dividend % u128::from(q);
    }
    out
}
