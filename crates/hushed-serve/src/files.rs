//! Small files, read up to a size limit and written as a whole or not at all, and files that only their owner can read.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use hushed_fhe::files::FileError;
use hushed_fhe::files::atomic::check_private;
use hushed_model::without_mark;
use zeroize::Zeroizing;

use crate::error::ServeError;
use crate::fhe::FheJobError;

/// Maximum size of a file of tokens or keys in bytes.
const MAX_LIST: u64 = 1 << 20;

/// Reads a whole file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, ServeError> {
    read_checked(path, limit, |_| Ok(()))
}

/// Reads a text file of tokens or keys, without a byte order mark. Others must not be able to read it.
///
/// # Errors
/// [`ServeError::File`]; `not-private` ([`FileError::NotPrivate`]).
pub fn read_secrets(path: &Path) -> Result<Zeroizing<Vec<u8>>, ServeError> {
    let mut text = read_private(path, MAX_LIST)?;
    let mark = text.len() - without_mark(&text).len();
    text.drain(..mark);
    Ok(text)
}

/// Reads a whole file of at most `limit` bytes that others must not be able to read.
pub(crate) fn read_private(path: &Path, limit: u64) -> Result<Zeroizing<Vec<u8>>, ServeError> {
    read_checked(path, limit, |metadata| private(path, metadata)).map(Zeroizing::new)
}

/// Refuses a file that others can read, by its path.
pub(crate) fn refuse_public(path: &Path) -> Result<(), ServeError> {
    let metadata = std::fs::metadata(path);
    private(path, &metadata.map_err(|source| ServeError::File { operation: "read", path: path.to_owned(), source })?)
}

/// Refuses a file that others can read.
fn private(path: &Path, metadata: &Metadata) -> Result<(), ServeError> {
    Ok(check_private(path, metadata).map_err(FheJobError::from)?)
}

fn read_checked(
    path: &Path,
    limit: u64,
    check: impl FnOnce(&Metadata) -> Result<(), ServeError>,
) -> Result<Vec<u8>, ServeError> {
    let failed = |source| ServeError::File { operation: "read", path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(failed(io::Error::other("not a regular file")));
    }
    check(&metadata)?;
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > limit {
        return Err(failed(io::Error::from(io::ErrorKind::FileTooLarge)));
    }
    Ok(bytes)
}

/// Writes a file that other processes see whole or not at all; on failure the previous file stays.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), ServeError> {
    use std::sync::atomic::{AtomicU64, Ordering};
    // Unique among the threads of this process; its process id makes it unique among processes.
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}-{number}.tmp", std::process::id()));
    write_by(path, &path.with_file_name(name), bytes)
}

/// [`write()`] by way of this draft, which does not stay.
fn write_by(path: &Path, draft: &Path, bytes: &[u8]) -> Result<(), ServeError> {
    use std::io::Write;
    let written = (|| {
        let mut file = File::create(draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(draft, path)?;
        match path.parent() {
            // The rename itself must survive a crash; if the folder cannot be opened for that, the file has not failed.
            Some(parent) => File::open(parent).map_or(Ok(()), |folder| folder.sync_all()),
            None => Ok(()),
        }
    })();
    written.map_err(|source| {
        // A left-over is harmless, and the first failure says more than this one.
        let _ = std::fs::remove_file(draft);
        ServeError::File { operation: "write", path: path.to_owned(), source }
    })
}

/// Makes a folder and its parents; new ones are accessible to their owner only.
pub(crate) fn make_folder(path: &Path) -> Result<(), ServeError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    let made = builder.create(path).map_err(FileError::io("create", path));
    Ok(made.map_err(FheJobError::from)?)
}

/// Opens a file for appending; a new one is accessible to its owner only.
pub(crate) fn open_append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Seconds since 1970; 0 if the clock is before that.
#[must_use]
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Category;

    fn names(folder: &Path) -> Vec<std::ffi::OsString> {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_file_is_replaced_and_no_draft_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept.table");
        for bytes in [&b"first"[..], b"second"] {
            write(&path, bytes).unwrap();
            assert_eq!(read(&path, 6).unwrap(), bytes);
        }
        assert_eq!(names(folder.path()), ["kept.table"]);
    }

    /// Bundles, kept tables and answers are all written here.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let (path, draft) = (folder.path().join("kept"), folder.path().join("draft"));
        for before in [None, Some(b"the old one")] {
            if let Some(before) = before {
                std::fs::write(&path, before).unwrap();
            }
            std::os::unix::fs::symlink("/dev/full", &draft).unwrap();
            let error = write_by(&path, &draft, &[7; 100_000]).unwrap_err();
            assert!(matches!(
                &error,
                ServeError::File { operation: "write", path: at, source }
                    if *at == path && source.kind() == io::ErrorKind::StorageFull
            ));
            assert!(error.category() == Category::Local);
            assert_eq!(names(folder.path()).len(), usize::from(before.is_some()));
            assert_eq!(std::fs::read(&path).ok().as_deref(), before.map(|b| &b[..]));
        }
    }

    #[cfg(unix)]
    #[test]
    fn what_is_made_is_its_owners_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let work = tempfile::tempdir().unwrap();
        let folder = work.path().join("a/b");
        make_folder(&folder).unwrap();
        make_folder(&folder).unwrap();
        let file = folder.join("file");
        open_append(&file).unwrap();
        for (path, mode) in [(work.path().join("a"), 0o700), (folder, 0o700), (file, 0o600)] {
            let found = path.metadata().unwrap().permissions().mode();
            assert_eq!(found & 0o777, mode);
        }
    }
}
