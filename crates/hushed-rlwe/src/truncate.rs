//! Polynomials over one or two primes as integers modulo Q' < 2^100, of which only the top bits are sent.
//!
//! A coefficient c is sent as ⌊(c + 2^(d-1))/2^d⌋ and read as that times 2^d modulo Q'; the error is at most 2^(d-1),
//! even if the rounding wraps past Q'. Only coefficients that are public or already uniformly masked come here, and the
//! running time does not depend on them anyway.
//!
//! Layout: all N coefficients of a, then the chosen coefficients of b. A field wider than 64 bits is sent as two packed
//! lists, low words first. Each list starts at a byte boundary.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod field;
mod seeded;

use std::sync::Arc;

use hushed_math::{Coeff, RnsPoly};

use crate::codec::Reader;
use crate::error::{CodecError, RlweError};
use crate::message::check_limbs;
use crate::noise::NoiseBound;
use crate::params::RlweParams;
use field::{Field, Integers};

pub use seeded::SeededFormat;

/// The number of low bits dropped from each part, with derived sizes.
#[derive(Clone)]
pub struct Truncation {
    integers: Integers,
    a: Field,
    b: Field,
}

impl Truncation {
    /// The most primes that fit the integers used here.
    pub const MAX_LIMBS: usize = field::MAX_LIMBS;

    /// Drops `bits_a` bits of a and `bits_b` bits of b, both modulo the first `limbs` primes.
    ///
    /// # Errors
    /// [`RlweError::LimbCount`] unless 1 ≤ limbs ≤ [`Truncation::MAX_LIMBS`]; [`RlweError::RingBits`] for dropping more
    /// bits than there are.
    pub fn new(params: &Arc<RlweParams>, limbs: usize, bits_a: u32, bits_b: u32) -> Result<Self, RlweError> {
        let integers = Integers::new(params, limbs)?;
        let modulus = integers.modulus();
        Ok(Self { a: Field::new(modulus, bits_a)?, b: Field::new(modulus, bits_b)?, integers })
    }

    /// The truncation that drops the most bits while its error and the noise that has `arrived` together stay below
    /// `capacity`; also returns that total noise. `None` if even the untruncated parts do not fit. Each bit dropped
    /// from either part saves the same; among equal savings, the least noise wins.
    pub(crate) fn most(
        params: &Arc<RlweParams>,
        limbs: usize,
        arrived: &NoiseBound,
        capacity: f64,
    ) -> Result<Option<(Self, NoiseBound)>, RlweError> {
        let bits: u32 = (0..limbs).map(|i| params.basis().modulus(i).bits()).sum();
        let total = |(a, b)| arrived.add(&NoiseBound::truncation(params, a, b));
        // The more of a is dropped, the less of b can be.
        let mut b = bits;
        let most = |a: u32| {
            while total((a, b.checked_sub(1)?)).value() > capacity {
                b -= 1;
            }
            Some((a, b - 1))
        };
        let choice = (0..bits).map_while(most).max_by(|&x, &y| {
            let saved = (x.0 + x.1).cmp(&(y.0 + y.1));
            saved.then(total(y).value().total_cmp(&total(x).value()))
        });
        let Some(drop) = choice else { return Ok(None) };
        Ok(Some((Self::new(params, limbs, drop.0, drop.1)?, total(drop))))
    }

    /// Bits sent per coefficient of a and of b.
    pub fn widths(&self) -> (u32, u32) {
        (self.a.width, self.b.width)
    }

    /// The bytes for `used` coefficients of b.
    pub fn bytes(&self, used: usize) -> usize {
        self.a.bytes(self.integers.params.n()).saturating_add(self.b.bytes(used))
    }

    /// Appends the top bits of `a`, and of `b` at the positions `used`.
    ///
    /// # Errors
    /// [`RlweError::Limbs`] if a part has other primes; [`RlweError::Positions`].
    pub fn write(
        &self,
        b: &RnsPoly<Coeff>,
        a: &RnsPoly<Coeff>,
        used: &[usize],
        out: &mut Vec<u8>,
    ) -> Result<(), RlweError> {
        let Integers { params, limbs } = &self.integers;
        check_limbs(params, a, *limbs)?;
        check_limbs(params, b, *limbs)?;
        let b = self.integers.of(b);
        let chosen: Option<Vec<u128>> = used.iter().map(|&i| b.get(i).copied()).collect();
        let chosen = chosen.ok_or(RlweError::Positions { n: params.n() })?;
        out.reserve(self.bytes(used.len()));
        self.a.write(self.integers.of(a).into_iter(), out);
        self.b.write(chosen.into_iter(), out);
        Ok(())
    }

    /// Reads (b, a); coefficients of b that were not sent are zero.
    ///
    /// # Errors
    /// [`RlweError::Codec`] for another length or values that no writer produces; [`RlweError::Positions`].
    pub fn read(&self, bytes: &[u8], used: &[usize]) -> Result<(RnsPoly<Coeff>, RnsPoly<Coeff>), RlweError> {
        let n = self.integers.params.n();
        let expected = self.bytes(used.len());
        if bytes.len() != expected {
            return Err(CodecError::Length { given: bytes.len(), expected }.into());
        }
        let mut reader = Reader::new(bytes);
        let [low, high] = self.a.read(&mut reader, n)?;
        let a = self.integers.residues(&low, &high);
        let place = |words: Vec<u64>| {
            let mut placed = vec![0; n];
            for (&i, word) in used.iter().zip(words) {
                *placed.get_mut(i).ok_or(RlweError::Positions { n })? = word;
            }
            Ok::<_, RlweError>(placed)
        };
        let [low, high] = self.b.read(&mut reader, used.len())?.map(place);
        Ok((self.integers.residues(&low?, &high?), a))
    }
}
