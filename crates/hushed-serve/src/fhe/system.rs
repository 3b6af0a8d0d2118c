//! What a machine has left.

use std::path::Path;

use hushed_infer::ckks::files::FileError;

use super::FheJobError;
use crate::error::ServeError;

/// Bytes that are left free beside what is written.
const SPARE: u64 = 64 << 20;

/// [`FileError::NoRoom`] unless the disk of `folder` has room for `bytes` more. A disk that does not say is taken to have it: what is then
/// refused is refused when it is written.
pub(super) fn check_room(folder: &Path, bytes: u64) -> Result<(), ServeError> {
    let Some(free) = free(folder) else {
        return Ok(());
    };
    if bytes.saturating_add(SPARE) <= free {
        return Ok(());
    }
    Err(FheJobError::from(FileError::NoRoom {
        path: folder.to_owned(),
        needed: bytes,
        free,
    })
    .into())
}

#[cfg(unix)]
fn free(folder: &Path) -> Option<u64> {
    let folder = Some(folder).filter(|folder| !folder.as_os_str().is_empty());
    let disk = rustix::fs::statvfs(folder.unwrap_or(Path::new("."))).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

#[cfg(not(unix))]
fn free(_: &Path) -> Option<u64> {
    None
}
