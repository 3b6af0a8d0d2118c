//! Keys in folders, on either side: listing and deleting.
//!
//! A folder of keys has a `key.json`. A store is such a folder, or contains such folders: on a server one per key set,
//! named by its id. The store of `hushed serve` contains one store per client (`server/storage.rs`), whose keys are
//! found from there too.

use std::fs;
use std::path::{Path, PathBuf};

use hushed_fhe::FhePlan;
use hushed_fhe::files::atomic::{Access, AtomicFile};
use hushed_fhe::files::{FileError, keys::KeyFile};
use hushed_fhe::plan::public_plan::Params;

use super::record::{JOBS, KEYS, KeyRecord, PLAN, PUBLIC, RECORD, REQUESTS, SECRET, VERSION, check_time};
use super::{FheJobError, read_plan};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::files::{make_folder, now};

/// Minimum number of digits of an id that identify keys.
const LEAST_DIGITS: usize = 8;

/// In a store of `hushed serve`: the folder of its clients' folders, and in each of these the folder of keys.
pub(super) const OWNERS: &str = "owners";
pub(super) const OWNER_KEYS: &str = "keys";

/// Maximum time that a server keeps keys, in seconds: the longest life that keys can be made with.
const MAX_LIFE: u64 = 3650 * 86_400;

/// A folder with keys.
pub struct KeyStore {
    folder: PathBuf,
}

/// One key set.
#[derive(Clone, Debug)]
pub struct StoredKeys {
    /// Their record.
    pub record: KeyRecord,
    /// Their folder.
    pub folder: PathBuf,
    /// Whether the secret key is there, as on the owner's side.
    pub secret: bool,
}

impl KeyStore {
    /// The store in this folder.
    #[must_use]
    pub fn new(folder: &Path) -> KeyStore {
        KeyStore { folder: folder.to_owned() }
    }

    /// All keys, oldest first. Folders without a record do not count as keys; a damaged record is an error.
    pub fn list(&self) -> Result<Vec<StoredKeys>, ServeError> {
        let all = self.folders()?.into_iter().map(StoredKeys::read);
        let mut all = all.collect::<Result<Vec<_>, _>>()?;
        all.sort_by_key(|keys| (keys.record.created, keys.record.id.clone()));
        Ok(all)
    }

    /// The keys whose record can be read; a damaged record does not keep a server from the others.
    pub(super) fn readable(&self) -> Vec<StoredKeys> {
        let folders = self.folders().unwrap_or_default().into_iter();
        folders.filter_map(|f| StoredKeys::read(f).ok()).collect()
    }

    /// The folders that have a record: this one, those in it, and, in a store of `hushed serve`, those of its clients.
    fn folders(&self) -> Result<Vec<PathBuf>, ServeError> {
        let mut folders = vec![self.folder.clone()];
        folders.extend(inside(&self.folder)?);
        let owners = self.folder.join(OWNERS);
        if owners.is_dir() {
            for owner in inside(&owners)? {
                let keys = owner.join(OWNER_KEYS);
                if keys.is_dir() {
                    folders.extend(inside(&keys)?);
                }
            }
        }
        folders.retain(|folder| folder.join(RECORD).is_file());
        Ok(folders)
    }

    /// Finds keys by their id, or by a unique prefix of at least eight digits.
    ///
    /// # Errors
    /// [`FheJobError::NoSuchKeys`], and the errors of [`KeyStore::list`].
    pub fn find(&self, id: &str) -> Result<StoredKeys, ServeError> {
        let all = self.list()?;
        let mut found = all
            .into_iter()
            .filter(|keys| id.len() >= LEAST_DIGITS && keys.record.id.starts_with(&id.to_ascii_lowercase()));
        match (found.next(), found.next()) {
            (Some(keys), None) => Ok(keys),
            _ => Err(FheJobError::NoSuchKeys { id: id.chars().take(64).collect(), path: self.folder.clone() }.into()),
        }
    }

    /// Deletes keys: what this program has written for them, and the folder if nothing else is in it. The record goes
    /// last, so that an interrupted deletion can be repeated.
    pub fn delete(&self, id: &str) -> Result<StoredKeys, ServeError> {
        let keys = self.find(id)?;
        keys.delete()?;
        Ok(keys)
    }

    /// Imports a client's keys for `owner`, who may have at most `quota` bytes of keys here. They must be those of the
    /// manifest, whole and not expired; keys that are already here are left as they are.
    ///
    /// # Errors
    /// [`FheJobError::Quota`], [`FheJobError::Expired`], [`FheJobError::File`], [`FheJobError::Plan`].
    pub fn add(&self, plan: &Path, keys: &Path, owner: &str, quota: u64) -> Result<StoredKeys, ServeError> {
        let (plan, params) = read_plan(plan)?;
        let placed = Placed::Copied { taken: self.taken(owner)?, quota };
        self.place(&plan, &params, keys, owner, placed)
    }

    /// Like [`KeyStore::add`], but moves a file on this disk. The caller checks quota and room.
    pub(super) fn take(
        &self,
        plan: &FhePlan,
        params: &Params,
        keys: &Path,
        owner: &str,
    ) -> Result<StoredKeys, ServeError> {
        self.place(plan, params, keys, owner, Placed::Moved)
    }

    /// Bytes of an owner's keys.
    fn taken(&self, owner: &str) -> Result<u64, ServeError> {
        if !self.folder.exists() {
            return Ok(0);
        }
        let taken = self.list()?.into_iter().map(|keys| keys.record);
        let taken = taken.filter(|record| record.owner.as_deref() == Some(owner));
        Ok(taken.map(|record| record.bytes).sum())
    }

    fn place(
        &self,
        plan: &FhePlan,
        params: &Params,
        keys: &Path,
        owner: &str,
        placed: Placed,
    ) -> Result<StoredKeys, ServeError> {
        let key_specs = plan.key_specs(params).map_err(FheJobError::from)?;
        let file = KeyFile::open(keys, params.rlwe(), &key_specs).map_err(FheJobError::from)?;
        let (id, times) = (file.id(), file.times());
        check_time(&id, times.expires)?;
        make_folder(&self.folder)?;
        let name = Digest(id).to_string();
        let folder = self.folder.join(&name);
        if folder.join(RECORD).is_file() && folder.join(KEYS).is_file() {
            if let Placed::Moved = placed {
                // They were uploaded twice; the second copy has no use.
                remove(keys)?;
            }
            return StoredKeys::read(folder);
        }
        let metadata = fs::metadata(keys).map_err(FileError::io("read", keys));
        let bytes = metadata.map_err(FheJobError::from)?.len();
        if let Placed::Copied { taken, quota } = placed {
            let left = quota.saturating_sub(taken);
            if bytes > left {
                return Err(FheJobError::Quota { owner: owner.to_owned(), needed: bytes, left }.into());
            }
            super::system::check_room(&self.folder, bytes)?;
        }
        // The whole file is read and checked once, key by key, before it is kept.
        file.check(&mut |_, _| {}).map_err(FheJobError::from)?;
        make_folder(&folder)?;
        let record = KeyRecord {
            version: VERSION,
            id: name,
            plan: Digest(plan.hash()).to_string(),
            parameters: plan.parameters.clone(),
            created: times.created,
            // A client's own statement cannot make them last longer than keys may be made for.
            expires: times.expires.min(now().saturating_add(MAX_LIFE)),
            bytes,
            decryptions: 0,
            not_right: Vec::new(),
            owner: Some(owner.to_owned()),
        };
        // The record first: keys without one would never be found and never expire.
        record.write(&folder)?;
        let there = folder.join(KEYS);
        let done = match placed {
            Placed::Copied { .. } => copy(keys, &there),
            Placed::Moved => fs::rename(keys, &there).map_err(FileError::io("write", &there)),
        };
        if let Err(error) = done {
            let _ = fs::remove_file(folder.join(RECORD));
            return Err(FheJobError::from(error).into());
        }
        Ok(StoredKeys { record, folder, secret: false })
    }
}

/// The folders in a folder.
fn inside(folder: &Path) -> Result<Vec<PathBuf>, ServeError> {
    let failed = || FileError::io("read", folder);
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).map_err(failed());
    for entry in entries.map_err(FheJobError::from)? {
        let entry = entry.map_err(failed()).map_err(FheJobError::from)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.push(entry.path());
        }
    }
    Ok(found)
}

/// How a file enters a store.
enum Placed {
    Copied { taken: u64, quota: u64 },
    Moved,
}

impl StoredKeys {
    fn read(folder: PathBuf) -> Result<StoredKeys, ServeError> {
        Ok(StoredKeys { record: KeyRecord::read(&folder)?, secret: folder.join(SECRET).is_file(), folder })
    }

    /// Like [`KeyStore::delete`].
    pub(super) fn delete(&self) -> Result<(), ServeError> {
        for name in [SECRET, KEYS] {
            remove(&self.folder.join(name))?;
        }
        for name in [REQUESTS, JOBS] {
            let folder = self.folder.join(name);
            if folder.is_dir() {
                let removed = fs::remove_dir_all(&folder).map_err(FileError::io("delete", &folder));
                removed.map_err(FheJobError::from)?;
            }
        }
        for name in [PLAN, PUBLIC] {
            remove(&self.folder.join(name))?;
        }
        remove(&self.folder.join("key.lock"))?;
        remove(&self.folder.join(RECORD))?;
        // A folder with something else in it stays.
        let _ = fs::remove_dir(&self.folder);
        Ok(())
    }

    /// The file for the server, with the evaluation keys.
    #[must_use]
    pub fn keys(&self) -> PathBuf {
        self.folder.join(KEYS)
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), FileError> {
    let mut source = fs::File::open(from).map_err(FileError::io("read", from))?;
    let mut target = AtomicFile::create(to, Access::Usual)?;
    std::io::copy(&mut source, &mut target).map_err(FileError::io("write", to))?;
    target.commit()
}

fn remove(path: &Path) -> Result<(), ServeError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let error = FileError::io("delete", path)(error);
            Err(FheJobError::from(error).into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(folder: &Path, id: &str, owner: &str) {
        make_folder(folder).unwrap();
        let record = KeyRecord {
            version: VERSION,
            id: id.to_owned(),
            plan: String::new(),
            parameters: String::new(),
            created: 1,
            expires: u64::MAX,
            bytes: 5,
            decryptions: 0,
            not_right: Vec::new(),
            owner: Some(owner.to_owned()),
        };
        record.write(folder).unwrap();
        fs::write(folder.join(KEYS), b"bytes").unwrap();
    }

    /// An operator asks this of the whole store, not client by client.
    #[test]
    fn the_keys_of_all_clients_of_a_server() {
        let work = tempfile::tempdir().unwrap();
        let root = work.path();
        put(&root.join("owners/ann/keys/1111222233334444"), "1111222233334444", "ann");
        put(&root.join("owners/bob/keys/5555666677778888"), "5555666677778888", "bob");
        make_folder(&root.join("owners/bob/jobs")).unwrap();
        make_folder(&root.join("owners/eve")).unwrap();
        let store = KeyStore::new(root);
        let ids: Vec<String> = store.list().unwrap().into_iter().map(|keys| keys.record.id).collect();
        assert_eq!(ids, ["1111222233334444", "5555666677778888"]);
        let gone = store.delete("55556666").unwrap();
        assert_eq!(gone.record.owner.as_deref(), Some("bob"));
        assert_eq!(store.list().unwrap().len(), 1);
        assert!(!root.join("owners/bob/keys/5555666677778888").exists());
        assert!(store.find("1111222233334444").is_ok());
    }
}
