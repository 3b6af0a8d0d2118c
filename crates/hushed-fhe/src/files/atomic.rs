//! Files that exist whole or not at all, no matter how the process that writes them ends.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, TempPath};

use super::FileError;

/// Suffix of drafts. A draft left by a killed process is never read, and may be deleted.
pub const DRAFT: &str = ".draft";

/// A file under a temporary name. Dropping it without [`AtomicFile::commit`] deletes it.
pub struct AtomicFile {
    path: PathBuf,
    draft: TempPath,
    file: Option<BufWriter<File>>,
}

/// Where an artefact is written: a file, which exists whole or not at all, or memory (`&mut Vec<u8>`), or any other
/// `&mut` writer, where the caller discards what was written before an error.
pub trait Target: Write {
    /// Called once, after the last byte. Errors call the target `path`.
    ///
    /// # Errors
    /// [`FileError::Io`].
    fn complete(self, path: &Path) -> Result<(), FileError>;
}

impl Target for AtomicFile {
    fn complete(self, _: &Path) -> Result<(), FileError> {
        self.commit()
    }
}

impl<W: Write + ?Sized> Target for &mut W {
    fn complete(self, path: &Path) -> Result<(), FileError> {
        self.flush().map_err(FileError::io("write", path))
    }
}

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The default for files of this process.
    Usual,
    /// Its owner only.
    Private,
}

impl AtomicFile {
    /// Begins the file `path`; an existing file stays until the new one is committed.
    ///
    /// # Errors
    /// [`FileError::Io`].
    pub fn create(path: &Path, access: Access) -> Result<AtomicFile, FileError> {
        let mut start = path.file_name().unwrap_or_default().to_owned();
        start.push(".");
        let mut builder = Builder::new();
        builder.prefix(&start).suffix(DRAFT);
        if access == Access::Usual {
            usual(&mut builder);
        }
        let draft = builder.tempfile_in(folder_of(path));
        let (file, draft) = draft.map_err(FileError::io("write", path))?.into_parts();
        #[cfg(all(test, target_os = "linux"))]
        let file = full_disk::instead_of(file);
        Ok(AtomicFile { path: path.to_owned(), draft, file: Some(BufWriter::with_capacity(1 << 20, file)) })
    }

    /// Synchronises the file, gives it its name, and synchronises its folder; it then survives a crash.
    ///
    /// # Errors
    /// [`FileError::Io`]: the previous file is untouched.
    pub fn commit(mut self) -> Result<(), FileError> {
        let synchronised = self.synchronise();
        let AtomicFile { path, draft, .. } = self;
        let done = synchronised.and_then(|()| {
            draft.persist(&path)?;
            sync_folder(&path)
        });
        done.map_err(FileError::io("write", &path))
    }

    /// As [`AtomicFile::commit`] if no file of this name exists; otherwise the existing file is kept,
    /// and this one is deleted. Returns whether this one was kept.
    ///
    /// # Errors
    /// [`FileError::Io`].
    pub fn commit_new(mut self) -> Result<bool, FileError> {
        let synchronised = self.synchronise();
        let AtomicFile { path, draft, .. } = self;
        let done = synchronised.and_then(|()| match draft.persist_noclobber(&path) {
            Ok(()) => sync_folder(&path).map(|()| true),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error.into()),
        });
        done.map_err(FileError::io("write", &path))
    }

    /// Writes all of the draft to disk.
    fn synchronise(&mut self) -> io::Result<()> {
        let Some(file) = self.file.take() else {
            return Ok(());
        };
        let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.sync_all()
    }
}

impl Write for AtomicFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Some(file) => file.write(bytes),
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// Writes a whole small file.
///
/// # Errors
/// [`FileError::Io`].
pub fn write(path: &Path, access: Access, bytes: &[u8]) -> Result<(), FileError> {
    let mut file = AtomicFile::create(path, access)?;
    file.write_all(bytes).map_err(FileError::io("write", path))?;
    file.commit()
}

/// Removes drafts of `path` left by killed processes. Call it only if no other process writes the file.
pub fn clear_drafts(path: &Path) {
    let mut start = path.file_name().unwrap_or_default().to_owned();
    start.push(".");
    let start = start.to_string_lossy().into_owned();
    for entry in fs::read_dir(folder_of(path)).into_iter().flatten().flatten() {
        let found = entry.file_name().to_string_lossy().into_owned();
        if found.starts_with(&start) && found.ends_with(DRAFT) {
            // A draft that cannot be removed is harmless.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Checks that there is nothing at `path`.
///
/// # Errors
/// [`FileError::Exists`].
pub fn refuse_existing(path: &Path) -> Result<(), FileError> {
    match path.symlink_metadata() {
        Ok(_) => Err(FileError::Exists { path: path.to_owned() }),
        Err(_) => Ok(()),
    }
}

/// Checks that a file is private: nobody but its owner can read it. A file of another user, who gave it to this process
/// by its group, may be readable by that group: this is how Kubernetes (`fsGroup`) and systemd hand over secrets.
///
/// # Errors
/// [`FileError::NotPrivate`].
#[cfg(unix)]
pub fn check_private(path: &Path, metadata: &std::fs::Metadata) -> Result<(), FileError> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let mode = metadata.permissions().mode() & 0o777;
    if is_private(mode, metadata.uid() == rustix::process::geteuid().as_raw()) {
        return Ok(());
    }
    Err(FileError::NotPrivate { path: path.to_owned(), mode })
}

/// Whether a file with these permissions is private, if it is this user's own or somebody else's.
#[cfg(unix)]
fn is_private(mode: u32, own: bool) -> bool {
    let others = if own { 0o077 } else { 0o037 };
    mode & others == 0
}

/// This system has no such permissions to check.
///
/// # Errors
/// None.
#[cfg(not(unix))]
pub fn check_private(_: &Path, _: &std::fs::Metadata) -> Result<(), FileError> {
    Ok(())
}

/// Synchronises the folder of `path`, so that a rename in it survives. Failing to open the folder is not an error.
fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(folder_of(path)).map_or(Ok(()), |folder| folder.sync_all())
}

fn folder_of(path: &Path) -> &Path {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// The default permissions of this process: a temporary file would be its owner's only.
#[cfg(unix)]
fn usual(builder: &mut Builder<'_, '_>) {
    use std::os::unix::fs::PermissionsExt;
    builder.permissions(fs::Permissions::from_mode(0o666));
}

#[cfg(not(unix))]
fn usual(_: &mut Builder<'_, '_>) {}

/// A full disk, for tests: everything that this thread writes goes where nothing can be written.
#[cfg(all(test, target_os = "linux"))]
pub(super) mod full_disk {
    use std::cell::Cell;
    use std::fs::{File, OpenOptions};

    thread_local! {
        static FULL: Cell<bool> = const { Cell::new(false) };
    }

    /// Runs `work` with a full disk.
    pub fn during<T>(work: impl FnOnce() -> T) -> T {
        FULL.set(true);
        let done = work();
        FULL.set(false);
        done
    }

    pub fn instead_of(file: File) -> File {
        match FULL.get() {
            true => OpenOptions::new().write(true).open("/dev/full").unwrap(),
            false => file,
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::is_private;

    #[test]
    fn others_never_read_a_secret_and_a_group_only_what_somebody_else_gave_it() {
        for (mode, own, given) in [
            (0o600, true, true),
            (0o400, true, true),
            (0o440, false, true),
            (0o640, false, true),
            (0o660, false, false),
            (0o644, false, false),
            (0o604, false, false),
        ] {
            assert_eq!((is_private(mode, true), is_private(mode, false)), (own, given), "{mode:o}");
        }
    }
}
