//! Fresh seeded ciphertexts of which only the top bits of b are sent.
//!
//! b is uniform to everyone but the key's owner, so its rounding error is uniform too: one of 2^`drop` values,
//! independent for each coefficient. It is noise in addition to the fresh error
//! ([`NoiseBound::fresh_top_bits`](crate::NoiseBound::fresh_top_bits)), and a product multiplies both alike. If a
//! product leaves the modulus room, this is cheaper than sending all bits: of 100 bits per coefficient, a product with
//! weights needs some 80. What is sent is a function of the ciphertext alone, and so hides what the ciphertext hides.
//!
//! Layout: a header, the seed, the top bits of b.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use super::field::{Field, Integers};
use crate::ciphertext::SeededCiphertext;
use crate::codec::{HEADER_BYTES, Kind, SEED_BYTES, open_artefact, write_header};
use crate::error::RlweError;
use crate::message::check_limbs;
use crate::params::RlweParams;

/// How ciphertexts over the first primes are sent; both parties derive it from public figures.
#[derive(Clone)]
pub struct SeededFormat {
    limbs: usize,
    params: Arc<RlweParams>,
    /// `None` if all bits are sent.
    top: Option<(Integers, Field)>,
}

impl SeededFormat {
    /// Ciphertexts over the first `limbs` primes without the lowest `drop` bits of b. Bits can be dropped with at most
    /// [`Truncation::MAX_LIMBS`](super::Truncation::MAX_LIMBS) primes.
    ///
    /// # Errors
    /// [`RlweError::LimbCount`]; [`RlweError::RingBits`] for dropping more bits than there are.
    pub fn new(params: &Arc<RlweParams>, limbs: usize, drop: u32) -> Result<Self, RlweError> {
        let available = params.q_len();
        if limbs == 0 || limbs > available {
            return Err(RlweError::LimbCount { given: limbs, available });
        }
        let top = match drop {
            0 => None,
            _ => {
                let integers = Integers::new(params, limbs)?;
                let field = Field::new(integers.modulus(), drop)?;
                Some((integers, field))
            }
        };
        Ok(Self { limbs, params: params.clone(), top })
    }

    /// The bytes of one ciphertext.
    pub fn bytes(&self) -> usize {
        match &self.top {
            None => SeededCiphertext::list_bytes(&self.params, self.limbs, 1),
            Some((_, field)) => HEADER_BYTES.saturating_add(self.payload(field)),
        }
    }

    fn payload(&self, field: &Field) -> usize {
        SEED_BYTES.saturating_add(field.bytes(self.params.n()))
    }

    /// Encodes `ct`.
    ///
    /// # Errors
    /// [`RlweError::Limbs`] or [`RlweError::IncompatibleParameters`] if it has other primes.
    pub fn write(&self, ct: SeededCiphertext) -> Result<Vec<u8>, RlweError> {
        let Some((integers, field)) = &self.top else {
            return SeededCiphertext::list_to_bytes(&self.params, self.limbs, &[ct]);
        };
        check_limbs(&self.params, &ct.b, self.limbs)?;
        let mut out = Vec::with_capacity(self.bytes());
        write_header(&mut out, Kind::SeededTopBits, &self.params, self.payload(field));
        out.extend_from_slice(&ct.seed.0);
        field.write(integers.of(&ct.b.into_coeff()).into_iter(), &mut out);
        Ok(out)
    }

    /// Decodes a ciphertext from exactly [`SeededFormat::bytes`] bytes; its b is rounded.
    ///
    /// # Errors
    /// [`RlweError::Codec`] for any other bytes.
    pub fn read(&self, bytes: &[u8]) -> Result<SeededCiphertext, RlweError> {
        let Some((integers, field)) = &self.top else {
            let list = SeededCiphertext::list_from_bytes(&self.params, self.limbs, 1, bytes)?;
            let none = RlweError::LimbCount { given: 0, available: self.params.q_len() };
            return list.into_iter().next().ok_or(none);
        };
        let length = self.payload(field);
        let mut reader = open_artefact(bytes, Kind::SeededTopBits, &self.params, length)?;
        let seed = reader.seed()?;
        let [low, high] = field.read(&mut reader, self.params.n())?;
        reader.finish()?;
        let b = integers.residues(&low, &high).into_eval();
        Ok(SeededCiphertext { seed, b })
    }
}
