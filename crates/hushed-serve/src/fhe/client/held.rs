//! What a client's key folder holds besides the key record: records of requests, and a lock.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use hushed_fhe::files::FileError;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::ServeError;
use crate::fhe::FheJobError;
use crate::fhe::record::{KeyRecord, RECORD, REQUESTS, read};

/// The folder of retired and replaced keys, with one subfolder per key set.
pub(super) const RETIRED: &str = "retired";
const LOCK: &str = "key.lock";

/// A client's record of a request, needed to read its reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestRecord {
    pub version: u32,
    /// The name of the request's content, in hexadecimal; a reply must be to that content.
    pub content: String,
    /// Tokens of each text, in order, from the first place of the batch on.
    pub tokens: Vec<usize>,
    /// Tokens of the canary, in the last place.
    pub canary: Option<usize>,
    /// SHA-256 of the token ids, in hexadecimal, to check that likelihoods are of these texts. The folder is private
    /// and also holds the secret key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub texts: Option<String>,
}

/// Held while a record is read, changed and written.
pub(super) struct Held {
    _file: File,
}

/// [`FheJobError::RetiredKeys`] if the keys of this folder are retired; nothing if there are none.
pub(super) fn check_retired(folder: &Path) -> Result<(), ServeError> {
    if !folder.join(RECORD).is_file() {
        return Ok(());
    }
    // Waits for a decryption in progress.
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

/// Locks the folder's records, once no other process is changing them.
pub(super) fn hold(folder: &Path) -> Result<Held, ServeError> {
    let path = folder.join(LOCK);
    let locked = File::create(&path).and_then(|file| file.lock().map(|()| file));
    let file = locked.map_err(FileError::io("lock", &path));
    Ok(Held { _file: file.map_err(FheJobError::from)? })
}

/// Deletes the records of requests with this content, whose answers have been read.
pub(super) fn forget_request(folder: &Path, content: &str) -> Result<(), ServeError> {
    let entries = fs::read_dir(folder.join(REQUESTS)).into_iter().flatten();
    for entry in entries.flatten() {
        let path = entry.path();
        // What cannot be read is no record of this request.
        if read::<RequestRecord>(&path).is_ok_and(|record| record.content == content) {
            fs::remove_file(&path).map_err(FileError::io("delete", &path)).map_err(FheJobError::from)?;
        }
    }
    Ok(())
}

pub(super) fn request_path(folder: &Path, id: &[u8]) -> PathBuf {
    let name = hushed_fhe::plan::public_plan::hex(id);
    folder.join(REQUESTS).join(format!("{name}.json"))
}
