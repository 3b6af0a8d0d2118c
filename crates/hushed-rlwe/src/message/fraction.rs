//! C/Q modulo 1 in fixed point, from the residues of C: the core of scaling down.
//!
//! C/Q ≡ Σ_i y_i/q_i modulo 1 with y_i = [C·(Q/q_i)^-1] mod q_i. Each y_i/q_i is computed as y_i·⌊2^(64w)/q_i⌋ in w
//! words, too small by less than 2^(50-64w).

use hushed_math::poly::Domain;
use hushed_math::{RnsPoly, SecretPoly};

use crate::error::RlweError;
use crate::params::RlweParams;

pub(super) const MAX_WORDS: usize = 6;
const MIN_WORDS: usize = 3;

/// Converts residues to fractions, for the first primes of a parameter set.
#[derive(Clone)]
pub(super) struct Fractions {
    limbs: Vec<Limb>,
    words: usize,
}

#[derive(Clone)]
struct Limb {
    /// (Q/q_i)^-1 modulo q_i.
    garner: u64,
    /// ⌊2^(64·words)/q_i⌋, least significant word first.
    fraction: Vec<u64>,
}

impl Fractions {
    /// Fractions precise enough to round m·C/Q to the nearest integer for every C and every m below 2^`bits`. The
    /// distance of m·C/Q + 1/2 from the integer below is at least 1/(2Q) (Q is odd, so its numerator over 2Q never
    /// vanishes), and the error stays below that if 64w ≥ bits + 51 + log2(primes) + log2(Q).
    pub(super) fn new(params: &RlweParams, limbs: usize, bits: u32) -> Result<Self, RlweError> {
        let bad_count = || RlweError::LimbCount { given: limbs, available: params.q_len() };
        if limbs == 0 || limbs > params.q_len() {
            return Err(bad_count());
        }
        let log_q: u32 = (0..limbs).map(|i| params.basis().modulus(i).bits()).sum();
        let log_limbs = limbs.next_power_of_two().trailing_zeros();
        let words = (bits + 51 + log_limbs + log_q).div_ceil(64).max(MIN_WORDS as u32) as usize;
        if words > MAX_WORDS {
            return Err(bad_count());
        }
        let limbs = (0..limbs).map(|i| {
            let m = *params.basis().modulus(i);
            let others = (0..limbs).filter(|&j| j != i);
            let cofactor = params.product_modulo(others, i);
            // The primes are distinct, so the inverse exists.
            let garner = m.inv(cofactor).ok_or_else(bad_count)?;
            Ok(Limb { garner, fraction: reciprocal(m.value(), words) })
        });
        Ok(Self { limbs: limbs.collect::<Result<_, RlweError>>()?, words })
    }

    pub(super) fn limbs(&self) -> usize {
        self.limbs.len()
    }

    pub(super) fn words(&self) -> usize {
        self.words
    }

    /// Calls `finish` for each position i, in order, with the words of start + C_i/Q modulo 1, least significant first.
    /// W is [`Fractions::words`].
    pub(super) fn for_each<D: Domain, const W: usize>(
        &self,
        c: &RnsPoly<D>,
        positions: impl Iterator<Item = usize>,
        start: [u64; W],
        mut finish: impl FnMut([u64; W]),
    ) {
        let garner: Vec<u64> = self.limbs.iter().map(|limb| limb.garner).collect();
        let mut y = SecretPoly::new(c.clone());
        y.expose_mut().mul_scalar_assign(&garner);
        let limbs = self.limbs.iter().enumerate();
        let terms: Vec<(&[u64], [u64; W])> = limbs
            .map(|(j, limb)| {
                let mut fraction = [0; W];
                fraction.copy_from_slice(&limb.fraction);
                (y.expose().limb(j), fraction)
            })
            .collect();
        for i in positions {
            let mut sum = start;
            for (y, fraction) in &terms {
                let y = u128::from(y[i]);
                let mut carry = 0u128;
                for (sum, &f) in sum.iter_mut().zip(fraction) {
                    // < 2^50·2^64 + 2^64 + 2^51: no overflow.
                    let t = y * u128::from(f) + u128::from(*sum) + carry;
                    *sum = t as u64;
                    carry = t >> 64;
                }
                // The carry out of the top word is an integer, which is zero modulo 1.
            }
            finish(sum);
        }
    }
}

/// Calls `$body` with the constant `$w` equal to the number of words.
macro_rules! with_words {
    ($words:expr, $w:ident => $body:expr) => {
        match $words {
            3 => {
                const $w: usize = 3;
                $body
            }
            4 => {
                const $w: usize = 4;
                $body
            }
            5 => {
                const $w: usize = 5;
                $body
            }
            _ => {
                const $w: usize = $crate::message::fraction::MAX_WORDS;
                $body
            }
        }
    };
}
pub(super) use with_words;

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
