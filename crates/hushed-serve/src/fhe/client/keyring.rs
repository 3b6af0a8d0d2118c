//! A client's keys with what must be kept with them, in a folder or in memory: one account of encryption and decryption
//! for both ([`super::texts`]).

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

/// Keys, wherever they are.
pub(super) trait Keyring {
    /// What errors call them.
    fn path(&self) -> &Path;

    /// Their record.
    fn record(&self) -> &KeyRecord;

    /// Keeps a changed record. When this returns, the record is as durable as the secret key: a decryption follows.
    fn keep(&mut self, record: KeyRecord) -> Result<(), ServeError>;

    /// The secret key, which has made at least as many decryptions as were made with it.
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
    /// Locks the folder, in which no other process decrypts from then on. One that does ends first.
    pub(super) fn open(folder: &Path) -> Result<FolderKeys, ServeError> {
        // Where there are no keys, no lock is left.
        KeyRecord::read(folder)?;
        let held = hold(folder)?;
        Ok(FolderKeys {
            folder: folder.to_owned(),
            record: KeyRecord::read(folder)?,
            held: Some(held),
        })
    }

    /// The same without the lock, for what changes no record of keys.
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
