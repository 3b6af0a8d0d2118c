//! What can be wrong with a file of a run.

use std::io;
use std::path::{Path, PathBuf};

use hushed_ckks::CkksError;
use hushed_rlwe::RlweError;
use hushed_rlwe::audit::AuditFailure;
use hushed_rlwe::error::CodecError;

/// Why a file was not written, or is not used. Nothing in it depends on what is encrypted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system refuses: no such file, no room, no permission.
    #[error("could not {operation} {path:?}: {source}")]
    Io {
        /// What was attempted.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Not what is written there, or damaged.
    #[error("{path:?} cannot be used: {fault}")]
    Codec {
        /// Which file.
        path: PathBuf,
        /// Why.
        fault: CodecError,
    },
    /// The engine refuses what it holds: a key that is not there, a scale that is not the plan's.
    #[error("{path:?} cannot be used: {source}")]
    Content {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: CkksError,
    },
    /// It belongs to something else.
    #[error("{path:?} belongs to another {what}: it says {theirs}, and {ours} was expected")]
    Other {
        /// Which file.
        path: PathBuf,
        /// `plan`, `key set`, `request`.
        what: &'static str,
        /// Its hash of it, in hexadecimal.
        theirs: String,
        /// The one expected.
        ours: String,
    },
    /// Numbers in it that cannot be.
    #[error("{path:?} cannot be used: its {what} cannot be")]
    Unusable {
        /// Which file.
        path: PathBuf,
        /// Which number.
        what: &'static str,
    },
    /// A key that must not be published.
    #[error(
        "{path:?} was not written: a key was made that must not be published ({failure}); please report it"
    )]
    Audit {
        /// What would have been written.
        path: PathBuf,
        /// What was found.
        failure: Box<AuditFailure>,
    },
    /// It is there already.
    #[error("{path:?} is there already, and is not written over")]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// Others can read a file that holds a secret.
    #[error(
        "{path:?} can be read by others (mode {mode:o}): make it private with `chmod 600`, or make new keys"
    )]
    NotPrivate {
        /// Which file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Too little room for what is to be written.
    #[error("{path:?} needs {needed} bytes, and its disk has {free} free")]
    NoRoom {
        /// What would be written.
        path: PathBuf,
        /// Bytes.
        needed: u64,
        /// Bytes.
        free: u64,
    },
}

impl FileError {
    /// An error of the system at `path`.
    pub fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> FileError + use<> {
        let path = path.to_owned();
        move |source| FileError::Io {
            operation,
            path,
            source,
        }
    }

    /// Bytes that were refused.
    pub fn codec(path: &Path, fault: CodecError) -> FileError {
        FileError::Codec {
            path: path.to_owned(),
            fault,
        }
    }

    /// What the engine refused.
    pub fn content(path: &Path, source: impl Into<CkksError>) -> FileError {
        match source.into() {
            CkksError::Rlwe(RlweError::Codec(fault)) | CkksError::Codec(fault) => {
                FileError::codec(path, fault)
            }
            source => FileError::Content {
                path: path.to_owned(),
                source,
            },
        }
    }
}

/// [`FileError::Other`] unless the two are equal.
pub(super) fn same(
    path: &Path,
    what: &'static str,
    theirs: &[u8],
    ours: &[u8],
) -> Result<(), FileError> {
    if theirs == ours {
        return Ok(());
    }
    Err(FileError::Other {
        path: path.to_owned(),
        what,
        theirs: crate::plan::public_plan::hex(theirs),
        ours: crate::plan::public_plan::hex(ours),
    })
}
