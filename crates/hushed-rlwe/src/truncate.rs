//! Polynomials over one or two primes as integers modulo Q' < 2^100, of which only the top bits are sent.
//!
//! A coefficient c is sent as ⌊(c + 2^(d-1))/2^d⌋ and read as that times 2^d modulo Q'; the error is at most 2^(d-1),
//! also where the rounding wraps past Q'. Only coefficients that are public or already uniformly masked come here, and
//! the time does not depend on them anyway.
//!
//! Layout: all N coefficients of a, then the chosen coefficients of b. A field wider than 64 bits is sent as two packed
//! lists, the low words first. Each list starts at a byte.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use hushed_math::bits::{pack_bits, packed_len, unpack_bits};
use hushed_math::{Coeff, Modulus, RnsPoly};

use crate::codec::Reader;
use crate::error::{CodecError, RlweError};
use crate::message::check_limbs;
use crate::noise::NoiseBound;
use crate::params::RlweParams;

/// How many low bits of each part are dropped, with derived sizes.
#[derive(Clone)]
pub struct Truncation {
    params: Arc<RlweParams>,
    limbs: usize,
    a: Field,
    b: Field,
}

/// One kind of coefficient: `drop` bits dropped, values up to `max` sent in `width` bits.
#[derive(Clone, Copy)]
struct Field {
    drop: u32,
    width: u32,
    max: u128,
}

impl Field {
    fn new(modulus: u128, drop: u32) -> Self {
        let half = (1u128 << drop) >> 1;
        let max = (modulus - 1 + half) >> drop;
        Self {
            drop,
            width: (128 - max.leading_zeros()).max(1),
            max,
        }
    }

    fn bytes(&self, count: usize) -> usize {
        let low = packed_len(count, self.width.min(64)).unwrap_or(usize::MAX);
        let high = packed_len(count, self.width.saturating_sub(64)).unwrap_or(usize::MAX);
        low.saturating_add(high)
    }

    fn write(&self, values: impl Iterator<Item = u128>, out: &mut Vec<u8>) {
        let half = (1u128 << self.drop) >> 1;
        let (low, high): (Vec<u64>, Vec<u64>) = values
            .map(|c| (c + half) >> self.drop)
            .map(|t| (t as u64, (t >> 64) as u64))
            .unzip();
        pack_bits(&low, self.width.min(64), out);
        if self.width > 64 {
            pack_bits(&high, self.width - 64, out);
        }
    }

    /// The integers that `write` rounded, not yet reduced modulo Q': their low and high words.
    fn read(&self, bytes: &mut Reader<'_>, count: usize) -> Result<[Vec<u64>; 2], CodecError> {
        let mut list = |width: u32| {
            let packed = bytes.take(packed_len(count, width).unwrap_or(usize::MAX))?;
            unpack_bits(packed, width, count).ok_or(CodecError::Padding)
        };
        let mut low = list(self.width.min(64))?;
        let mut high = if self.width > 64 {
            list(self.width - 64)?
        } else {
            vec![0; count]
        };
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

impl Truncation {
    /// Most primes that fit the integers used here.
    pub const MAX_LIMBS: usize = 2;

    /// Drops `bits_a` bits of a and `bits_b` bits of b, both modulo the first `limbs` primes.
    ///
    /// # Errors
    /// [`RlweError::LimbCount`] unless 1 ≤ limbs ≤ [`Truncation::MAX_LIMBS`]; [`RlweError::RingBits`] if more bits are
    /// to be dropped than there are.
    pub fn new(
        params: &Arc<RlweParams>,
        limbs: usize,
        bits_a: u32,
        bits_b: u32,
    ) -> Result<Self, RlweError> {
        let available = params.q_len().min(Self::MAX_LIMBS);
        if limbs == 0 || limbs > available {
            return Err(RlweError::LimbCount {
                given: limbs,
                available,
            });
        }
        let modulus = params
            .q()
            .iter()
            .take(limbs)
            .fold(1u128, |acc, &q| acc * u128::from(q));
        if let Some(&ell) = [bits_a, bits_b]
            .iter()
            .find(|&&bits| modulus >> bits.min(127) == 0)
        {
            return Err(RlweError::RingBits { ell });
        }
        let field = |bits| Field::new(modulus, bits);
        Ok(Self {
            params: params.clone(),
            limbs,
            a: field(bits_a),
            b: field(bits_b),
        })
    }

    /// The truncation that drops most, such that it and the noise that has `arrived` stay below `capacity` together;
    /// with that total noise. `None` if even the untruncated parts do not fit. Every bit dropped of either part saves
    /// the same; of equal savings the one with the least noise is taken.
    pub(crate) fn most(
        params: &Arc<RlweParams>,
        limbs: usize,
        arrived: &NoiseBound,
        capacity: f64,
    ) -> Result<Option<(Self, NoiseBound)>, RlweError> {
        let bits: u32 = (0..limbs).map(|i| params.basis().modulus(i).bits()).sum();
        let total = |(a, b)| arrived.add(&NoiseBound::truncation(params, a, b));
        let choice = (0..bits)
            .flat_map(|a| (0..bits).map(move |b| (a, b)))
            .filter(|&drop| total(drop).value() <= capacity)
            .max_by(|&x, &y| {
                let saved = (x.0 + x.1).cmp(&(y.0 + y.1));
                saved.then(total(y).value().total_cmp(&total(x).value()))
            });
        let Some(drop) = choice else { return Ok(None) };
        Ok(Some((
            Self::new(params, limbs, drop.0, drop.1)?,
            total(drop),
        )))
    }

    /// Bits sent for a coefficient of a and of b.
    pub fn widths(&self) -> (u32, u32) {
        (self.a.width, self.b.width)
    }

    /// Bytes for `used` coefficients of b.
    pub fn bytes(&self, used: usize) -> usize {
        self.a
            .bytes(self.params.n())
            .saturating_add(self.b.bytes(used))
    }

    /// Appends the top bits of `a`, and of `b` at the positions `used`.
    ///
    /// # Errors
    /// [`RlweError::Limbs`] if a part carries other primes, [`RlweError::Positions`].
    pub fn write(
        &self,
        b: &RnsPoly<Coeff>,
        a: &RnsPoly<Coeff>,
        used: &[usize],
        out: &mut Vec<u8>,
    ) -> Result<(), RlweError> {
        check_limbs(&self.params, a, self.limbs)?;
        check_limbs(&self.params, b, self.limbs)?;
        let b = self.integers(b);
        let chosen: Option<Vec<u128>> = used.iter().map(|&i| b.get(i).copied()).collect();
        let chosen = chosen.ok_or(RlweError::Positions { n: self.params.n() })?;
        out.reserve(self.bytes(used.len()));
        self.a.write(self.integers(a).into_iter(), out);
        self.b.write(chosen.into_iter(), out);
        Ok(())
    }

    /// Reads (b, a); the coefficients of b that were not sent are zero.
    ///
    /// # Errors
    /// [`RlweError::Codec`] for another length or values that no writer makes; [`RlweError::Positions`].
    pub fn read(
        &self,
        bytes: &[u8],
        used: &[usize],
    ) -> Result<(RnsPoly<Coeff>, RnsPoly<Coeff>), RlweError> {
        let n = self.params.n();
        let expected = self.bytes(used.len());
        if bytes.len() != expected {
            return Err(CodecError::Length {
                given: bytes.len(),
                expected,
            }
            .into());
        }
        let mut reader = Reader::new(bytes);
        let [low, high] = self.a.read(&mut reader, n)?;
        let a = self.residues(&low, &high);
        let place = |words: Vec<u64>| {
            let mut placed = vec![0; n];
            for (&i, word) in used.iter().zip(words) {
                *placed.get_mut(i).ok_or(RlweError::Positions { n })? = word;
            }
            Ok::<_, RlweError>(placed)
        };
        let [low, high] = self.b.read(&mut reader, used.len())?.map(place);
        Ok((self.residues(&low?, &high?), a))
    }

    /// The integers in [0, Q') that the residues stand for.
    fn integers(&self, poly: &RnsPoly<Coeff>) -> Vec<u128> {
        let low = poly.limb(0);
        let Some((m0, inverse)) = self.pair().filter(|_| self.limbs == 2) else {
            return low.iter().map(|&c| u128::from(c)).collect();
        };
        // Garner: c0 + q0·[(c1 − c0)/q0 mod q1] < q0·q1.
        let pointwise = self.params.basis().plan(1).pointwise();
        let mut t = vec![0; low.len()];
        pointwise.reduce(&mut t, low);
        pointwise.sub_assign(&mut t, poly.limb(1));
        pointwise.mul_scalar_assign(&mut t, pointwise.modulus().neg(inverse));
        low.iter()
            .zip(t)
            .map(|(&c0, t)| u128::from(c0) + u128::from(m0.value()) * u128::from(t))
            .collect()
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
    fn residues(&self, low: &[u64], high: &[u64]) -> RnsPoly<Coeff> {
        let (basis, ids) = (self.params.basis(), self.params.ciphertext_ids(self.limbs));
        let mut out = RnsPoly::scratch(basis, &ids);
        let mut upper = vec![0; high.len()];
        for &id in &ids {
            let (pointwise, out) = (basis.plan(id).pointwise(), out.limb_mut(id));
            let power = pointwise.modulus().reduce_u128(1 << 64);
            pointwise.reduce(out, low);
            pointwise.reduce(&mut upper, high);
            pointwise.mul_scalar_add_assign(out, &upper, power);
        }
        out
    }
}
