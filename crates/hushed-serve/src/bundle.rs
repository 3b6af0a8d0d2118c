//! The public part of a model as one artefact, identified by its SHA-256.
//!
//! | bytes | content |
//! |---|---|
//! | 4 | magic `HSHD` |
//! | 2 | kind 16 |
//! | 2 | version of the format |
//! | 16 | first half of the agreement hash |
//! | 8 | length of the payload |
//!
//! The payload is the files one after another, in the order of their names: length of the name (1 byte), name, length
//! (4 bytes), bytes. Numbers are little-endian. A server offers these bytes; a client checks them against the hash that
//! it was told or pins, and needs no model folder.
//!
//! Two of the files decide how many tokens a text has, and have hashes of their own, which do not change with a
//! release: `tokenizer.json`, which is here byte for byte as published, and `tokenizer_config.json`, which is not: here
//! it is a JSON object of the chat template and the special tokens that a template may name, without white space
//! between them and with the names in alphabetical order.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::Path;

use hushed_model::{ModelError, Public, PublicFiles};
use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::error::ServeError;
use crate::files;
use crate::session::codec::{Reader, WireFault};

/// Maximum size of a bundle in bytes.
pub const MAX_BUNDLE_BYTES: usize = 16 << 20;

const MAGIC: [u8; 4] = *b"HSHD";
const KIND: u16 = 16;
const VERSION: u16 = 1;
/// The names of the files with hashes of their own.
const TOKENIZER: &str = "tokenizer.json";
const TEMPLATE: &str = "tokenizer_config.json";

/// The hash of everything outside the model on which both parties must agree: formats, cryptographic parameters,
/// protocol version.
///
/// # Errors
/// [`ServeError::Run`] if the parameters are refused by their own table: a defect.
pub fn agreement_hash() -> Result<Digest, ServeError> {
    let text = hushed_mpc::agreement()?;
    let hash = Sha256::new().chain_update(b"hushed plan 1 ").chain_update(text);
    Ok(Digest(hash.finalize().into()))
}

/// The public part of a model, checked.
#[derive(Clone)]
pub struct Bundle {
    bytes: Vec<u8>,
    hash: Digest,
    tokenizer: Option<Digest>,
    template: Option<Digest>,
    public: Public,
}

impl Bundle {
    /// Makes the bundle of a model folder.
    ///
    /// # Errors
    /// [`ServeError::Model`] with everything that is wrong with the folder; [`ServeError::BundleTooLarge`].
    pub fn from_folder(folder: &Path) -> Result<Self, ServeError> {
        let files = PublicFiles::read(folder).map_err(ModelError::from)?;
        let public = files.parse().map_err(|mut problems| {
            folder.clone_into(&mut problems.folder);
            ModelError::from(problems)
        })?;
        let out = of_files(&agreement_hash()?, files.iter());
        if out.len() > MAX_BUNDLE_BYTES {
            return Err(ServeError::BundleTooLarge { bytes: out.len(), limit: MAX_BUNDLE_BYTES });
        }
        Ok(Self::new(&files, out, public))
    }

    /// Decodes a bundle from a server or a file.
    ///
    /// # Errors
    /// [`ServeError::BadBundle`] if the bytes cannot be parsed; [`ServeError::BundleOfOtherAgreement`] if the bundle is
    /// of another release; [`ServeError::Model`] if the files are not those of a supported model.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, ServeError> {
        let files = decode(&bytes, &agreement_hash()?)?;
        Self::of_files(files, bytes)
    }

    /// Like [`Bundle::from_bytes`], but of any release: for `fhe`, whose files state themselves what they agree with.
    pub(crate) fn of_any_release(bytes: Vec<u8>) -> Result<Self, ServeError> {
        let bad = |fault| ServeError::BadBundle { fault };
        decode_header(&bytes).map_err(bad)?;
        Self::of_files(decode_files(&bytes).map_err(bad)?, bytes)
    }

    fn of_files(files: Vec<(String, Vec<u8>)>, bytes: Vec<u8>) -> Result<Self, ServeError> {
        let files = PublicFiles::from_files(files).map_err(ModelError::from)?;
        let public = files.parse().map_err(ModelError::from)?;
        Ok(Self::new(&files, bytes, public))
    }

    fn new(files: &PublicFiles, bytes: Vec<u8>, public: Public) -> Self {
        let of = |name| files.iter().find(|(known, _)| *known == name);
        Self {
            hash: hash(&bytes),
            tokenizer: of(TOKENIZER).map(|(_, file)| hash(file)),
            template: of(TEMPLATE).map(|(_, file)| hash(file)),
            bytes,
            public,
        }
    }

    /// Reads a bundle from a file.
    pub fn read(path: &Path) -> Result<Self, ServeError> {
        Self::from_bytes(files::read(path, MAX_BUNDLE_BYTES as u64)?)
    }

    /// Writes the bundle to a file, whole or not at all.
    pub fn write(&self, path: &Path) -> Result<(), ServeError> {
        files::write(path, &self.bytes)
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// SHA-256 of the bytes: what a client pins.
    #[must_use]
    pub fn hash(&self) -> Digest {
        self.hash
    }

    /// SHA-256 of `tokenizer.json` as published, if the model has one.
    #[must_use]
    pub fn tokenizer_hash(&self) -> Option<Digest> {
        self.tokenizer
    }

    /// SHA-256 of the chat template with its special tokens (see the [module](self)), if the model has one.
    #[must_use]
    pub fn template_hash(&self) -> Option<Digest> {
        self.template
    }

    /// What the files say.
    #[must_use]
    pub fn public(&self) -> &Public {
        &self.public
    }
}

/// SHA-256.
pub(crate) fn hash(bytes: &[u8]) -> Digest {
    Digest(Sha256::digest(bytes).into())
}

/// The bytes of a bundle of these files, in the order of their names.
pub(crate) fn of_files<'a>(agreement: &Digest, files: impl Iterator<Item = (impl AsRef<str>, &'a [u8])>) -> Vec<u8> {
    let mut payload = Vec::new();
    for (name, bytes) in files {
        // Names are this program's own and short; sizes are within the folder's limits.
        let name = name.as_ref().as_bytes();
        payload.push(name.len() as u8);
        payload.extend_from_slice(name);
        payload.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        payload.extend_from_slice(bytes);
    }
    let mut out = header(agreement, payload.len());
    out.append(&mut payload);
    out
}

fn header(agreement: &Digest, length: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(32 + length);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&KIND.to_le_bytes());
    out.extend_from_slice(&VERSION.to_le_bytes());
    out.extend(agreement.0.iter().take(16));
    out.extend_from_slice(&(length as u64).to_le_bytes());
    out
}

/// The files in a bundle, by name. Their number is bounded by the names that a model may have, their size by the input.
pub(crate) fn decode(bytes: &[u8], agreement: &Digest) -> Result<Vec<(String, Vec<u8>)>, ServeError> {
    let bad = |fault| ServeError::BadBundle { fault };
    let other = decode_header(bytes).map_err(bad)?;
    if !agreement.0.starts_with(&other) {
        return Err(ServeError::BundleOfOtherAgreement);
    }
    decode_files(bytes).map_err(bad)
}

fn decode_header(bytes: &[u8]) -> Result<[u8; 16], WireFault> {
    let mut reader = Reader(bytes);
    if reader.array("magic")? != MAGIC {
        return Err(WireFault::Magic);
    }
    if u16::from_le_bytes(reader.array("kind")?) != KIND {
        return Err(WireFault::Undefined { field: "kind" });
    }
    match u16::from_le_bytes(reader.array("version")?) {
        VERSION => reader.array("agreement"),
        got => Err(WireFault::Version { got }),
    }
}

pub(crate) fn decode_files(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, WireFault> {
    let mut reader = Reader(bytes);
    reader.take(24, "header")?;
    let length = u64::from_le_bytes(reader.array("length")?);
    match (length, reader.0.len() as u64) {
        (claimed, there) if claimed > there => return Err(WireFault::Short { field: "end" }),
        (claimed, there) if claimed < there => return Err(WireFault::Trailing),
        _ => {}
    }
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    while !reader.0.is_empty() {
        let [length] = reader.array("length of a name")?;
        let name = reader.take(usize::from(length), "name")?;
        let name = std::str::from_utf8(name).map_err(|_| WireFault::Undefined { field: "name" })?;
        if files.last().is_some_and(|(last, _)| last.as_str() >= name) {
            return Err(WireFault::Undefined { field: "order of names" });
        }
        let length = u32::from_le_bytes(reader.array("length of a file")?) as usize;
        let contents = reader.take(length, "file")?;
        files.push((name.to_owned(), contents.to_vec()));
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use hushed_model::testing::{tiny_generator_folder, tiny_golden};

    use super::*;

    /// As anybody computes them from the published files.
    #[test]
    fn the_tokenizer_and_the_template_have_hashes_of_their_own() {
        let folder = tempfile::tempdir().unwrap();
        tiny_generator_folder(folder.path()).unwrap();
        let bundle = || Bundle::from_folder(folder.path()).unwrap();
        let tokenizer = std::fs::read(folder.path().join("tokenizer.json")).unwrap();
        assert_eq!(bundle().tokenizer_hash(), Some(hash(&tokenizer)));
        assert_eq!(bundle().template_hash(), None);

        let published = r#"{"model_max_length": 9, "eos_token": {"content": "<|endoftext|>", "lstrip": false},
            "pad_token": null, "chat_template": "{{ 'é\n' }}{{ messages[0].content }}"}"#;
        std::fs::write(folder.path().join("tokenizer_config.json"), published).unwrap();
        let public = r#"{"chat_template":"{{ 'é\n' }}{{ messages[0].content }}","eos_token":"<|endoftext|>"}"#;
        let with = bundle();
        assert_eq!(with.template_hash(), Some(hash(public.as_bytes())));
        assert_eq!(with.tokenizer_hash(), Some(hash(&tokenizer)));
        let sent = Bundle::from_bytes(with.bytes().to_vec()).unwrap();
        assert_eq!(sent.template_hash(), with.template_hash());
        assert_eq!(sent.tokenizer_hash(), with.tokenizer_hash());
    }

    #[test]
    fn a_bundle_of_another_protocol_is_fhes_alone() {
        let bundle = Bundle::from_folder(&tiny_golden("gpt2")).unwrap();
        let mut bytes = bundle.bytes().to_vec();
        bytes[8..24].fill(7);
        let refused = Bundle::from_bytes(bytes.clone());
        assert!(matches!(refused, Err(ServeError::BundleOfOtherAgreement)));
        let taken = Bundle::of_any_release(bytes.clone()).unwrap();
        assert_eq!(taken.bytes(), bytes);
        bytes[0] = 0;
        let refused = Bundle::of_any_release(bytes);
        assert!(matches!(refused, Err(ServeError::BadBundle { .. })));
    }
}
