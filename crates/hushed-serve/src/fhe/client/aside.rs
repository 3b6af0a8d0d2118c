//! Moves retired keys, and what was encrypted for them, to a separate folder, where all of it can still be decrypted.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use hushed_fhe::files::FileError;

use super::held::{RETIRED, hold};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::fhe::FheJobError;
use crate::fhe::record::{JOBS, KEYS, KeyRecord, PLAN, PUBLIC, RECORD, REQUESTS, SECRET};
use crate::files::make_folder;

/// Moves the retired keys of a folder, if it has any keys, to its subfolder `retired/ID`, and returns that: a key
/// folder with manifest and public model, but without the evaluation keys, which only a server needs. The record goes
/// last, so that an interrupted move can be repeated.
pub(super) fn set_aside(folder: &Path) -> Result<Option<PathBuf>, ServeError> {
    if !folder.join(RECORD).is_file() {
        return Ok(None);
    }
    let _held = hold(folder)?;
    let record = KeyRecord::read(folder)?;
    if !record.is_retired() {
        let path = folder.to_owned();
        return Err(FheJobError::NotRetired { path }.into());
    }
    let aside = folder.join(RETIRED).join(Digest(record.hash()).to_string());
    make_folder(&aside)?;
    for name in [PLAN, PUBLIC] {
        let from = folder.join(name);
        if from.is_file() {
            let copied = fs::copy(&from, aside.join(name));
            copied.map_err(|source| ServeError::File { operation: "copy", path: from, source })?;
        }
    }
    let keys = folder.join(KEYS);
    if let Err(error) = fs::remove_file(&keys)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(FheJobError::from(FileError::io("delete", &keys)(error)).into());
    }
    for name in [JOBS, REQUESTS, SECRET, RECORD] {
        let (from, to) = (folder.join(name), aside.join(name));
        match fs::rename(&from, &to) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(FheJobError::from(FileError::io("write", &to)(error)).into());
            }
            _ => {}
        }
    }
    Ok(Some(aside))
}
