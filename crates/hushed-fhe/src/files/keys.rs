//! The part of a client's keys that a server needs, in one artefact: the public key and the evaluation keys.
//!
//! | bytes | content |
//! |---|---|
//! | 32 | header |
//! | 8, 8 | when they were made and when they expire, in seconds since 1970 |
//! | given by the parameters | the public key ([`PublicKey::to_bytes`]) |
//! | 32 | SHA-256 of everything before |
//! | given by the plan | the evaluation keys ([`hushed_rlwe::hybrid`]), key by key |
//! | 32 | their id: SHA-256("hushed keys 1" ‖ the digest above ‖ the name of the evaluation keys) |
//!
//! A key has tens of megabytes and a model's set gigabytes, so keys are generated and read one by one, and a truncated
//! file is refused before its first key is read. The bytes are the same in files and in memory.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hushed_ckks::keys::{EvalKeys, KeySpecs, PublicKey};
use hushed_rlwe::RlweParams;
use hushed_rlwe::codec::{HEADER_BYTES, Kind, read_header};
use hushed_rlwe::error::CodecError;
use hushed_rlwe::hybrid::{EvalKeysReader, MAX_KEYS};
use sha2::{Digest, Sha256};

use super::FileError;
use super::chunked::{DIGEST, Hash, lengths, open_file, truncated};

/// Bytes of the two times.
const TIMES: usize = 16;

/// Called with the number of keys done and the total.
pub type KeyProgress<'a> = &'a mut dyn FnMut(usize, usize);

/// When keys were made, and until when they may be used; in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyTimes {
    /// When they were made.
    pub created: u64,
    /// When they expire; they are not used from then on.
    pub expires: u64,
}

/// Bytes of these keys; errors call them `path`.
///
/// # Errors
/// [`FileError::Content`] if they are not keys of the parameters.
pub fn file_bytes(path: &Path, params: &RlweParams, specs: &KeySpecs) -> Result<u64, FileError> {
    let keys = specs.artefact_bytes(params).map_err(|e| FileError::content(path, e))?;
    Ok((first_bytes(params) + keys + DIGEST) as u64)
}

#[cfg(any(feature = "client", test))]
mod make;

#[cfg(any(feature = "client", test))]
pub use make::{write, write_to};

/// Keys whose list, times, public part and length have been checked, and which are still to be read.
pub struct KeyReader<R> {
    path: PathBuf,
    source: R,
    params: Arc<RlweParams>,
    specs: KeySpecs,
    times: KeyTimes,
    public: PublicKey,
    digest: Hash,
    stated: Hash,
}

/// Keys in a file.
pub type KeyFile = KeyReader<BufReader<File>>;

impl KeyFile {
    /// Opens a file that must hold exactly the keys of `specs`.
    ///
    /// # Errors
    /// [`FileError::Content`] with the first missing key; [`FileError::Codec`] for extra keys, other parameters,
    /// damage, or another length; [`FileError::Io`].
    pub fn open(path: &Path, params: &Arc<RlweParams>, specs: &KeySpecs) -> Result<KeyFile, FileError> {
        Self::begin(open_file(path)?.0, path, params, specs)
    }
}

impl<R: Read + Seek> KeyReader<R> {
    /// Begins with a source (a [`std::io::Cursor`] for bytes in memory); errors call it `path`.
    ///
    /// # Errors
    /// As [`KeyFile::open`].
    pub fn begin(mut source: R, path: &Path, params: &Arc<RlweParams>, specs: &KeySpecs) -> Result<Self, FileError> {
        let failed = || FileError::io("read", path);
        let codec = |fault| FileError::codec(path, fault);
        let first = read_first(&mut source, path, params)?;

        // The list of keys comes first: a missing key is a more helpful error than another length.
        let mut list = vec![0; HEADER_BYTES + 4];
        source.read_exact(&mut list).map_err(failed())?;
        let count = list.last_chunk::<4>().map_or(0, |n| u32::from_le_bytes(*n) as usize);
        if count > MAX_KEYS {
            return Err(codec(CodecError::Keys));
        }
        list.resize(HEADER_BYTES + 4 + 8 * count, 0);
        let (_, lines) = list.split_at_mut(HEADER_BYTES + 4);
        source.read_exact(lines).map_err(failed())?;
        let refused = |error| FileError::content(path, error);
        let offered = KeySpecs::offered(params, &list).map_err(refused)?;
        specs.check_among(&offered).map_err(refused)?;
        if offered.len() != specs.len() {
            return Err(codec(CodecError::Keys));
        }
        let expected = file_bytes(path, params, specs)?;
        if first.claimed != expected {
            return Err(codec(lengths(first.claimed, expected)));
        }
        let stated = stated_id(&mut source).map_err(failed())?;
        source.seek(SeekFrom::Start(first_bytes(params) as u64)).map_err(failed())?;
        Ok(KeyReader {
            path: path.to_owned(),
            source,
            params: params.clone(),
            specs: specs.clone(),
            times: first.times,
            public: first.public,
            digest: first.digest,
            stated,
        })
    }

    /// The stated id, checked once everything has been read.
    pub fn id(&self) -> Hash {
        self.stated
    }

    /// When the keys were made, and until when they may be used.
    pub fn times(&self) -> KeyTimes {
        self.times
    }

    /// Reads the keys.
    ///
    /// # Errors
    /// [`FileError::Io`], [`FileError::Codec`], [`FileError::Other`] if the keys do not match the id.
    pub fn read(mut self, progress: KeyProgress<'_>) -> Result<(PublicKey, EvalKeys), FileError> {
        let reader = EvalKeysReader::new(&self.params, &self.specs);
        let reader = reader.map_err(|error| FileError::content(&self.path, error))?;
        let reader = self.read_into(reader, progress)?;
        let keys = reader.finish();
        let keys = keys.map_err(|error| FileError::content(&self.path, error))?;
        Ok((self.public, keys))
    }

    /// Checks the keys as [`KeyReader::read`] does without keeping more than the public one: it takes the memory of one
    /// key.
    pub fn check(mut self, progress: KeyProgress<'_>) -> Result<PublicKey, FileError> {
        let reader = EvalKeysReader::checking(&self.params, &self.specs);
        let reader = reader.map_err(|error| FileError::content(&self.path, error))?;
        self.read_into(reader, progress)?;
        Ok(self.public)
    }

    fn read_into(
        &mut self,
        mut reader: EvalKeysReader,
        progress: KeyProgress<'_>,
    ) -> Result<EvalKeysReader, FileError> {
        let path = &self.path;
        let refused = |error| FileError::content(path, error);
        let mut chunk = Vec::new();
        while let Some(bytes) = reader.next_bytes() {
            progress(reader.complete().len(), self.specs.len());
            chunk.resize(bytes, 0);
            self.source.read_exact(&mut chunk).map_err(FileError::io("read", path))?;
            reader.push(&chunk).map_err(refused)?;
        }
        let name = reader.content_hash().unwrap_or_default();
        super::fault::same(path, "key set", &self.stated, &id(&self.digest, &name))?;
        Ok(reader)
    }
}

/// Id and times as stated in a file of keys. Neither is checked against the keys.
///
/// # Errors
/// [`FileError::Io`], [`FileError::Codec`].
pub fn stated(path: &Path, params: &Arc<RlweParams>) -> Result<(Hash, KeyTimes), FileError> {
    let (mut file, _) = open_file(path)?;
    let first = read_first(&mut file, path, params)?;
    let id = stated_id(&mut file).map_err(FileError::io("read", path))?;
    Ok((id, first.times))
}

struct First {
    times: KeyTimes,
    public: PublicKey,
    digest: Hash,
    /// Length of the whole file, stated in its header.
    claimed: u64,
}

fn read_first(source: &mut (impl Read + Seek), path: &Path, params: &Arc<RlweParams>) -> Result<First, FileError> {
    let failed = || FileError::io("read", path);
    let codec = |fault| FileError::codec(path, fault);
    let length = source.seek(SeekFrom::End(0)).map_err(failed())?;
    source.rewind().map_err(failed())?;
    let size = first_bytes(params);
    if length < (size + 2 * DIGEST) as u64 {
        return Err(truncated(path, length, (size + 2 * DIGEST) as u64));
    }
    let mut bytes = vec![0; size];
    source.read_exact(&mut bytes).map_err(failed())?;
    let claimed = read_header(&bytes, Kind::FheKeys, params).map_err(codec)?;
    let claimed = claimed.saturating_add(HEADER_BYTES as u64);
    match claimed.cmp(&length) {
        std::cmp::Ordering::Greater => return Err(truncated(path, length, claimed)),
        std::cmp::Ordering::Less => return Err(codec(lengths(length, claimed))),
        std::cmp::Ordering::Equal => {}
    }
    let (body, stated) = bytes.split_at(size - DIGEST);
    let digest: Hash = Sha256::digest(body).into();
    if digest != stated {
        return Err(codec(CodecError::Damaged { chunk: 0 }));
    }
    let word = |at: usize| {
        let bytes = body.get(at..).and_then(|rest| rest.first_chunk::<8>());
        bytes.map_or(0, |b| u64::from_le_bytes(*b))
    };
    let (_, key) = body.split_at(HEADER_BYTES + TIMES);
    Ok(First {
        times: KeyTimes { created: word(HEADER_BYTES), expires: word(HEADER_BYTES + 8) },
        public: PublicKey::from_bytes(params, key).map_err(|e| FileError::content(path, e))?,
        digest,
        claimed,
    })
}

/// The last bytes of a source.
fn stated_id(source: &mut (impl Read + Seek)) -> std::io::Result<Hash> {
    let mut id = [0; DIGEST];
    source.seek(SeekFrom::End(-(DIGEST as i64)))?;
    source.read_exact(&mut id)?;
    Ok(id)
}

fn first_bytes(params: &RlweParams) -> usize {
    HEADER_BYTES + TIMES + PublicKey::stored_bytes(params) + DIGEST
}

fn id(digest: &Hash, name: &Hash) -> Hash {
    let hash = Sha256::new().chain_update(b"hushed keys 1");
    hash.chain_update(digest).chain_update(name).finalize().into()
}
