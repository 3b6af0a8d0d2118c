//! The record of a key set: a small JSON file in its folder.

use std::fs::File;
use std::path::{Path, PathBuf};

use hushed_fhe::files::atomic::{self, Access};
use hushed_fhe::files::{FileError, chunked::Hash};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::FheJobError;
use crate::digest::Digest;
use crate::error::ServeError;
use crate::files::{self, now};

/// The version that this program writes and reads.
pub const VERSION: u32 = 1;

/// Most bytes of a record: a request's has a number a text.
const MAX_BYTES: u64 = 1 << 20;

/// In a key folder: the record, the secret key, the server's keys, and records of requests.
pub(super) const RECORD: &str = "key.json";
pub(super) const SECRET: &str = "secret.key";
pub(super) const KEYS: &str = "evaluation.keys";
pub(super) const REQUESTS: &str = "requests";
/// For a client of a server: manifest, public model, pending jobs.
pub(super) const PLAN: &str = "manifest.json";
pub(super) const PUBLIC: &str = "model.public";
pub(super) const JOBS: &str = "jobs";
/// Keys that were retired and replaced, a folder each.
pub(super) const RETIRED: &str = "retired";
const LOCK: &str = "key.lock";

/// The record of one key set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRecord {
    /// Version of the format.
    pub version: u32,
    /// Id of the set, in hexadecimal.
    pub id: String,
    /// Hash of the manifest that they were made for, in hexadecimal.
    pub plan: String,
    /// Name of the parameter set.
    pub parameters: String,
    /// When they were made, in seconds since 1970.
    pub created: u64,
    /// When they expire.
    pub expires: u64,
    /// Bytes of the evaluation keys.
    pub bytes: u64,
    /// Ciphertexts that were decrypted with the secret key; 0 at a server.
    pub decryptions: u64,
    /// The replies that were decrypted, or were about to be, and whose canary was not seen to be right. Keys with any
    /// are retired.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_right: Vec<NotRight>,
    /// Whose they are, at a server.
    pub owner: Option<String>,
}

/// A reply whose canary was not seen to be right. Another reply to the same request does not clear it: a server could
/// send one later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotRight {
    /// What names the request's content, in hexadecimal.
    pub request: String,
    /// SHA-256 of the reply's file, in hexadecimal.
    pub reply: String,
}

/// A client's record of a request, needed to read its reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestRecord {
    pub version: u32,
    /// What names the request's content, in hexadecimal: a reply must be to that.
    pub content: String,
    /// Tokens of each text, in order: the places of the batch from the first on.
    pub tokens: Vec<usize>,
    /// Tokens of the canary, in the last place.
    pub canary: Option<usize>,
    /// SHA-256 of the token ids, in hexadecimal: likelihoods are of these texts. The folder is private, and has the
    /// secret key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub texts: Option<String>,
}

/// Held while a record is read, changed and written.
pub(super) struct Held {
    _file: File,
}

impl KeyRecord {
    /// The record of a folder of keys.
    pub fn read(folder: &Path) -> Result<KeyRecord, ServeError> {
        read(&folder.join(RECORD))
    }

    /// Writes the record, whole or not at all.
    pub fn write(&self, folder: &Path) -> Result<(), ServeError> {
        write(&folder.join(RECORD), self)
    }

    /// The id as bytes; zeros for one that cannot be parsed, which no file has.
    #[must_use]
    pub fn hash(&self) -> Hash {
        self.id.parse::<Digest>().map_or([0; 32], |digest| digest.0)
    }

    /// Whether a decrypted answer was not seen to be right: nothing is encrypted for these keys any more.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        !self.not_right.is_empty()
    }

    /// [`FheJobError::Expired`] if their time is over.
    pub fn check_time(&self) -> Result<(), ServeError> {
        check_time(&self.hash(), self.expires)
    }
}

pub(super) fn check_time(id: &Hash, expires: u64) -> Result<(), ServeError> {
    match now().checked_sub(expires) {
        Some(seconds) => Err(FheJobError::Expired {
            id: Digest(*id),
            seconds,
        }
        .into()),
        None => Ok(()),
    }
}

/// [`FheJobError::RetiredKeys`] if the keys of this folder are retired; nothing if there are none.
pub(super) fn check_retired(folder: &Path) -> Result<(), ServeError> {
    if !folder.join(RECORD).is_file() {
        return Ok(());
    }
    // A decryption in progress ends first.
    let _held = hold(folder)?;
    let record = KeyRecord::read(folder)?;
    match record.is_retired() {
        true => Err(retired(&record, folder)),
        false => Ok(()),
    }
}

pub(super) fn retired(record: &KeyRecord, folder: &Path) -> ServeError {
    let id = Digest(record.hash());
    let path = folder.to_owned();
    FheJobError::RetiredKeys { id, path }.into()
}

/// Waits until no other process changes the records of this folder.
pub(super) fn hold(folder: &Path) -> Result<Held, ServeError> {
    let path = folder.join(LOCK);
    let locked = File::create(&path).and_then(|file| file.lock().map(|()| file));
    let file = locked.map_err(FileError::io("lock", &path));
    Ok(Held {
        _file: file.map_err(FheJobError::from)?,
    })
}

pub(super) fn request_path(folder: &Path, id: &[u8]) -> PathBuf {
    let name = hushed_fhe::plan::public_plan::hex(id);
    folder.join(REQUESTS).join(format!("{name}.json"))
}

pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Result<T, ServeError> {
    let bytes = files::read(path, MAX_BYTES)?;
    serde_json::from_slice(&bytes).map_err(|source| {
        let path = path.to_owned();
        FheJobError::Record { path, source }.into()
    })
}

/// Writes a record that nobody else can read.
pub(super) fn write(path: &Path, record: &impl Serialize) -> Result<(), ServeError> {
    let mut bytes = serde_json::to_vec_pretty(record).map_err(|source| FheJobError::Record {
        path: path.to_owned(),
        source,
    })?;
    bytes.push(b'\n');
    Ok(atomic::write(path, Access::Private, &bytes).map_err(FheJobError::from)?)
}
