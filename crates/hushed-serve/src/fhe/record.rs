//! The record of a key set: a small JSON file in its folder.

use std::path::Path;

use hushed_fhe::files::atomic::{self, Access};
use hushed_fhe::files::chunked::Hash;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::FheJobError;
use crate::digest::Digest;
use crate::error::ServeError;
use crate::files::{self, now};

/// The version that this program writes and reads.
pub const VERSION: u32 = 1;

/// Maximum size of a record in bytes; a request's record has one number per text.
const MAX_BYTES: u64 = 1 << 20;

/// In a key folder: the record, the secret key, the server's keys, and the records of requests.
pub(super) const RECORD: &str = "key.json";
pub(super) const SECRET: &str = "secret.key";
pub(super) const KEYS: &str = "evaluation.keys";
pub(super) const REQUESTS: &str = "requests";
/// For a client of a server: the manifest, the public model, the pending jobs.
pub(super) const PLAN: &str = "manifest.json";
pub(super) const PUBLIC: &str = "model.public";
pub(super) const JOBS: &str = "jobs";

/// The record of one key set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyRecord {
    /// Version of the format.
    pub version: u32,
    /// Id of the set, in hexadecimal.
    pub id: String,
    /// Hash of the manifest that the keys were made for, in hexadecimal.
    pub plan: String,
    /// Name of the parameter set.
    pub parameters: String,
    /// When they were made, in seconds since 1970.
    pub created: u64,
    /// When they expire.
    pub expires: u64,
    /// Bytes of the evaluation keys.
    pub bytes: u64,
    /// Number of ciphertexts decrypted with the secret key; 0 on a server.
    pub decryptions: u64,
    /// Replies that were decrypted, or about to be, and whose canary was not found right. A key set with any is
    /// retired.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_right: Vec<NotRight>,
    /// The owner of the keys, on a server.
    pub owner: Option<String>,
}

/// A reply whose canary was not found right. Another reply to the same request does not clear it: a server could send
/// one later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NotRight {
    /// The name of the request's content, in hexadecimal.
    pub request: String,
    /// SHA-256 of the reply's file, in hexadecimal.
    pub reply: String,
}

impl KeyRecord {
    /// Reads the record of a key folder.
    pub fn read(folder: &Path) -> Result<KeyRecord, ServeError> {
        read(&folder.join(RECORD))
    }

    /// Writes the record, as a whole or not at all.
    pub fn write(&self, folder: &Path) -> Result<(), ServeError> {
        write(&folder.join(RECORD), self)
    }

    /// The id as bytes; zeros, which no file has, if it cannot be parsed.
    #[must_use]
    pub fn hash(&self) -> Hash {
        self.id.parse::<Digest>().map_or([0; 32], |digest| digest.0)
    }

    /// Whether a decrypted answer was not found right; nothing is encrypted under these keys any more.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        !self.not_right.is_empty()
    }

    /// [`FheJobError::Expired`] if the keys have expired.
    pub fn check_time(&self) -> Result<(), ServeError> {
        check_time(&self.hash(), self.expires)
    }
}

pub(super) fn check_time(id: &Hash, expires: u64) -> Result<(), ServeError> {
    match now().checked_sub(expires) {
        Some(seconds) => Err(FheJobError::Expired { id: Digest(*id), seconds }.into()),
        None => Ok(()),
    }
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
    let mut bytes =
        serde_json::to_vec_pretty(record).map_err(|source| FheJobError::Record { path: path.to_owned(), source })?;
    bytes.push(b'\n');
    Ok(atomic::write(path, Access::Private, &bytes).map_err(FheJobError::from)?)
}
