//! Bytes of keys and ciphertexts, bounded: the *expected* parameters determine every size, never the bytes themselves.
//!
//! An artefact is a header of [`HEADER_BYTES`] bytes and a payload:
//!
//! | bytes | content |
//! |---|---|
//! | 4 | magic `HSHD` |
//! | 2 | kind |
//! | 2 | version of the format |
//! | 16 | hash of the parameters |
//! | 8 | length of the payload |
//!
//! All numbers are little-endian. A polynomial is its limbs one after the other. Each residue takes as many bits as its
//! prime has, and each limb starts at a byte boundary. Reading checks in this order: total length against the expected
//! one (before anything is allocated), header fields, every residue against its prime, zero padding, no bytes left.
//! Seeds are expanded after all that.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use hushed_math::bits::{pack_bits, packed_len, unpack_bits};
use hushed_math::rng::PublicSeed;
use hushed_math::{Eval, RnsBasis, RnsPoly};

use crate::ciphertext::SeededCiphertext;
use crate::error::{CodecError, RlweError};
use crate::message::check_limbs;
use crate::params::RlweParams;

/// Bytes of the header of every artefact.
pub const HEADER_BYTES: usize = 32;

/// Bytes of a public seed.
pub const SEED_BYTES: usize = 16;

const MAGIC: [u8; 4] = *b"HSHD";
const VERSION: u16 = 1;

/// The content of an artefact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u16)]
pub enum Kind {
    /// A public key and Galois keys.
    KeySet = 1,
    /// A list of seeded ciphertexts.
    SeededCiphertexts = 2,
    /// Evaluation keys of hybrid key switching.
    EvalKeys = 3,
    /// A list of CKKS ciphertexts.
    CkksCiphertexts = 4,
    /// A list of seeded CKKS ciphertexts.
    CkksSeeded = 5,
    /// A secret key, which stays with its owner.
    SecretKey = 6,
    /// A public key on its own.
    PublicKey = 7,
    /// A client's keys, for a server that runs a model under CKKS.
    FheKeys = 8,
    /// A client's encrypted texts.
    FheRequest = 9,
    /// The encrypted answers.
    FheReply = 10,
    /// The columns between two layers. Kind 11 did not name its program.
    FheCheckpoint = 14,
    /// The value of a node, between the machines of a run.
    FheValue = 15,
    /// A CKKS linear map with its encoded diagonals.
    LinearTransform = 12,
    /// A seeded ciphertext without the lowest bits of b.
    SeededTopBits = 13,
}

/// Appends the header of a payload of `length` bytes.
pub fn write_header(out: &mut Vec<u8>, kind: Kind, params: &RlweParams, length: usize) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&(kind as u16).to_le_bytes());
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend_from_slice(params.hash());
    out.extend_from_slice(&(length as u64).to_le_bytes());
}

/// Opens an artefact whose payload must have exactly `length` bytes, and returns a reader over the payload.
///
/// # Errors
/// [`CodecError`] for another length, or a header with another kind, version or parameter set.
pub fn open_artefact<'a>(
    bytes: &'a [u8],
    kind: Kind,
    params: &RlweParams,
    length: usize,
) -> Result<Reader<'a>, CodecError> {
    let expected = HEADER_BYTES.saturating_add(length);
    if bytes.len() != expected {
        return Err(CodecError::Length { given: bytes.len(), expected });
    }
    let mut reader = Reader::new(bytes);
    let claimed = open_header(&mut reader, kind, params)?;
    if claimed != length as u64 {
        let given = usize::try_from(claimed).unwrap_or(usize::MAX);
        return Err(CodecError::Length { given, expected: length });
    }
    Ok(reader)
}

/// Reads the header at the start of `bytes`, and returns the payload length it claims.
///
/// # Errors
/// [`CodecError`] for too few bytes, or a header with another kind, version or parameter set.
pub fn read_header(bytes: &[u8], kind: Kind, params: &RlweParams) -> Result<u64, CodecError> {
    open_header(&mut Reader::new(bytes), kind, params)
}

/// Reads a header and returns the payload length it claims.
pub(crate) fn open_header(reader: &mut Reader<'_>, kind: Kind, params: &RlweParams) -> Result<u64, CodecError> {
    if reader.array::<4>()? != MAGIC {
        return Err(CodecError::Magic);
    }
    let given = u16::from_le_bytes(reader.array()?);
    let version = u16::from_le_bytes(reader.array()?);
    if version != VERSION {
        return Err(CodecError::Version { given: version, expected: VERSION });
    }
    if given != kind as u16 {
        return Err(CodecError::Kind { given, expected: kind as u16 });
    }
    if &reader.array::<16>()? != params.hash() {
        return Err(CodecError::Parameters);
    }
    Ok(u64::from_le_bytes(reader.array()?))
}

/// The bytes of a polynomial over the primes `ids`.
pub fn poly_bytes(basis: &RnsBasis, ids: &[usize]) -> usize {
    ids.iter().map(|&id| limb_bytes(basis, id)).sum()
}

fn limb_bytes(basis: &RnsBasis, id: usize) -> usize {
    packed_len(basis.n(), basis.modulus(id).bits()).unwrap_or(usize::MAX)
}

/// Appends a polynomial.
pub fn write_poly(out: &mut Vec<u8>, poly: &RnsPoly<Eval>) {
    for (j, &id) in poly.ids().iter().enumerate() {
        pack_bits(poly.limb(j), poly.basis().modulus(id).bits(), out);
    }
}

/// Bytes not yet read; every read checks how many are left.
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader over `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    /// [`CodecError::Length`] if fewer are left.
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], CodecError> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or(CodecError::Length { given: self.rest.len(), expected: count })?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next `K` bytes.
    ///
    /// # Errors
    /// [`CodecError::Length`] if fewer are left.
    pub fn array<const K: usize>(&mut self) -> Result<[u8; K], CodecError> {
        let mut out = [0; K];
        out.copy_from_slice(self.take(K)?);
        Ok(out)
    }

    /// A public seed.
    ///
    /// # Errors
    /// [`CodecError::Length`] if fewer bytes are left.
    pub fn seed(&mut self) -> Result<PublicSeed, CodecError> {
        Ok(PublicSeed(self.array::<SEED_BYTES>()?))
    }

    /// A polynomial over the primes `ids`, with its residues checked.
    ///
    /// # Errors
    /// [`CodecError::Length`], [`CodecError::Padding`], [`CodecError::Residue`].
    pub fn poly(&mut self, basis: &Arc<RnsBasis>, ids: &[usize]) -> Result<RnsPoly<Eval>, CodecError> {
        let mut out = RnsPoly::zero(basis, ids);
        for (limb, &id) in ids.iter().enumerate() {
            let m = basis.modulus(id);
            let packed = self.take(limb_bytes(basis, id))?;
            let residues = unpack_bits(packed, m.bits(), basis.n()).ok_or(CodecError::Padding)?;
            if residues.iter().any(|&r| r >= m.value()) {
                return Err(CodecError::Residue { limb });
            }
            out.limb_mut(limb).copy_from_slice(&residues);
        }
        Ok(out)
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// [`CodecError::Length`] if something is.
    pub fn finish(self) -> Result<(), CodecError> {
        if self.rest.is_empty() {
            return Ok(());
        }
        Err(CodecError::Length { given: self.rest.len(), expected: 0 })
    }
}

impl SeededCiphertext {
    /// The bytes of `count` ciphertexts over the first `limbs` primes, including the header.
    pub fn list_bytes(params: &RlweParams, limbs: usize, count: usize) -> usize {
        HEADER_BYTES.saturating_add(count.saturating_mul(item_bytes(params, limbs)))
    }

    /// Encodes ciphertexts of the first `limbs` primes.
    ///
    /// # Errors
    /// [`RlweError::Limbs`] or [`RlweError::IncompatibleParameters`] if one of them has other primes.
    pub fn list_to_bytes(params: &RlweParams, limbs: usize, list: &[Self]) -> Result<Vec<u8>, RlweError> {
        let payload = list.len() * item_bytes(params, limbs);
        let mut out = Vec::with_capacity(HEADER_BYTES + payload);
        write_header(&mut out, Kind::SeededCiphertexts, params, payload);
        for item in list {
            check_limbs(params, &item.b, limbs)?;
            out.extend_from_slice(&item.seed.0);
            write_poly(&mut out, &item.b);
        }
        Ok(out)
    }

    /// Decodes exactly `count` ciphertexts of the first `limbs` primes.
    ///
    /// # Errors
    /// [`RlweError::Codec`] for any other bytes, [`RlweError::LimbCount`].
    pub fn list_from_bytes(
        params: &RlweParams,
        limbs: usize,
        count: usize,
        bytes: &[u8],
    ) -> Result<Vec<Self>, RlweError> {
        if limbs == 0 || limbs > params.q_len() {
            return Err(RlweError::LimbCount { given: limbs, available: params.q_len() });
        }
        let payload = count.saturating_mul(item_bytes(params, limbs));
        let mut reader = open_artefact(bytes, Kind::SeededCiphertexts, params, payload)?;
        let ids = params.ciphertext_ids(limbs);
        let list = (0..count)
            .map(|_| Ok(Self { seed: reader.seed()?, b: reader.poly(params.basis(), &ids)? }))
            .collect::<Result<Vec<_>, CodecError>>()?;
        reader.finish()?;
        Ok(list)
    }
}

fn item_bytes(params: &RlweParams, limbs: usize) -> usize {
    SEED_BYTES.saturating_add(poly_bytes(params.basis(), &params.ciphertext_ids(limbs)))
}
