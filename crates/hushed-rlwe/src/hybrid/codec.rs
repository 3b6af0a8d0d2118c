//! The bytes of evaluation keys: one artefact, written and read key by key.
//!
//! | chunk | content |
//! |---|---|
//! | first | header of [`crate::codec`]; number of keys (4 bytes); |
//! | | for each key its use (1), special primes (1), primes (2), Galois element (4); digest |
//! | one per key | seed (16), the masked halves digit by digit as [`crate::codec`] packs them, digest |
//! | last | digest of the digests of all other chunks: the name of the key set |
//!
//! A digest is SHA-256 over the previous chunk's digest and the chunk, so chunks can be neither reordered nor mixed
//! between files. Keys are in the order of [`KeySpecs`]. The reader is told which keys to expect, and nothing in the
//! bytes decides what is allocated: the list of keys must be the expected one, and then every chunk has only one
//! possible length.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::sync::Arc;

use hushed_math::RnsPoly;
use hushed_math::bits::{pack_bits, packed_len, unpack_bits};
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::gadget::Gadget;
use super::key::SwitchKey;
use super::key_use::KeyUse;
use super::set::EvalKeys;
use super::specs::{KeySpec, KeySpecs};
use crate::codec::{HEADER_BYTES, Kind, Reader, SEED_BYTES, open_header, write_header};
use crate::error::{CodecError, RlweError};
use crate::params::RlweParams;

/// Bytes of a digest.
const DIGEST: usize = 32;

/// Bytes of a key's descriptor in the list.
const LINE: usize = 8;

/// The most keys of an artefact.
pub const MAX_KEYS: usize = 4096;

type Hash = [u8; DIGEST];

impl KeySpecs {
    /// The size in bytes of these keys' artefact.
    ///
    /// # Errors
    /// As [`KeySpecs::gadgets`].
    pub fn artefact_bytes(&self, params: &RlweParams) -> Result<usize, RlweError> {
        let gadgets = self.gadgets(params)?;
        Ok(self.first_bytes() + payload(params, &gadgets) + DIGEST)
    }

    /// The keys that an artefact holds, read from its beginning: for a reader that wants to see them before deciding
    /// what to expect.
    ///
    /// # Errors
    /// [`RlweError::Codec`] if the bytes do not begin an artefact of these parameters, or end within its list of keys.
    pub fn offered(params: &RlweParams, bytes: &[u8]) -> Result<Self, RlweError> {
        let mut reader = Reader::new(bytes);
        let claimed = open_header(&mut reader, Kind::EvalKeys, params)?;
        let count = u32::from_le_bytes(reader.array()?) as usize;
        if count > MAX_KEYS {
            return Err(CodecError::Keys.into());
        }
        let mut specs = Self::new();
        let mut last = None;
        for _ in 0..count {
            let spec = read_line(reader.array()?)?;
            // Ascending, hence distinct: each set of keys has only one encoding.
            if last.is_some_and(|last| last >= spec) {
                return Err(CodecError::Keys.into());
            }
            last = Some(spec);
            specs.insert(spec.key, spec.limbs, spec.special);
        }
        let length = specs.artefact_bytes(params)? - HEADER_BYTES;
        if claimed != length as u64 {
            return Err(
                CodecError::Length { given: usize::try_from(claimed).unwrap_or(usize::MAX), expected: length }.into()
            );
        }
        Ok(specs)
    }

    /// Checks that all of these keys are in another.
    ///
    /// # Errors
    /// [`RlweError::MissingKey`] with the first one that is not.
    pub fn check_among(&self, offered: &Self) -> Result<(), RlweError> {
        let missing = self.iter().find(|spec| !offered.iter().any(|o| o == *spec));
        missing.map_or(Ok(()), |spec| {
            let same = offered.iter().filter(|o| o.key == spec.key);
            Err(RlweError::MissingKey {
                key: spec.key,
                limbs: spec.limbs,
                longest: same.map(|o| o.limbs).max().unwrap_or(0),
            })
        })
    }

    fn first_bytes(&self) -> usize {
        HEADER_BYTES + 4 + LINE * self.len() + DIGEST
    }

    /// The first chunk, without its digest.
    fn first_chunk(&self, params: &RlweParams, gadgets: &[Gadget]) -> Vec<u8> {
        let total = self.first_bytes() + payload(params, gadgets) + DIGEST;
        let mut out = Vec::with_capacity(self.first_bytes());
        write_header(&mut out, Kind::EvalKeys, params, total - HEADER_BYTES);
        out.extend_from_slice(&(self.len() as u32).to_le_bytes());
        for spec in self.iter() {
            out.extend_from_slice(&line(spec));
        }
        out
    }
}

impl EvalKeys {
    /// The chunks of the artefact, made one at a time: the first, one per key, the last.
    ///
    /// # Errors
    /// [`RlweError::PartsOfKeys`] for keys without some primes. Keys that were made or read cause no other error: their
    /// specs are valid.
    pub fn chunks(&self) -> Result<impl Iterator<Item = Vec<u8>> + '_, RlweError> {
        if self.iter().any(SwitchKey::is_part) {
            return Err(RlweError::PartsOfKeys);
        }
        let (writer, first) = EvalKeysWriter::new(self.params(), &self.specs())?;
        let mut writer = Some(writer);
        let mut first = Some(first);
        let mut keys = self.iter();
        Ok(std::iter::from_fn(move || {
            if let Some(first) = first.take() {
                return Some(first);
            }
            match keys.next() {
                Some(key) => writer.as_mut().map(|writer| writer.seal(body(key))),
                None => writer.take().map(|writer| writer.name().to_vec()),
            }
        }))
    }

    /// The whole artefact.
    ///
    /// # Errors
    /// As [`EvalKeys::chunks`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, RlweError> {
        Ok(self.chunks()?.flatten().collect())
    }

    /// Reads a whole artefact that must hold exactly the keys of `specs`.
    ///
    /// # Errors
    /// As [`EvalKeysReader::push`]; [`CodecError::Truncated`] or [`CodecError::Length`] if the bytes end early or late.
    pub fn from_bytes(params: &Arc<RlweParams>, specs: &KeySpecs, bytes: &[u8]) -> Result<Self, RlweError> {
        let mut reader = EvalKeysReader::new(params, specs)?;
        let used = reader.push_all(bytes)?;
        if used != bytes.len() && reader.next_bytes().is_none() {
            return Err(CodecError::Length { given: bytes.len(), expected: used }.into());
        }
        reader.finish()
    }
}

/// Writes an artefact's chunks from keys that come one by one, so that no two keys need be in memory.
pub struct EvalKeysWriter {
    left: std::collections::VecDeque<KeySpec>,
    chain: Hash,
    all: Sha256,
}

impl EvalKeysWriter {
    /// Creates a writer for the keys of `specs`; also returns the first chunk.
    ///
    /// # Errors
    /// As [`KeySpecs::gadgets`]; [`CodecError::Keys`] for more than [`MAX_KEYS`].
    pub fn new(params: &RlweParams, specs: &KeySpecs) -> Result<(Self, Vec<u8>), RlweError> {
        if specs.len() > MAX_KEYS {
            return Err(CodecError::Keys.into());
        }
        let gadgets = specs.gadgets(params)?;
        let mut writer = Self { left: specs.iter().copied().collect(), chain: [0; DIGEST], all: Sha256::new() };
        let first = writer.seal(specs.first_chunk(params, &gadgets));
        Ok((writer, first))
    }

    /// Returns the chunk of the next key.
    ///
    /// # Errors
    /// [`CodecError::Keys`] if it is not the next of the keys.
    pub fn push(&mut self, key: &SwitchKey) -> Result<Vec<u8>, RlweError> {
        if self.left.front() != Some(&key.spec()) {
            return Err(CodecError::Keys.into());
        }
        self.left.pop_front();
        Ok(self.seal(body(key)))
    }

    /// Returns the last chunk, which names the key set.
    ///
    /// # Errors
    /// [`CodecError::Keys`] if keys are missing.
    pub fn finish(self) -> Result<[u8; 32], RlweError> {
        match self.left.is_empty() {
            true => Ok(self.name()),
            false => Err(CodecError::Keys.into()),
        }
    }

    fn seal(&mut self, mut chunk: Vec<u8>) -> Vec<u8> {
        self.chain = digest(&self.chain, &chunk);
        self.all.update(self.chain);
        chunk.extend_from_slice(&self.chain);
        chunk
    }

    fn name(self) -> Hash {
        self.all.finalize().into()
    }
}

/// Reads an artefact chunk by chunk. A refused chunk changes nothing: the reader continues from where it was.
pub struct EvalKeysReader {
    params: Arc<RlweParams>,
    specs: KeySpecs,
    /// What follows the first chunk, in order.
    gadgets: Vec<Gadget>,
    /// Keys read and checked so far.
    done: usize,
    keys: BTreeMap<KeySpec, SwitchKey>,
    /// Whether each key is dropped once it is checked.
    forgets: bool,
    offset: u64,
    chain: Hash,
    all: Sha256,
    name: Option<Hash>,
}

impl EvalKeysReader {
    /// Creates a reader that expects exactly the keys of `specs`.
    ///
    /// # Errors
    /// As [`KeySpecs::gadgets`]; [`CodecError::Keys`] for more than [`MAX_KEYS`].
    pub fn new(params: &Arc<RlweParams>, specs: &KeySpecs) -> Result<Self, RlweError> {
        if specs.len() > MAX_KEYS {
            return Err(CodecError::Keys.into());
        }
        Ok(Self {
            params: params.clone(),
            specs: specs.clone(),
            gadgets: specs.gadgets(params)?,
            done: 0,
            keys: BTreeMap::new(),
            forgets: false,
            offset: 0,
            chain: [0; DIGEST],
            all: Sha256::new(),
            name: None,
        })
    }

    /// Creates a reader that checks as [`EvalKeysReader::new`] does but keeps no key: it takes the memory of one key,
    /// and returns none at the end.
    pub fn checking(params: &Arc<RlweParams>, specs: &KeySpecs) -> Result<Self, RlweError> {
        let mut reader = Self::new(params, specs)?;
        reader.forgets = true;
        Ok(reader)
    }

    /// The size of the next chunk; `None` once all have been read.
    pub fn next_bytes(&self) -> Option<usize> {
        if self.offset == 0 {
            return Some(self.specs.first_bytes());
        }
        let gadget = self.gadgets.get(self.done);
        match (gadget, self.name) {
            (Some(gadget), _) => Some(key_bytes(&self.params, gadget) + DIGEST),
            (None, None) => Some(DIGEST),
            (None, Some(_)) => None,
        }
    }

    /// Bytes read so far, which is where the next chunk begins in the artefact.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The keys that are complete.
    pub fn complete(&self) -> impl ExactSizeIterator<Item = &KeySpec> {
        self.specs.iter().take(self.done)
    }

    /// The keys still to come.
    pub fn missing(&self) -> impl Iterator<Item = &KeySpec> {
        self.specs.iter().skip(self.done)
    }

    /// The name of the key set, once everything has been read.
    pub fn content_hash(&self) -> Option<[u8; 32]> {
        self.name
    }

    /// Reads one whole chunk.
    ///
    /// # Errors
    /// [`RlweError::MissingKey`] if the list lacks one of the keys. [`RlweError::Codec`] with
    /// [`CodecError::Truncated`] or [`CodecError::Length`] for another length, [`CodecError::Damaged`] if the digest
    /// does not match the chunk, [`CodecError::Keys`] for unexpected keys, or the error in the header or a residue.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), RlweError> {
        let number = self.done + usize::from(self.offset != 0);
        if self.offset == 0 {
            // A list of other keys also has another length, but its own error says more.
            let offered = KeySpecs::offered(&self.params, chunk)?;
            self.specs.check_among(&offered)?;
            if offered.len() != self.specs.len() {
                return Err(CodecError::Keys.into());
            }
        }
        let expected = self.next_bytes().unwrap_or(0);
        check_length(chunk.len(), expected)?;
        let (body, digest_read) = chunk.split_at(expected.saturating_sub(DIGEST));
        let done = self.offset != 0 && self.done == self.gadgets.len();
        let found: Hash = if done { self.all.clone().finalize().into() } else { digest(&self.chain, body) };
        if digest_read != found {
            return Err(CodecError::Damaged { chunk: number }.into());
        }
        if done {
            self.name = Some(found);
        } else {
            if self.offset != 0 {
                self.read_key(body)?;
            }
            self.chain = found;
            self.all.update(found);
        }
        self.offset += chunk.len() as u64;
        Ok(())
    }

    /// Reads all whole chunks at the start of `bytes` and returns how many bytes they were. After an interruption, the
    /// stored bytes are pushed again, and the artefact is requested from [`EvalKeysReader::offset`] on.
    ///
    /// # Errors
    /// As [`EvalKeysReader::push`] for the first refused chunk; those before it have been read.
    pub fn push_all(&mut self, bytes: &[u8]) -> Result<usize, RlweError> {
        let mut rest = bytes;
        while let Some(expected) = self.next_bytes() {
            let Some((chunk, later)) = rest.split_at_checked(expected) else {
                // A list that is short because it lacks keys is refused, not waited for.
                if self.offset == 0
                    && let Ok(offered) = KeySpecs::offered(&self.params, rest)
                {
                    self.specs.check_among(&offered)?;
                }
                break;
            };
            self.push(chunk)?;
            rest = later;
        }
        Ok(bytes.len() - rest.len())
    }

    /// Returns the keys.
    ///
    /// # Errors
    /// [`CodecError::Truncated`] unless all chunks have been read; [`CodecError::Keys`] if the reader keeps none.
    pub fn finish(self) -> Result<EvalKeys, RlweError> {
        if self.next_bytes().is_some() {
            return Err(CodecError::Truncated {
                given: usize::try_from(self.offset).unwrap_or(usize::MAX),
                expected: self.specs.artefact_bytes(&self.params)?,
            }
            .into());
        }
        if self.forgets {
            return Err(CodecError::Keys.into());
        }
        Ok(EvalKeys::from_parts(&self.params, self.keys))
    }

    fn read_key(&mut self, body: &[u8]) -> Result<(), RlweError> {
        let next = self.specs.iter().nth(self.done);
        let (Some(spec), Some(gadget)) = (next, self.gadgets.get(self.done)) else {
            return Err(CodecError::Keys.into());
        };
        let mut reader = Reader::new(body);
        let seed = reader.seed()?;
        let basis = self.params.basis();
        let ids = self.params.extended_ids_with(gadget.limbs(), gadget.special());
        let mut digits: Vec<_> = gadget.digits().iter().map(|_| RnsPoly::scratch(basis, &ids)).collect();
        let mut work = Vec::new();
        for digit in &mut digits {
            for (limb, (id, words)) in digit.limbs_mut().enumerate() {
                let packed = reader.take(limb_bytes(&self.params, id))?;
                work.push((limb, id, words, packed));
            }
        }
        reader.finish()?;
        work.into_par_iter().try_for_each(|(limb, id, words, packed)| {
            let m = basis.modulus(id);
            let residues = unpack_bits(packed, m.bits(), words.len()).ok_or(CodecError::Padding)?;
            if residues.iter().any(|&r| r >= m.value()) {
                return Err(CodecError::Residue { limb });
            }
            words.copy_from_slice(&residues);
            Ok(())
        })?;
        let key = SwitchKey::from_parts(&self.params, spec.key, gadget.clone(), seed, digits);
        self.done += 1;
        if !self.forgets {
            self.keys.insert(*spec, key);
        }
        Ok(())
    }
}

/// Replaces the digests of an artefact of `specs` by matching ones, as a malicious sender would, so that tests get past
/// them. Bytes of another length are left alone.
#[cfg(any(test, feature = "insecure-test-parameters"))]
pub(crate) fn reseal(params: &RlweParams, specs: &KeySpecs, bytes: &mut [u8]) -> Result<(), RlweError> {
    let keys = specs.gadgets(params)?.into_iter();
    let keys = keys.map(|gadget| key_bytes(params, &gadget));
    let (mut chain, mut all, mut rest) = ([0; DIGEST], Sha256::new(), bytes);
    for body in std::iter::once(specs.first_bytes() - DIGEST).chain(keys) {
        let Some((chunk, later)) = rest.split_at_mut_checked(body + DIGEST) else {
            return Ok(());
        };
        let (body, seal) = chunk.split_at_mut(body);
        chain = digest(&chain, body);
        seal.copy_from_slice(&chain);
        all.update(chain);
        rest = later;
    }
    if rest.len() == DIGEST {
        rest.copy_from_slice(&all.finalize());
    }
    Ok(())
}

/// A key's chunk, without its digest.
fn body(key: &SwitchKey) -> Vec<u8> {
    let mut out = Vec::with_capacity(key_bytes(&key.params, &key.gadget) + DIGEST);
    out.extend_from_slice(&key.seed.0);
    let limbs: Vec<_> = key.b.iter().flat_map(|b| b.limbs()).collect();
    let packed: Vec<Vec<u8>> = limbs
        .into_par_iter()
        .map(|(id, limb)| {
            let mut packed = Vec::with_capacity(limb_bytes(&key.params, id));
            pack_bits(limb, key.params.basis().modulus(id).bits(), &mut packed);
            packed
        })
        .collect();
    packed.iter().for_each(|limb| out.extend_from_slice(limb));
    out
}

fn digest(before: &Hash, body: &[u8]) -> Hash {
    let mut hash = Sha256::new();
    hash.update(before);
    hash.update(body);
    hash.finalize().into()
}

/// The total bytes of all keys' chunks.
fn payload(params: &RlweParams, gadgets: &[Gadget]) -> usize {
    let keys = gadgets.iter().map(|gadget| key_bytes(params, gadget) + DIGEST);
    keys.sum()
}

fn key_bytes(params: &RlweParams, gadget: &Gadget) -> usize {
    let ids = params.extended_ids_with(gadget.limbs(), gadget.special());
    let digit: usize = ids.iter().map(|&id| limb_bytes(params, id)).sum();
    SEED_BYTES + gadget.digits().len() * digit
}

fn limb_bytes(params: &RlweParams, id: usize) -> usize {
    packed_len(params.n(), params.basis().modulus(id).bits()).unwrap_or(usize::MAX)
}

fn check_length(given: usize, expected: usize) -> Result<(), CodecError> {
    match given.cmp(&expected) {
        std::cmp::Ordering::Less => Err(CodecError::Truncated { given, expected }),
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(CodecError::Length { given, expected }),
    }
}

fn line(spec: &KeySpec) -> [u8; LINE] {
    let (tag, element) = match spec.key {
        KeyUse::Relin => (0, 0),
        KeyUse::Galois(element) => (1, element as u32),
        KeyUse::ToSparse => (2, 0),
        KeyUse::FromSparse => (3, 0),
        KeyUse::Raised(element) => (4, element as u32),
    };
    let [l0, l1] = (spec.limbs as u16).to_le_bytes();
    let [e0, e1, e2, e3] = element.to_le_bytes();
    [tag, spec.special as u8, l0, l1, e0, e1, e2, e3]
}

fn read_line([tag, special, l0, l1, e0, e1, e2, e3]: [u8; LINE]) -> Result<KeySpec, CodecError> {
    let element = u32::from_le_bytes([e0, e1, e2, e3]) as usize;
    let key = match (tag, element) {
        (0, 0) => KeyUse::Relin,
        (1, element) => KeyUse::Galois(element),
        (2, 0) => KeyUse::ToSparse,
        (3, 0) => KeyUse::FromSparse,
        (4, element) => KeyUse::Raised(element),
        _ => return Err(CodecError::Keys),
    };
    Ok(KeySpec { key, limbs: usize::from(u16::from_le_bytes([l0, l1])), special: usize::from(special) })
}
