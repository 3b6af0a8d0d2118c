//! Errors of a run's files.

use std::io;
use std::path::{Path, PathBuf};

use hushed_ckks::CkksError;
use hushed_rlwe::RlweError;
use hushed_rlwe::audit::AuditFailure;
use hushed_rlwe::error::CodecError;

/// Why a file was not written or is not used. Nothing in it depends on encrypted data.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// A system error: no such file, no room, no permission.
    #[error("could not {operation} {path:?}: {source}")]
    Io {
        /// What was attempted.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another kind of file, or damaged.
    #[error("{path:?} cannot be used: {fault}")]
    Codec {
        /// Which file.
        path: PathBuf,
        /// The reason.
        fault: CodecError,
    },
    /// The engine refuses the content: a missing key, a scale that is not the plan's.
    #[error("{path:?} cannot be used: {source}")]
    Content {
        /// Which file.
        path: PathBuf,
        /// The reason.
        source: CkksError,
    },
    /// The file belongs to something else.
    #[error("{path:?} belongs to another {what}: it says {theirs}, and {ours} was expected")]
    Other {
        /// Which file.
        path: PathBuf,
        /// `plan`, `key set`, `request`.
        what: &'static str,
        /// The hash stated in the file, in hexadecimal.
        theirs: String,
        /// The expected hash.
        ours: String,
    },
    /// A number in the file is invalid.
    #[error("{path:?} cannot be used: its {what} cannot be")]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// Which number.
        what: &'static str,
    },
    /// A key that must not be published.
    #[error("{path:?} was not written: a key was made that must not be published ({failure}); please report it")]
    Audit {
        /// The file that would have been written.
        path: PathBuf,
        /// What was found.
        failure: Box<AuditFailure>,
    },
    /// The file exists already.
    #[error("{path:?} already exists and is not overwritten")]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// Others can read a file that holds a secret.
    #[error(
        "{path:?} can be read by others (mode {mode:o}): make it private with `chmod 600`; if they have read it, it is to be replaced"
    )]
    NotPrivate {
        /// Which file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Not enough room for a file.
    #[error("{path:?} needs {needed} bytes, and its disk has {free} free")]
    NoRoom {
        /// The file that would be written.
        path: PathBuf,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
}

impl FileError {
    /// A system error at `path`.
    pub fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError + use<> {
        let path = path.to_owned();
        move |source| FileError::Io { operation, path, source }
    }

    /// An error of refused bytes.
    pub fn codec(path: &Path, fault: CodecError) -> FileError {
        FileError::Codec { path: path.to_owned(), fault }
    }

    /// An error of the engine.
    pub fn content(path: &Path, source: impl Into<CkksError>) -> FileError {
        match source.into() {
            CkksError::Rlwe(RlweError::Codec(fault)) | CkksError::Codec(fault) => FileError::codec(path, fault),
            source => FileError::Content { path: path.to_owned(), source },
        }
    }
}

/// Returns [`FileError::Other`] unless the two are equal.
pub(crate) fn same(path: &Path, what: &'static str, theirs: &[u8], ours: &[u8]) -> Result<(), FileError> {
    if theirs == ours {
        return Ok(());
    }
    Err(FileError::Other { path: path.to_owned(), what, theirs: crate::hex::hex(theirs), ours: crate::hex::hex(ours) })
}
