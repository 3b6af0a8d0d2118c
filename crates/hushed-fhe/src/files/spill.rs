//! Ciphertexts spilled by a run while it needs its memory for others: temporary storage of one process, not an
//! artefact.
//!
//! A file holds ciphertexts one after another, packed as in every other file ([`Ciphertext::list_to_bytes`]).
//! Everything else about them stays in memory: primes, scale, noise estimate, and the SHA-256 of each, so that a
//! truncated or changed file is detected when it is read, and nothing of it is used.
//!
//! Only its owner can read a file. It has no name if the system allows that (it is unlinked as soon as it is open), so
//! that a killed process leaves nothing behind. Otherwise the name is removed with the value, or when the folder is
//! next opened.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hushed_ckks::{Ciphertext, CkksParams, Noise, Scale};
use hushed_rlwe::error::CodecError;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use tempfile::{Builder, TempPath};

use super::FileError;
use super::chunked::Hash;

/// Prefix and suffix of the names of these files.
const PREFIX: &str = ".hushed-spill-";
const SUFFIX: &str = ".draft";

/// Ciphertexts that are packed or unpacked together; a constant, so that a plan counts the same on every machine.
const TOGETHER: usize = 4;

/// Where vectors are spilled.
#[derive(Clone, Debug)]
pub struct SpillFolder {
    path: PathBuf,
    moved: Arc<Moved>,
}

/// Bytes written to disk and read back.
#[derive(Debug, Default)]
struct Moved {
    written: AtomicU64,
    read: AtomicU64,
    there: AtomicU64,
    peak: AtomicU64,
}

/// Bytes spilled by a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpillUse {
    /// Written so far.
    pub written: u64,
    /// Read back so far.
    pub read: u64,
    /// Maximum on disk at any time.
    pub peak: u64,
}

impl SpillFolder {
    /// Opens an existing writable folder. Removes files left in it by killed processes.
    ///
    /// # Errors
    /// [`FileError::Io`] with the folder's name.
    pub fn open(path: &Path) -> Result<SpillFolder, FileError> {
        let path = match path.as_os_str().is_empty() {
            true => Path::new("."),
            false => path,
        };
        for entry in fs::read_dir(path).map_err(FileError::io("open", path))? {
            let Ok(entry) = entry else { continue };
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
                // A file just created by a living process is open already, and only loses its name, as it would anyway.
                let _ = fs::remove_file(entry.path());
            }
        }
        let folder = SpillFolder { path: path.to_owned(), moved: Arc::default() };
        folder.create()?;
        Ok(folder)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes written and read by all users of this folder.
    pub fn used(&self) -> SpillUse {
        SpillUse {
            written: self.moved.written.load(Ordering::Relaxed),
            read: self.moved.read.load(Ordering::Relaxed),
            peak: self.moved.peak.load(Ordering::Relaxed),
        }
    }

    /// Writes ciphertexts, freeing each as soon as it is written.
    ///
    /// # Errors
    /// [`FileError::Io`] with the folder's name, for example for a full disk. [`FileError::Content`] for ciphertexts of
    /// other parameters.
    pub fn store(&self, params: &CkksParams, ciphertexts: Vec<Ciphertext>) -> Result<Spilled, FileError> {
        let (file, name) = self.create()?;
        self.fill(file, name, params, ciphertexts)
    }

    fn fill(
        &self,
        file: File,
        name: Option<TempPath>,
        params: &CkksParams,
        ciphertexts: Vec<Ciphertext>,
    ) -> Result<Spilled, FileError> {
        let mut spilled = Spilled {
            file,
            entries: Vec::with_capacity(ciphertexts.len()),
            place: Place { folder: self.clone(), name, bytes: 0 },
        };
        let mut rest = ciphertexts.into_iter();
        while rest.len() > 0 {
            let tile: Vec<Ciphertext> = rest.by_ref().take(TOGETHER).collect();
            let packed = tile.into_par_iter().map(|ct| Entry::pack(params, ct));
            let packed = packed.collect::<Result<Vec<_>, _>>();
            for (entry, bytes) in packed.map_err(|error| FileError::content(&self.path, error))? {
                let written = spilled.file.write_all(&bytes);
                written.map_err(FileError::io("write", &self.path))?;
                spilled.place.grow(entry.bytes as u64);
                spilled.entries.push(entry);
            }
        }
        Ok(spilled)
    }

    fn create(&self) -> Result<(File, Option<TempPath>), FileError> {
        let mut builder = Builder::new();
        builder.prefix(PREFIX).suffix(SUFFIX);
        let made = builder.tempfile_in(&self.path);
        let (file, name) = made.map_err(FileError::io("write", &self.path))?.into_parts();
        // Where an open file keeps its content without a name, nothing can be left behind. A name that cannot be
        // removed now is removed when the folder is next opened.
        Ok((file, (!cfg!(unix)).then_some(name)))
    }
}

/// Ciphertexts on disk, deleted when dropped.
pub struct Spilled {
    file: File,
    entries: Vec<Entry>,
    place: Place,
}

impl Spilled {
    /// Reads all of them and deletes them from disk.
    ///
    /// # Errors
    /// [`FileError::Codec`] with [`CodecError::Truncated`] or [`CodecError::Damaged`] if they are not what was written,
    /// [`FileError::Io`].
    pub fn load(mut self, params: &CkksParams) -> Result<Vec<Ciphertext>, FileError> {
        let folder = self.place.folder.path.clone();
        let failed = || FileError::io("read", &folder);
        self.file.rewind().map_err(failed())?;
        let mut ciphertexts = Vec::with_capacity(self.entries.len());
        for (number, entries) in self.entries.chunks(TOGETHER).enumerate() {
            let mut packed = Vec::with_capacity(entries.len());
            for entry in entries {
                let mut bytes = vec![0; entry.bytes];
                if let Err(error) = self.file.read_exact(&mut bytes) {
                    return Err(match error.kind() {
                        ErrorKind::UnexpectedEof => self.truncated(),
                        _ => failed()(error),
                    });
                }
                packed.push((entry, bytes));
                self.place.count_read(entry.bytes as u64);
            }
            let unpack = |(i, (entry, bytes)): (usize, (&Entry, Vec<u8>))| {
                let chunk = number * TOGETHER + i;
                entry.unpack(params, chunk, &folder, &bytes)
            };
            let unpacked = packed.into_par_iter().enumerate().map(unpack);
            ciphertexts.extend(unpacked.collect::<Result<Vec<_>, FileError>>()?);
        }
        Ok(ciphertexts)
    }

    fn truncated(&self) -> FileError {
        let size = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
        let given = self.file.metadata().map_or(0, |metadata| metadata.len());
        let fault = CodecError::Truncated { given: size(given), expected: size(self.place.bytes) };
        FileError::codec(&self.place.folder.path, fault)
    }
}

/// What is kept in memory of a ciphertext on disk.
#[derive(Clone, Copy)]
struct Entry {
    limbs: usize,
    scale: Scale,
    noise: Noise,
    bytes: usize,
    digest: Hash,
}

impl Entry {
    fn pack(params: &CkksParams, ct: Ciphertext) -> Result<(Entry, Vec<u8>), hushed_ckks::CkksError> {
        let bytes = Ciphertext::list_to_bytes(params, ct.limbs(), std::slice::from_ref(&ct))?;
        let entry = Entry {
            limbs: ct.limbs(),
            scale: ct.scale(),
            noise: ct.noise(),
            bytes: bytes.len(),
            digest: Sha256::digest(&bytes).into(),
        };
        Ok((entry, bytes))
    }

    fn unpack(&self, params: &CkksParams, chunk: usize, folder: &Path, bytes: &[u8]) -> Result<Ciphertext, FileError> {
        let damaged = || FileError::codec(folder, CodecError::Damaged { chunk });
        if Hash::from(Sha256::digest(bytes)) != self.digest {
            return Err(damaged());
        }
        let Entry { scale, noise, .. } = *self;
        let list = Ciphertext::list_from_bytes(params, self.limbs, 1, scale, noise, bytes);
        let list = list.map_err(|error| FileError::content(folder, error))?;
        list.into_iter().next().ok_or_else(damaged)
    }
}

/// The bytes of a file, while it exists.
struct Place {
    folder: SpillFolder,
    #[expect(dead_code, reason = "removes the file, where that has a name")]
    name: Option<TempPath>,
    bytes: u64,
}

impl Place {
    fn grow(&mut self, bytes: u64) {
        self.bytes += bytes;
        let moved = &self.folder.moved;
        moved.written.fetch_add(bytes, Ordering::Relaxed);
        let there = moved.there.fetch_add(bytes, Ordering::Relaxed) + bytes;
        moved.peak.fetch_max(there, Ordering::Relaxed);
    }

    fn count_read(&self, bytes: u64) {
        self.folder.moved.read.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let moved = &self.folder.moved;
        moved.there.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "spill_tests.rs"]
mod tests;
