//! Makes a client's keys in a folder: as many as a manifest asks for, and no more than the user allows.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use hushed_fhe::files::chunked::Hash;
use hushed_fhe::files::{FileError, atomic, keys::KeyTimes, owner};
use hushed_fhe::plan::public_plan::{Manifest, Params};

use super::held::{Held, hold};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::fhe::record::{KEYS, KeyRecord, RECORD, REQUESTS, SECRET, VERSION};
use crate::fhe::{FheJobError, read_manifest, system};
use crate::files::{make_folder, now};

/// Options of [`keygen`].
#[derive(Clone, Copy, Debug)]
pub struct KeygenOptions {
    /// Days until the keys expire.
    pub days: u32,
    /// Maximum number of keys that a manifest may ask for.
    pub most_keys: usize,
    /// Maximum size of their file in bytes.
    pub most_bytes: u64,
}

impl KeygenOptions {
    /// The default limit on the number of keys: models up to BERT-large need a few hundred.
    pub const MOST_KEYS: usize = 1024;
    /// The default limit on their size: models up to BERT-large need about 3 GiB.
    pub const MOST_BYTES: u64 = 16 << 30;

    /// Keys for this many days, with the default limits.
    #[must_use]
    pub fn days(days: u32) -> KeygenOptions {
        KeygenOptions { days, most_keys: Self::MOST_KEYS, most_bytes: Self::MOST_BYTES }
    }
}

/// What a manifest asks its clients to make. The operator decides it, and need not be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyOrder {
    /// Evaluation keys.
    pub keys: usize,
    /// Size of their file in bytes.
    pub bytes: u64,
}

impl KeyOrder {
    /// What the manifest in this file asks for.
    pub fn read(plan: &Path) -> Result<KeyOrder, ServeError> {
        let (plan, params) = read_manifest(plan)?;
        Self::of(plan.plan(), &params, Path::new(KEYS))
    }

    /// What a manifest asks for; errors call the file `keys`.
    pub fn of(plan: &dyn Manifest, params: &Params, keys: &Path) -> Result<KeyOrder, ServeError> {
        let key_specs = plan.key_specs(params).map_err(FheJobError::from)?;
        let bytes = hushed_fhe::files::keys::file_bytes(keys, params.rlwe(), &key_specs);
        Ok(KeyOrder { keys: key_specs.len(), bytes: bytes.map_err(FheJobError::from)? })
    }

    pub(super) fn check(self, options: KeygenOptions) -> Result<(), ServeError> {
        match self.keys <= options.most_keys && self.bytes <= options.most_bytes {
            true => Ok(()),
            false => Err(FheJobError::TooManyKeys {
                keys: self.keys,
                bytes: self.bytes,
                most_keys: options.most_keys,
                most_bytes: options.most_bytes,
            }
            .into()),
        }
    }
}

/// Makes keys for a manifest in a new folder, or in one where a call that was killed has left some, each checked
/// against the security table before it is written. `progress` is called with the number of keys done and their total.
///
/// # Errors
/// [`ServeError::Fhe`] if the manifest cannot be used or asks for too much, keys already exist, or there is no room;
/// [`ServeError::File`].
pub fn keygen(
    plan: &Path,
    folder: &Path,
    options: KeygenOptions,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<KeyRecord, ServeError> {
    // A manifest that cannot be used, or asks for too much, leaves nothing behind.
    KeyOrder::read(plan)?.check(options)?;
    make_folder(folder)?;
    // A second process finds the keys of the first.
    let held = hold(folder)?;
    keygen_held(plan, folder, options, &held, progress)
}

/// Like [`keygen`], for an existing folder that is locked.
pub(super) fn keygen_held(
    plan: &Path,
    folder: &Path,
    options: KeygenOptions,
    _: &Held,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<KeyRecord, ServeError> {
    let (plan, params) = read_manifest(plan)?;
    let plan = plan.plan();
    let (secret, keys) = (folder.join(SECRET), folder.join(KEYS));
    drop_unfinished(folder, [&secret, &keys])?;
    for path in [&secret, &keys] {
        atomic::refuse_existing(path).map_err(FheJobError::from)?;
    }
    let order = KeyOrder::of(plan, &params, &keys)?;
    order.check(options)?;
    let bytes = order.bytes;
    system::check_room(folder, bytes)?;
    make_folder(&folder.join(REQUESTS))?;
    let times = times(options);
    let id = owner::make_keys(&secret, &keys, plan, &params, times, progress).map_err(FheJobError::from)?;
    let record = new_record(plan, &id, times, bytes);
    record.write(folder)?;
    Ok(record)
}

/// Removes what a call that was killed has left: drafts, and keys without a record, which is written last. Nothing was
/// ever encrypted with them, or there would be the record of a request.
fn drop_unfinished(folder: &Path, files: [&Path; 2]) -> Result<(), ServeError> {
    let mut requests = fs::read_dir(folder.join(REQUESTS)).into_iter().flatten();
    if folder.join(RECORD).exists() || requests.next().is_some() {
        return Ok(());
    }
    for path in files {
        atomic::clear_drafts(path);
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(FheJobError::from(FileError::io("delete", path)(error)).into());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Valid from now on, for the requested number of days.
pub(super) fn times(options: KeygenOptions) -> KeyTimes {
    let created = now();
    KeyTimes { created, expires: created.saturating_add(u64::from(options.days) * 86_400) }
}

/// The record of new keys.
pub(super) fn new_record(plan: &dyn Manifest, id: &Hash, times: KeyTimes, bytes: u64) -> KeyRecord {
    KeyRecord {
        version: VERSION,
        id: Digest(*id).to_string(),
        plan: Digest(plan.hash()).to_string(),
        parameters: plan.parameters().to_owned(),
        created: times.created,
        expires: times.expires,
        bytes,
        decryptions: 0,
        not_right: Vec::new(),
        owner: None,
    }
}
