//! The public model of `fhe`: the bundle, and the numbers from which a client embeds, which the operator has made
//! public.
//!
//! | bytes | content |
//! |---|---|
//! | 4, 2, 2 | magic `HSHD`, kind 17, version of the format |
//! | 16 | first half of the bundle's hash |
//! | 8 | length of the payload |
//! | 4, as given | length of the bundle, the bundle ([`Bundle`]) |
//! | 8 | ε of the first norm, an f64; 0 for a decoder, whose layers begin with norms of their own |
//! | 4 per number | token vectors, positions, gain and offset of the first norm, f32; for a decoder the first alone |
//!
//! The bundle's configuration determines every size after it. The SHA-256 of all bytes is in the manifest.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::Path;
use std::sync::Arc;

use hushed_fhe::can_run;
use hushed_model::arch::Task;
use hushed_model::{Embedding, Matrix, Model, Norm, NormKind, Program, Public, StepId, here};
use sha2::{Digest as _, Sha256};

use super::FheJobError;
use crate::bundle::{Bundle, MAX_BUNDLE_BYTES};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::files;
use crate::session::codec::Reader;

const MAGIC: [u8; 4] = *b"HSHD";
const KIND: u16 = 17;
const VERSION: u16 = 1;
const HEADER: usize = 32;

/// Maximum size of a public model in bytes: 256 million numbers and the bundle.
pub(super) const MAX_BYTES: u64 = (MAX_BUNDLE_BYTES as u64) + (1 << 30);

/// The payload after its header. `bundle`: the hash of the bundle in it.
pub(crate) fn sealed(bundle: &Digest, mut payload: Vec<u8>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + payload.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&KIND.to_le_bytes());
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(bundle.0.first_chunk::<16>().unwrap_or(&[0; 16]));
    bytes.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    bytes.append(&mut payload);
    bytes
}

/// The part of a model that a client needs.
pub struct PublicModel {
    bytes: Vec<u8>,
    hash: Digest,
    bundle: Bundle,
    embedding: Embedding,
    norm: Option<Norm>,
}

impl PublicModel {
    /// The public model of a folder, whose weights are in `model`.
    ///
    /// # Errors
    /// Those of [`Bundle::from_folder`]; [`ServeError::Model`] if the model has no numbers.
    pub fn from_folder(folder: &Path, model: &Model) -> Result<Self, ServeError> {
        let program = model.program_of_all_rows();
        can_run(&program).map_err(FheJobError::from)?;
        Self::new(&Bundle::from_folder(folder)?, &program)
    }

    fn new(bundle: &Bundle, program: &Program) -> Result<Self, ServeError> {
        let at = StepId::outside("embed");
        let (table, norm) = (program.embedding(), program.embedding_norm());
        let e = *here(at, &table)?;
        let mut numbers = vec![here(at, &e.tokens)?.data()];
        if let Some(n) = norm {
            let (gain, offset) = (here(at, &n.gain)?, here(at, &n.offset)?);
            numbers.extend([here(at, &e.offsets)?.data(), gain, offset]);
        }
        let mut payload = Vec::new();
        payload.extend_from_slice(&(bundle.bytes().len() as u32).to_le_bytes());
        payload.extend_from_slice(bundle.bytes());
        payload.extend_from_slice(&norm.map_or(0.0, |n| n.epsilon).to_le_bytes());
        for numbers in numbers {
            payload.extend(numbers.iter().flat_map(|x| x.to_le_bytes()));
        }
        let bytes = sealed(&bundle.hash(), payload);
        Ok(Self {
            hash: Digest(Sha256::digest(&bytes).into()),
            bytes,
            bundle: bundle.clone(),
            embedding: e.clone(),
            norm: norm.cloned(),
        })
    }

    /// Reads a public model, which must have the given hash (in hexadecimal).
    ///
    /// # Errors
    /// [`ServeError::File`]; [`ServeError::Fhe`] if it is another model or cannot be parsed; those of
    /// [`Bundle::from_bytes`], except that a bundle of another release is accepted.
    pub fn read(path: &Path, expected: &str) -> Result<Self, ServeError> {
        Self::from_bytes(files::read(path, MAX_BYTES)?, path, expected)
    }

    /// Like [`PublicModel::read`], from bytes; errors name `path`.
    ///
    /// # Errors
    /// Those of [`PublicModel::read`].
    pub fn from_bytes(bytes: Vec<u8>, path: &Path, expected: &str) -> Result<Self, ServeError> {
        let hash = Digest(Sha256::digest(&bytes).into());
        if hash.to_string() != expected {
            return Err(
                FheJobError::OtherPublic { path: path.to_owned(), found: hash, expected: expected.to_owned() }.into()
            );
        }
        let bad = || FheJobError::BadPublic { path: path.to_owned() };
        let parsed = Self::parse(&bytes, bad)?;
        let (bundle, embedding, norm) = parsed;
        Ok(Self { bytes, hash, bundle, embedding, norm })
    }

    fn parse(bytes: &[u8], bad: impl Fn() -> FheJobError) -> Result<(Bundle, Embedding, Option<Norm>), ServeError> {
        let mut reader = Reader(bytes);
        let header = (|| {
            let magic = reader.array::<4>("magic").ok()?;
            let kind = u16::from_le_bytes(reader.array("kind").ok()?);
            let version = u16::from_le_bytes(reader.array("version").ok()?);
            let half = reader.array::<16>("hash").ok()?;
            let length = u64::from_le_bytes(reader.array("length").ok()?);
            let good = magic == MAGIC && kind == KIND && version == VERSION;
            (good && length == (bytes.len() - HEADER) as u64).then_some(half)
        })();
        let half = header.ok_or_else(&bad)?;
        let bundle = (|| {
            let length = u32::from_le_bytes(reader.array("length of the bundle").ok()?) as usize;
            let length = (length <= MAX_BUNDLE_BYTES).then_some(length)?;
            Some(reader.take(length, "bundle").ok()?.to_vec())
        })();
        let bundle = Bundle::of_any_release(bundle.ok_or_else(&bad)?)?;
        if bundle.hash().0.first_chunk::<16>() != Some(&half) {
            return Err(bad().into());
        }
        let config = &bundle.public().config;
        let (vocabulary, positions, width) = (config.vocabulary, config.positions, config.width);
        let decodes = config.task() == Task::Generate;
        let numbers = (|| {
            let epsilon = f64::from_le_bytes(reader.array("epsilon").ok()?);
            let mut floats = |count: Option<usize>| -> Option<Vec<f32>> {
                let bytes = reader.take(count?.checked_mul(4)?, "numbers").ok()?;
                let (words, _) = bytes.as_chunks::<4>();
                Some(words.iter().map(|b| f32::from_le_bytes(*b)).collect())
            };
            let tokens = floats(vocabulary.checked_mul(width))?;
            // A decoder under this protocol has neither positions nor a first norm.
            let of = |count: usize| if decodes { 0 } else { count };
            let offsets = floats(of(positions).checked_mul(width))?;
            let (gain, offset) = (floats(Some(of(width)))?, floats(Some(of(width)))?);
            let all = [&tokens, &offsets, &gain, &offset];
            let finite = all.iter().all(|v| v.iter().all(|x| x.is_finite()));
            let ended = reader.take(1, "end").is_err();
            let good = finite && ended && epsilon.is_finite() && epsilon >= 0.0;
            good.then_some((epsilon, tokens, offsets, gain, offset))
        })();
        let (epsilon, tokens, offsets, gain, offset) = numbers.ok_or_else(&bad)?;
        let offsets = match decodes {
            true => None,
            false => Matrix::new(positions, width, offsets).map(Arc::new),
        };
        let embedding = Embedding {
            vocabulary,
            positions,
            placed: !decodes,
            width,
            tokens: Matrix::new(vocabulary, width, tokens).map(Arc::new),
            stored: None,
            offsets,
            // What type 1 adds is not in the file: a pair is refused.
            typed: config.typed(),
            second: None,
        };
        let norm = (!decodes).then(|| Norm {
            kind: NormKind::LayerNorm,
            width,
            epsilon,
            reach: None,
            gain: Some(gain.into()),
            offset: Some(offset.into()),
        });
        Ok((bundle, embedding, norm))
    }

    /// Writes the public model to a file, as a whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), ServeError> {
        files::write(path, &self.bytes)
    }

    /// The bytes of its file.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// SHA-256 of its bytes.
    #[must_use]
    pub fn hash(&self) -> Digest {
        self.hash
    }

    /// Configuration, tokenizer, pooling.
    #[must_use]
    pub fn public(&self) -> &Public {
        self.bundle.public()
    }

    /// The public files.
    #[must_use]
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// Token vectors and positions.
    #[must_use]
    pub fn embedding(&self) -> &Embedding {
        &self.embedding
    }

    /// The norm that follows the embedding; `None` for a decoder.
    #[must_use]
    pub fn norm(&self) -> Option<&Norm> {
        self.norm.as_ref()
    }
}
