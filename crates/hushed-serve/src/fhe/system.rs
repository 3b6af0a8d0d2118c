//! What a machine has left.

use std::fs;
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

/// Bytes of memory that this process can have: the machine's, or those of its control group where they are fewer. `None` where the
/// system does not say.
pub(super) fn memory() -> Option<u64> {
    let info = fs::read_to_string("/proc/meminfo").ok()?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    let machine = kibibytes.checked_mul(1024)?;
    // "max" for no limit, which is no number.
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|limit| limit.trim().parse().ok());
    Some(group.map_or(machine, |group: u64| group.min(machine)))
}
