//! Free memory and disk space of the machine, and the memory of this process.

use std::fs;
use std::path::Path;

use hushed_fhe::files::FileError;

use super::FheJobError;
use crate::error::ServeError;

/// Bytes left free beyond what is written.
const SPARE: u64 = 64 << 20;

/// [`FileError::NoRoom`] unless the disk of `folder` has room for `bytes` more. If the system does not say, there is
/// taken to be room; a full disk then shows when it is written to.
pub(super) fn check_room(folder: &Path, bytes: u64) -> Result<(), ServeError> {
    let Some(free) = free(folder) else {
        return Ok(());
    };
    if bytes.saturating_add(SPARE) <= free {
        return Ok(());
    }
    Err(FheJobError::from(FileError::NoRoom { path: folder.to_owned(), needed: bytes, free }).into())
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

/// Bytes of memory available to this process: the machine's or its control group's, if that is smaller. `None` if the
/// system does not say.
#[must_use]
pub fn memory() -> Option<u64> {
    granted("MemTotal:")
}

/// Bytes of memory that are free or that the system can reclaim.
#[must_use]
pub fn free_memory() -> Option<u64> {
    granted("MemAvailable:")
}

/// The most bytes of memory that this process has held.
#[must_use]
pub fn peak_memory() -> Option<u64> {
    kibibytes("/proc/self/status", "VmHWM:")
}

fn granted(key: &str) -> Option<u64> {
    let machine = kibibytes("/proc/meminfo", key)?;
    // "max", which is not a number, means no limit.
    let group = fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|limit| limit.trim().parse().ok());
    Some(group.map_or(machine, |group: u64| group.min(machine)))
}

/// The value of `key` in a file of `key  value kB` lines, in bytes.
fn kibibytes(path: &str, key: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kibibytes: u64 = value.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_room_is_refused_before_anything_is_written() {
        let folder = std::env::temp_dir();
        let free = free(&folder).expect("a file system with a size");
        check_room(&folder, 0).unwrap();
        let refused = check_room(&folder, free).unwrap_err();
        assert_eq!(refused.name(), "disk-full");
        let told = refused.to_string();
        assert!(told.contains(&*folder.to_string_lossy()), "{told}");
    }
}
