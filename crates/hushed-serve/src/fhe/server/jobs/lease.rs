//! Leases: processes on several machines run the jobs of one store, each job by one of them at a time.
//!
//! While a process runs a job it holds the lock of the job's `lease`, which says who that is and how far the run is.
//! The system frees the lock when the process ends, however that was, so that no clock is compared with another. The
//! next process that looks takes the job and continues from its last checkpoint. One that is only slow, or was stopped,
//! keeps its job. A file system that keeps no locks is refused when the store is opened. Should one lose a lock all the
//! same, two runs of a job write the same bytes, because the randomness of a reply follows from the request and the
//! secret of the store's replies.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::fs::{self, File, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hushed_fhe::files::FileError;
use serde::{Deserialize, Serialize};

use crate::error::ServeError;
use crate::fhe::FheJobError;
use crate::fhe::record::VERSION;
use crate::fhe::wire::JobState;

const LEASE: &str = "lease";
/// Maximum bytes of a lease.
const MAX_BYTES: u64 = 1 << 12;
/// How often progress is written, at most.
const TELL: Duration = Duration::from_secs(5);

/// What a lease says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    version: u32,
    /// The process that runs the job.
    holder: String,
    /// How often it has been heard.
    beat: u64,
    layer: u32,
    of: u32,
    /// Progress of the layer, in thousandths.
    part: u16,
    /// Estimated seconds that are left.
    left: u32,
}

/// A job that this process runs. Others can have it once this is dropped.
pub(super) struct Lease(Mutex<Held>);

/// The locked file, what it says, and when that was written.
struct Held {
    file: File,
    told: Told,
    at: Instant,
}

impl Lease {
    /// The lease of the job in this folder; `None` if another process has it, or the job has gone.
    pub(super) fn take(folder: &Path, holder: &str) -> Result<Option<Lease>, ServeError> {
        let path = folder.join(LEASE);
        let failed = |source| FheJobError::from(FileError::io("lock", &path)(source));
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
        let file = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed)?,
        };
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(failed(error).into()),
            Ok(()) => {}
        }
        let told = Told { version: VERSION, holder: holder.to_owned(), beat: 0, layer: 0, of: 0, part: 0, left: 0 };
        let mut held = Held { file, told, at: Instant::now() };
        held.write().map_err(failed)?;
        Ok(Some(Lease(Mutex::new(held))))
    }

    /// Says how far the run is, if it is time for that.
    pub(super) fn tell(&self, state: &JobState) {
        let JobState::Running { layer, of, part, left } = *state else { return };
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.at.elapsed() < TELL {
            return;
        }
        held.told = Told { beat: held.told.beat + 1, layer, of, part, left, ..held.told.clone() };
        held.at = Instant::now();
        // Others at worst see an older state.
        let _ = held.write();
    }
}

impl Held {
    /// In its place: a new file would not be locked.
    fn write(&mut self) -> io::Result<()> {
        let bytes = serde_json::to_vec(&self.told)?;
        self.file.rewind()?;
        self.file.set_len(0)?;
        self.file.write_all(&bytes)
    }
}

/// A name that no other process has; it begins with the machine's, where the system says that.
pub(super) fn holder() -> Result<String, ServeError> {
    let machine = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let random = getrandom::u64().map_err(|_| ServeError::NoRandomness)?;
    Ok(format!("{}-{}-{random:016x}", machine.trim(), std::process::id()))
}

/// The state of a job that another process runs, as that has told; `None` if none does.
pub(super) fn heard(folder: &Path) -> Option<JobState> {
    let mut file = File::open(folder.join(LEASE)).ok()?;
    // Shared, so that those who look do not keep each other out.
    let Err(TryLockError::WouldBlock) = file.try_lock_shared() else { return None };
    let mut bytes = Vec::new();
    (&mut file).take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    let told: Option<Told> = serde_json::from_slice(&bytes).ok();
    // What is being written at this moment cannot be read, and says no more than that it runs.
    Some(told.map_or(JobState::Running { layer: 0, of: 0, part: 0, left: 0 }, |told| JobState::Running {
        layer: told.layer.min(told.of),
        of: told.of,
        part: told.part.min(1000),
        left: told.left,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_one_processs_until_it_ends() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(Lease::take(&folder.join("gone"), "a").unwrap().is_none());
        assert_eq!(heard(folder), None);
        let lease = Lease::take(folder, "a").unwrap().unwrap();
        assert!(Lease::take(folder, "b").unwrap().is_none());
        assert_eq!(heard(folder), Some(JobState::Running { layer: 0, of: 0, part: 0, left: 0 }));
        let running = JobState::Running { layer: 1, of: 6, part: 500, left: 70 };
        lease.tell(&running);
        // Not so soon.
        assert_ne!(heard(folder), Some(running));
        lease.0.lock().unwrap().at -= TELL;
        lease.tell(&running);
        assert_eq!(heard(folder), Some(running));
        drop(lease);
        assert_eq!(heard(folder), None);
        let again = Lease::take(folder, "b").unwrap().unwrap();
        assert_eq!(again.0.lock().unwrap().told.holder, "b");
    }
}
