//! The bytes of a secret key, for its owner's file, and of a public key.
//!
//! | bytes | content |
//! |---|---|
//! | 32 | header of [`crate::codec`] |
//! | N/4 | coefficients of s, two bits each: 0, 1, and 2 for −1 |
//! | 32 | SHA-256 of everything before it |
//!
//! The number of decryptions is not included: it changes, whereas a key is written once. The key's owner stores the
//! count next to it.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use hushed_math::SecretPoly;
use hushed_math::process::Origin;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{PublicKey, SecretKey};
use crate::ciphertext::small;
use crate::codec::{HEADER_BYTES, Kind, Reader, open_artefact, write_header};
use crate::error::{CodecError, RlweError};
use crate::params::RlweParams;

const DIGEST: usize = 32;

impl SecretKey {
    /// Bytes of a secret key.
    pub fn stored_bytes(params: &RlweParams) -> usize {
        HEADER_BYTES + params.n() / 4 + DIGEST
    }

    /// The key as bytes, erased on drop: for a file that only the owner can read.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let params = self.params();
        let total = Self::stored_bytes(params);
        let mut out = Zeroizing::new(Vec::with_capacity(total));
        write_header(&mut out, Kind::SecretKey, params, total - HEADER_BYTES);
        let s = SecretPoly::new(self.s().keep_limbs(&[0]).into_coeff());
        let minus_one = params.basis().modulus(0).value() - 1;
        for four in s.expose().limb(0).chunks(4) {
            let digits = four.iter().enumerate().map(|(i, &value)| {
                // Branch-free in the coefficient.
                (u8::from(value == 1) | u8::from(value == minus_one) << 1) << (2 * i)
            });
            out.push(digits.fold(0, |byte, digit| byte | digit));
        }
        let digest = Sha256::digest(out.as_slice());
        out.extend_from_slice(&digest);
        out
    }

    /// Reads a key from bytes; it has already made `decryptions` decryptions.
    ///
    /// # Errors
    /// [`RlweError::Codec`] for another length or header, [`CodecError::Damaged`], or coefficients that are not
    /// ternary.
    pub fn from_bytes(params: &Arc<RlweParams>, bytes: &[u8], decryptions: u64) -> Result<Self, RlweError> {
        let total = Self::stored_bytes(params);
        let mut reader = open_artefact(bytes, Kind::SecretKey, params, total - HEADER_BYTES)?;
        let packed = reader.take(params.n() / 4)?;
        let stated = reader.array::<DIGEST>()?;
        reader.finish()?;
        let (body, _) = bytes.split_at(total - DIGEST);
        if Sha256::digest(body).as_slice() != stated {
            return Err(CodecError::Damaged { chunk: 0 }.into());
        }
        let digits = packed.iter().flat_map(|byte| (0..4).map(move |i| byte >> (2 * i) & 3));
        // Allocated in full from the start: memory that a vector outgrows is not erased.
        let mut coefficients = Zeroizing::new(Vec::with_capacity(params.n()));
        coefficients.extend(digits.map(|digit| i64::from(digit & 1) - i64::from(digit >> 1)));
        // Digits 3 and 0 both decode to the coefficient 0: only 0 is ever written.
        let known = packed.iter().fold(0, |both, byte| both | (byte & byte >> 1 & 0x55));
        if known != 0 {
            return Err(CodecError::Padding.into());
        }
        let ids: Vec<usize> = (0..params.basis().len()).collect();
        let s = small(params.basis(), &ids, &coefficients).into_eval();
        Ok(Self {
            origin: Origin::here(),
            params: params.clone(),
            s: SecretPoly::new(s),
            decryptions: AtomicU64::new(decryptions),
        })
    }
}

impl PublicKey {
    /// Bytes of a public key.
    pub fn stored_bytes(params: &RlweParams) -> usize {
        HEADER_BYTES.saturating_add(Self::payload_bytes(params))
    }

    /// The key as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let params = self.params();
        let total = Self::stored_bytes(params);
        let mut out = Vec::with_capacity(total);
        write_header(&mut out, Kind::PublicKey, params, total - HEADER_BYTES);
        self.write(&mut out);
        out
    }

    /// Reads a key from bytes.
    ///
    /// # Errors
    /// [`RlweError::Codec`].
    pub fn from_bytes(params: &Arc<RlweParams>, bytes: &[u8]) -> Result<Self, RlweError> {
        let payload = Self::payload_bytes(params);
        let mut reader: Reader<'_> = open_artefact(bytes, Kind::PublicKey, params, payload)?;
        let key = Self::read(params, &mut reader)?;
        reader.finish()?;
        Ok(key)
    }
}
