//! What a server keeps on disk for its clients: keys, requests, jobs, and incomplete uploads.
//!
//! ```text
//! STORE/lock                                    one server at a time; workers come and go
//! STORE/reply-secret.sha256                     a hash of the secret that all of them make replies with
//! STORE/owners/OWNER/keys/ID/                   keys, as `hushed keys list` shows them
//! STORE/owners/OWNER/requests/NAME.request      checked, waiting for their run
//! STORE/owners/OWNER/uploads/KIND-NAME.part     not whole yet, and not checked
//! STORE/owners/OWNER/jobs/ID/                   job.json, lease, reply, checkpoints/
//! ```
//!
//! Every name is the hexadecimal form of a parsed hash, so nothing that a client writes becomes a path. An owner sees
//! only its own folder.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use hushed_fhe::FhePlan;
use hushed_fhe::files::exchange::{self, RequestReader};
use hushed_fhe::files::{FileError, keys};
use hushed_fhe::plan::public_plan::Params;

use super::sharing::check_locks;
use crate::digest::Digest;
use crate::error::ServeError;
use crate::fhe::record::{KEYS, KeyRecord, RECORD};
use crate::fhe::store::{KeyStore, OWNER_KEYS, OWNERS};
use crate::fhe::wire::{PART, Upload};
use crate::fhe::{FheJobError, system};
use crate::files::{make_folder, now, open_append};
use crate::session::owner::Owner;
use crate::session::wire::Refusal;

/// Maximum number of unfinished files per owner.
const MAX_UPLOADS: usize = 4;
/// How long an unfinished file is kept after its last byte.
const UPLOAD_LIFE: Duration = Duration::from_secs(86_400);

/// What clients may keep on the server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes per owner; an unfinished file counts with its full size.
    pub(super) quota: u64,
    /// How long a reply is kept, or a request that is not run.
    pub(super) keep: Duration,
}

/// The store.
pub(super) struct Storage {
    root: PathBuf,
    limits: Limits,
    plan: FhePlan,
    params: Params,
    key_bytes: u64,
    request_bytes: u64,
    /// Files that a session is writing or checking.
    busy: Mutex<HashSet<(Owner, Upload)>>,
    /// Held from the check of the limits until the file exists, so that two sessions cannot both get the last place.
    beginning: Mutex<()>,
    /// The server's alone; a worker has none.
    _lock: Option<File>,
}

impl Storage {
    /// Opens or creates the store for this manifest.
    pub(super) fn open(root: &Path, plan: FhePlan, params: Params, limits: Limits) -> Result<Storage, ServeError> {
        make_folder(&root.join(OWNERS))?;
        check_locks(root)?;
        let path = root.join("lock");
        let failed = || FileError::io("lock", &path);
        let lock = File::create(&path).map_err(failed());
        let lock = lock.map_err(FheJobError::from)?;
        if let Err(error) = lock.try_lock() {
            return Err(FheJobError::from(failed()(error.into())).into());
        }
        Self::of(root, plan, params, limits, Some(lock))
    }

    /// The store of a server, which may be running.
    pub(super) fn join(root: &Path, plan: FhePlan, params: Params) -> Result<Storage, ServeError> {
        if !root.join(OWNERS).is_dir() {
            return Err(FheJobError::NoStore { path: root.to_owned() }.into());
        }
        check_locks(root)?;
        // A worker keeps nothing for clients, and deletes nothing of theirs.
        Self::of(root, plan, params, Limits { quota: 0, keep: Duration::MAX }, None)
    }

    fn of(
        root: &Path,
        plan: FhePlan,
        params: Params,
        limits: Limits,
        lock: Option<File>,
    ) -> Result<Storage, ServeError> {
        let key_specs = plan.key_specs(&params).map_err(FheJobError::from)?;
        let key_bytes = keys::file_bytes(root, params.rlwe(), &key_specs);
        Ok(Storage {
            root: root.to_owned(),
            limits,
            key_bytes: key_bytes.map_err(FheJobError::from)?,
            request_bytes: exchange::request_bytes(&plan, &params).map_err(FheJobError::from)?,
            plan,
            params,
            busy: Mutex::default(),
            beginning: Mutex::default(),
            _lock: lock,
        })
    }

    /// Where it is.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of an owner.
    pub(super) fn folder(&self, owner: &Owner) -> PathBuf {
        self.root.join(OWNERS).join(owner.name())
    }

    /// The owners that have a folder.
    pub(super) fn owners(&self) -> Vec<Owner> {
        let names = entries(&self.root.join(OWNERS)).into_iter();
        names.filter_map(|path| Some(Owner::named(path.file_name()?.to_str()?))).collect()
    }

    pub(super) fn keys_path(&self, owner: &Owner, id: &Digest) -> PathBuf {
        let folder = self.folder(owner).join(OWNER_KEYS).join(id.to_string());
        folder.join(KEYS)
    }

    pub(super) fn request_path(&self, owner: &Owner, name: &Digest) -> PathBuf {
        let folder = self.folder(owner).join("requests");
        folder.join(format!("{name}.request"))
    }

    pub(super) fn jobs_folder(&self, owner: &Owner) -> PathBuf {
        self.folder(owner).join("jobs")
    }

    /// Checks that these keys and this request are here, match, and may be used.
    pub(super) fn check_pair(&self, owner: &Owner, keys: &Digest, request: &Digest) -> Result<(), Refusal> {
        let folder = self.folder(owner).join(OWNER_KEYS).join(keys.to_string());
        let record = KeyRecord::read(&folder).map_err(|_| Refusal::NotThere)?;
        if record.check_time().is_err() {
            return Err(Refusal::ExpiredKeys);
        }
        let path = self.request_path(owner, request);
        if !self.is_whole(owner, Upload::Keys(*keys)) || !path.is_file() {
            return Err(Refusal::NotThere);
        }
        match RequestReader::open(&path, &self.plan, &self.params, Some(&keys.0)) {
            Ok(_) => Ok(()),
            Err(FileError::Other { .. }) => Err(Refusal::OtherKeys),
            Err(_) => Err(Refusal::NotThere),
        }
    }

    /// How many bytes of a file of `bytes` bytes are here; all of them only if it is whole and checked.
    pub(super) fn offer(&self, owner: &Owner, file: Upload, bytes: u64) -> Result<u64, Refusal> {
        let all = self.size(file);
        if bytes != all {
            return Err(Refusal::WrongSize);
        }
        if self.is_whole(owner, file) {
            return Ok(all);
        }
        let busy = self.occupy(owner, file)?;
        let part = self.part_path(owner, file);
        let have = length(&part);
        if have >= all {
            // Its last byte had come, but the check after it was interrupted.
            self.keep(owner, file, &part)?;
            return Ok(all);
        }
        self.check_limits(owner, file, have)?;
        drop(busy);
        Ok(have)
    }

    /// Opens a file for the part that begins at `offset`.
    pub(super) fn part(&self, owner: &Owner, file: Upload, offset: u64, bytes: u32) -> Result<Part<'_>, Refusal> {
        if self.is_whole(owner, file) {
            return Err(Refusal::WrongOffset);
        }
        let busy = self.occupy(owner, file)?;
        let path = self.part_path(owner, file);
        // Where a part begins determines its length: each smaller part would cost a check of the limits and a wait for
        // the disk.
        let left = self.size(file).saturating_sub(offset);
        let end = offset.saturating_add(bytes.into());
        if length(&path) != offset || left == 0 || u64::from(bytes) != left.min(PART) {
            return Err(Refusal::WrongOffset);
        }
        let _beginning = self.beginning.lock();
        self.check_limits(owner, file, offset)?;
        in_folder(&path)?;
        Ok(Part { file: open_append(&path).map_err(|error| no_room(&error))?, busy, path, end })
    }

    /// Deletes expired keys and unfinished files.
    pub(super) fn tidy(&self, owner: &Owner) {
        let folder = self.folder(owner);
        let store = KeyStore::new(&folder.join(OWNER_KEYS));
        let expired = store.readable().into_iter();
        for keys in expired.filter(|keys| keys.record.expires <= now()) {
            match keys.delete() {
                Ok(()) => tracing::info!(owner = owner.name(), "expired keys were deleted"),
                Err(error) => {
                    let (owner, detail) = (owner.name(), without_ids(&error));
                    tracing::warn!(owner, detail, "expired keys could not be deleted");
                }
            }
        }
        let busy: HashSet<PathBuf> = {
            let busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
            let ours = busy.iter().filter(|(whose, _)| whose == owner);
            ours.map(|(owner, file)| self.part_path(owner, *file)).collect()
        };
        for path in entries(&folder.join("uploads")) {
            if is_older(&path, UPLOAD_LIFE) && !busy.contains(&path) {
                remove(&path);
            }
        }
    }

    /// Deletes requests that are not run. `needed`: the requests of jobs that wait or run.
    pub(super) fn tidy_requests(&self, owner: &Owner, needed: &HashSet<Digest>) {
        let needed: HashSet<PathBuf> = needed.iter().map(|name| self.request_path(owner, name)).collect();
        for path in entries(&self.folder(owner).join("requests")) {
            if is_older(&path, self.limits.keep) && !needed.contains(&path) {
                remove(&path);
            }
        }
    }

    /// How long replies are kept.
    pub(super) fn keep_time(&self) -> Duration {
        self.limits.keep
    }

    fn size(&self, file: Upload) -> u64 {
        match file {
            Upload::Keys(_) => self.key_bytes,
            Upload::Request(_) => self.request_bytes,
        }
    }

    fn is_whole(&self, owner: &Owner, file: Upload) -> bool {
        match file {
            Upload::Keys(id) => {
                let path = self.keys_path(owner, &id);
                path.with_file_name(RECORD).is_file() && path.is_file()
            }
            Upload::Request(name) => self.request_path(owner, &name).is_file(),
        }
    }

    fn part_path(&self, owner: &Owner, file: Upload) -> PathBuf {
        let kind = match file {
            Upload::Keys(_) => "keys",
            Upload::Request(_) => "request",
        };
        let folder = self.folder(owner).join("uploads");
        folder.join(format!("{kind}-{}.part", file.id()))
    }

    fn occupy(&self, owner: &Owner, file: Upload) -> Result<Occupied<'_>, Refusal> {
        let what = (owner.clone(), file);
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        match busy.insert(what.clone()) {
            true => Ok(Occupied { storage: self, what }),
            false => Err(Refusal::Busy),
        }
    }

    /// Checks that the rest of a file may come: the owner's quota, the number of unfinished files, disk space.
    fn check_limits(&self, owner: &Owner, file: Upload, have: u64) -> Result<(), Refusal> {
        let part = self.part_path(owner, file);
        let folder = self.folder(owner);
        let uploads = entries(&folder.join("uploads"));
        let others = uploads.iter().filter(|path| **path != part);
        let limit = MAX_UPLOADS as u32;
        if others.clone().count() >= MAX_UPLOADS {
            return Err(Refusal::TooManyUploads { limit });
        }
        // An unfinished file counts with its full size, so that two sessions do not get the same room.
        let begun = others.map(|path| {
            let name = path.file_name().map(|name| name.to_string_lossy());
            match name.is_some_and(|name| name.starts_with("keys-")) {
                true => self.key_bytes,
                false => self.request_bytes,
            }
        });
        let begun: u64 = begun.sum();
        let whole = self.size(file);
        let kept: u64 = ["keys", "requests", "jobs"].iter().map(|name| bytes_in(&folder.join(name), 2)).sum();
        let left = self.limits.quota.saturating_sub(kept.saturating_add(begun));
        if whole > left {
            let left = u32::try_from(left >> 20).unwrap_or(u32::MAX);
            return Err(Refusal::Quota { left });
        }
        system::check_room(&self.root, whole.saturating_sub(have)).map_err(|_| Refusal::NoRoom)
    }

    /// Checks a complete file and gives it its name; a file that does not match its name is discarded.
    fn keep(&self, owner: &Owner, file: Upload, part: &Path) -> Result<(), Refusal> {
        let kept = match file {
            Upload::Keys(id) => self.keep_keys(owner, &id, part),
            Upload::Request(name) => self.keep_request(owner, &name, part),
        };
        let kind = match file {
            Upload::Keys(_) => "keys",
            Upload::Request(_) => "request",
        };
        match &kept {
            Ok(()) => tracing::info!(owner = owner.name(), kind, "a file arrived and is whole"),
            Err(refusal) => {
                tracing::warn!(owner = owner.name(), kind, reason = refusal.name(), "a file was refused");
                if !matches!(refusal, Refusal::NoRoom) {
                    remove(part);
                }
            }
        }
        kept
    }

    fn keep_keys(&self, owner: &Owner, id: &Digest, part: &Path) -> Result<(), Refusal> {
        let (stated, _) = keys::stated(part, self.params.rlwe()).map_err(|e| refused(&e))?;
        if stated != id.0 {
            return Err(Refusal::DamagedUpload);
        }
        let store = KeyStore::new(&self.folder(owner).join(OWNER_KEYS));
        match store.take(&self.plan, &self.params, part, owner.name()) {
            Ok(_) => Ok(()),
            Err(ServeError::Fhe(FheJobError::Expired { .. })) => Err(Refusal::ExpiredKeys),
            Err(ServeError::Fhe(FheJobError::File(error))) => Err(refused(&error)),
            Err(_) => Err(Refusal::DamagedUpload),
        }
    }

    fn keep_request(&self, owner: &Owner, name: &Digest, part: &Path) -> Result<(), Refusal> {
        let read = (|| {
            let mut reader = RequestReader::open(part, &self.plan, &self.params, None)?;
            while reader.next_ciphertext()?.is_some() {}
            reader.finish()
        })();
        if read.map_err(|error| refused(&error))? != name.0 {
            return Err(Refusal::DamagedUpload);
        }
        let path = self.request_path(owner, name);
        in_folder(&path)?;
        fs::rename(part, &path).map_err(|error| no_room(&error))
    }
}

/// A file that one session is writing.
struct Occupied<'a> {
    storage: &'a Storage,
    what: (Owner, Upload),
}

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        let busy = self.storage.busy.lock();
        busy.unwrap_or_else(PoisonError::into_inner).remove(&self.what);
    }
}

/// A part of a file while it arrives. What has been written stays if this is dropped.
pub(super) struct Part<'a> {
    file: File,
    busy: Occupied<'a>,
    path: PathBuf,
    /// Where it ends in the file.
    end: u64,
}

impl Part<'_> {
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.file.write_all(bytes).map_err(|error| no_room(&error))
    }

    /// Syncs the part to disk, and checks the file if it was the last. Returns how many bytes are there now.
    pub(super) fn end(self) -> Result<u64, Refusal> {
        self.file.sync_all().map_err(|error| no_room(&error))?;
        let (storage, (owner, file)) = (self.busy.storage, &self.busy.what);
        if self.end == storage.size(*file) {
            storage.keep(owner, *file, &self.path)?;
        }
        Ok(self.end)
    }
}

fn refused(error: &FileError) -> Refusal {
    match error {
        FileError::Io { source, .. } => no_room(source),
        FileError::NoRoom { .. } => Refusal::NoRoom,
        _ => Refusal::DamagedUpload,
    }
}

/// Logs a write error for the operator.
fn no_room(error: &io::Error) -> Refusal {
    tracing::warn!(%error, "a file of a client could not be written");
    Refusal::NoRoom
}

/// An error for the log. Paths contain ids of keys and jobs and names of requests; they are shortened to a prefix that
/// tells them apart.
pub(super) fn without_ids(error: &impl std::fmt::Display) -> String {
    shortened(&error.to_string())
}

fn shortened(text: &str) -> String {
    let (mut short, mut digits) = (String::with_capacity(text.len()), String::new());
    let end = |digits: &mut String, short: &mut String| {
        let kept = if digits.len() < 64 { digits.len() } else { 8 };
        short.extend(digits.chars().take(kept));
        digits.clear();
    };
    for character in text.chars() {
        if character.is_ascii_hexdigit() {
            digits.push(character);
        } else {
            end(&mut digits, &mut short);
            short.push(character);
        }
    }
    end(&mut digits, &mut short);
    short
}

/// Makes the folder of a file.
fn in_folder(path: &Path) -> Result<(), Refusal> {
    let made = path.parent().map_or(Ok(()), make_folder);
    made.map_err(|error| {
        tracing::warn!(reason = error.name(), "a folder could not be made");
        Refusal::NoRoom
    })
}

/// The contents of a folder; empty if there is none.
pub(super) fn entries(folder: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    all.map(|entry| entry.path()).collect()
}

/// Bytes of the files in a folder and its subfolders, `depth` levels in all. Checkpoints lie deeper, and are the
/// server's.
fn bytes_in(folder: &Path, depth: usize) -> u64 {
    let of = |path: &PathBuf| match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() => metadata.len(),
        Ok(metadata) if metadata.is_dir() && depth > 1 => bytes_in(path, depth - 1),
        _ => 0,
    };
    entries(folder).iter().map(of).sum()
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

fn is_older(path: &Path, life: Duration) -> bool {
    let changed = fs::metadata(path).and_then(|metadata| metadata.modified());
    let age = changed.map(|time| SystemTime::now().duration_since(time).unwrap_or_default());
    age.is_ok_and(|age| age > life)
}

pub(super) fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        // Its name is that of a client's file, which the log does not need.
        let kind = path.extension();
        tracing::warn!(%error, ?kind, "a file could not be deleted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_has_no_whole_ids() {
        let id = Digest([0xab; 32]);
        let told = shortened(&format!("{id}: cafe, /store/{id}/file-{id}.part"));
        assert_eq!(told, "abababab: cafe, /store/abababab/file-abababab.part");
        assert_eq!(shortened("face"), "face");
    }
}
