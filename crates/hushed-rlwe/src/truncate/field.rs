//! Integers modulo Q' < 2^100, the product of one or two primes, and the top bits of lists of them.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use hushed_math::bits::{pack_bits, packed_len, unpack_bits};
use hushed_math::{Coeff, Modulus, RnsPoly};

use crate::codec::Reader;
use crate::error::{CodecError, RlweError};
use crate::params::RlweParams;

/// The most primes that fit the integers used here.
pub(super) const MAX_LIMBS: usize = 2;

/// A kind of coefficient: `drop` bits are dropped, and values up to `max` are sent in `width` bits.
#[derive(Clone, Copy)]
pub(super) struct Field {
    drop: u32,
    pub(super) width: u32,
    max: u128,
}

impl Field {
    /// # Errors
    /// [`RlweError::RingBits`] for dropping more bits than there are.
    pub(super) fn new(modulus: u128, drop: u32) -> Result<Self, RlweError> {
        if modulus >> drop.min(127) == 0 {
            return Err(RlweError::RingBits { ell: drop });
        }
        let half = (1u128 << drop) >> 1;
        let max = (modulus - 1 + half) >> drop;
        Ok(Self { drop, width: (128 - max.leading_zeros()).max(1), max })
    }

    pub(super) fn bytes(&self, count: usize) -> usize {
        let low = packed_len(count, self.width.min(64)).unwrap_or(usize::MAX);
        let high = packed_len(count, self.width.saturating_sub(64)).unwrap_or(usize::MAX);
        low.saturating_add(high)
    }

    pub(super) fn write(&self, values: impl Iterator<Item = u128>, out: &mut Vec<u8>) {
        let half = (1u128 << self.drop) >> 1;
        let (low, high): (Vec<u64>, Vec<u64>) =
            values.map(|c| (c + half) >> self.drop).map(|t| (t as u64, (t >> 64) as u64)).unzip();
        pack_bits(&low, self.width.min(64), out);
        if self.width > 64 {
            pack_bits(&high, self.width - 64, out);
        }
    }

    /// The low and high words of the integers that `write` rounded, not yet reduced modulo Q'.
    pub(super) fn read(&self, bytes: &mut Reader<'_>, count: usize) -> Result<[Vec<u64>; 2], CodecError> {
        let mut list = |width: u32| {
            let packed = bytes.take(packed_len(count, width).unwrap_or(usize::MAX))?;
            unpack_bits(packed, width, count).ok_or(CodecError::Padding)
        };
        let mut low = list(self.width.min(64))?;
        let mut high = if self.width > 64 { list(self.width - 64)? } else { vec![0; count] };
        for (low, high) in low.iter_mut().zip(&mut high) {
            let t = u128::from(*high) << 64 | u128::from(*low);
            if t > self.max {
                return Err(CodecError::Coefficient);
            }
            let t = t << self.drop;
            (*low, *high) = (t as u64, (t >> 64) as u64);
        }
        Ok([low, high])
    }
}

/// Converts polynomials over the first primes to integers modulo their product, and back.
#[derive(Clone)]
pub(super) struct Integers {
    pub(super) params: Arc<RlweParams>,
    pub(super) limbs: usize,
}

impl Integers {
    /// # Errors
    /// [`RlweError::LimbCount`] unless 1 ≤ limbs ≤ [`MAX_LIMBS`].
    pub(super) fn new(params: &Arc<RlweParams>, limbs: usize) -> Result<Self, RlweError> {
        let available = params.q_len().min(MAX_LIMBS);
        if limbs == 0 || limbs > available {
            return Err(RlweError::LimbCount { given: limbs, available });
        }
        Ok(Self { params: params.clone(), limbs })
    }

    /// Q'.
    pub(super) fn modulus(&self) -> u128 {
        let primes = self.params.q().iter().take(self.limbs);
        primes.fold(1, |product, &q| product * u128::from(q))
    }

    /// The integers in [0, Q') that the residues represent.
    pub(super) fn of(&self, poly: &RnsPoly<Coeff>) -> Vec<u128> {
        let low = poly.limb(0);
        let Some((m0, inverse)) = self.pair().filter(|_| self.limbs == 2) else {
            return low.iter().map(|&c| u128::from(c)).collect();
        };
        // Garner: c0 + q0·[(c1 − c0)/q0 mod q1] < q0·q1.
        let pointwise = self.params.basis().ntt(1).pointwise();
        let mut t = vec![0; low.len()];
        pointwise.reduce(&mut t, low);
        pointwise.sub_assign(&mut t, poly.limb(1));
        pointwise.mul_scalar_assign(&mut t, pointwise.modulus().neg(inverse));
        low.iter().zip(t).map(|(&c0, t)| u128::from(c0) + u128::from(m0.value()) * u128::from(t)).collect()
    }

    /// q_0, and its inverse modulo q_1.
    fn pair(&self) -> Option<(Modulus, u64)> {
        if self.params.q_len() < 2 {
            return None;
        }
        let basis = self.params.basis();
        let (m0, m1) = (*basis.modulus(0), basis.modulus(1));
        Some((m0, m1.inv(m1.reduce(m0.value()))?))
    }

    /// The residues of low + 2^64·high.
    pub(super) fn residues(&self, low: &[u64], high: &[u64]) -> RnsPoly<Coeff> {
        let (basis, ids) = (self.params.basis(), self.params.ciphertext_ids(self.limbs));
        let mut out = RnsPoly::scratch(basis, &ids);
        let mut upper = vec![0; high.len()];
        for &id in &ids {
            let (pointwise, out) = (basis.ntt(id).pointwise(), out.limb_mut(id));
            let power = pointwise.modulus().reduce_u128(1 << 64);
            pointwise.reduce(out, low);
            pointwise.reduce(&mut upper, high);
            pointwise.mul_scalar_add_assign(out, &upper, power);
        }
        out
    }
}
