//! What a client is told of a job that failed.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::Path;

use hushed_fhe::files::FileError;

use crate::error::ServeError;
use crate::fhe::FheJobError;
use crate::fhe::wire::Failure;

/// What a client is told of its job's error.
pub(super) fn failure(error: &ServeError) -> Failure {
    let ServeError::Fhe(error) = error else {
        return Failure::Model;
    };
    match error {
        FheJobError::Expired { .. } => Failure::Keys,
        FheJobError::Memory { .. } => Failure::Memory,
        FheJobError::File(FileError::NoRoom { .. }) => Failure::Disk,
        FheJobError::File(FileError::Io { source, .. }) if source.kind() == std::io::ErrorKind::StorageFull => {
            Failure::Disk
        }
        FheJobError::File(FileError::Io { path, .. } | FileError::Codec { path, .. }) => of_path(path),
        FheJobError::File(FileError::Content { path, .. } | FileError::Other { path, .. }) => of_path(path),
        FheJobError::OtherModel { .. } | FheJobError::Choices(_) | FheJobError::Plan(_) => Failure::Model,
        _ => Failure::Other,
    }
}

/// The failure that a bad file of a job means.
fn of_path(path: &Path) -> Failure {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("keys") => Failure::Keys,
        Some("request") => Failure::Request,
        _ => Failure::Other,
    }
}
