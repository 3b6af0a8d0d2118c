//! A client's keys and what must be kept with them, in a folder or in memory; both share one implementation of
//! encryption and decryption ([`super::texts`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hushed_fhe::files::atomic;
use hushed_fhe::files::exchange::REQUEST_ID;
use hushed_fhe::files::owner::SecretKey;
use hushed_fhe::files::secret;
use hushed_fhe::plan::public_plan::Params;

use super::held::{Held, RequestRecord, hold, request_path};
use crate::error::ServeError;
use crate::fhe::FheJobError;
use crate::fhe::record::{KeyRecord, RECORD, REQUESTS, SECRET, read, write};
use crate::files::make_folder;

/// The id of a request.
pub(super) type RequestId = [u8; REQUEST_ID];

/// Keys, wherever they are kept.
pub(super) trait Keyring {
    /// The path that errors give for them.
    fn path(&self) -> &Path;

    /// Their record.
    fn record(&self) -> &KeyRecord;

    /// Keeps a changed record. On return the record is as durable as the secret key, for a decryption follows.
    fn keep(&mut self, record: KeyRecord) -> Result<(), ServeError>;

    /// The secret key, with at least `decryptions` decryptions already counted.
    fn secret(&self, params: &Params, decryptions: u64) -> Result<Arc<SecretKey>, ServeError>;

    /// The record of a request, if it was made with these keys.
    fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, ServeError>;

    /// Keeps the record of a request.
    fn remember(&mut self, id: &RequestId, request: RequestRecord) -> Result<(), ServeError>;
}

/// The keys of a folder.
pub(super) struct FolderKeys {
    folder: PathBuf,
    record: KeyRecord,
    held: Option<Held>,
}

impl FolderKeys {
    /// Locks the folder, so that no other process decrypts in it. Waits for one that does. Without keys, the error says
    /// how they are made for the manifest `plan`.
    pub(super) fn open(folder: &Path, plan: &Path) -> Result<FolderKeys, ServeError> {
        // If there are no keys, leaves no lock behind.
        if !folder.join(RECORD).is_file() {
            return Err(FheJobError::NoKeys { path: folder.to_owned(), plan: plan.to_owned() }.into());
        }
        let held = hold(folder)?;
        Ok(FolderKeys { folder: folder.to_owned(), record: KeyRecord::read(folder)?, held: Some(held) })
    }

    /// The same without the lock, for uses that change no key record.
    pub(super) fn released(self) -> FolderKeys {
        FolderKeys { held: None, ..self }
    }
}

impl Keyring for FolderKeys {
    fn path(&self) -> &Path {
        &self.folder
    }

    fn record(&self) -> &KeyRecord {
        &self.record
    }

    fn keep(&mut self, record: KeyRecord) -> Result<(), ServeError> {
        if self.held.is_some() {
            atomic::clear_drafts(&self.folder.join(RECORD));
        }
        record.write(&self.folder)?;
        self.record = record;
        Ok(())
    }

    fn secret(&self, params: &Params, decryptions: u64) -> Result<Arc<SecretKey>, ServeError> {
        let read = secret::read(&self.folder.join(SECRET), params.rlwe(), decryptions);
        Ok(Arc::new(read.map_err(FheJobError::from)?))
    }

    fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, ServeError> {
        let path = request_path(&self.folder, id);
        path.is_file().then(|| read(&path)).transpose()
    }

    fn remember(&mut self, id: &RequestId, request: RequestRecord) -> Result<(), ServeError> {
        make_folder(&self.folder.join(REQUESTS))?;
        write(&request_path(&self.folder, id), &request)
    }
}
