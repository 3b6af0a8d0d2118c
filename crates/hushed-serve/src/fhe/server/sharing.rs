//! What processes that share a store need: locks that hold between them, and one secret for replies.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::Path;

use hushed_fhe::files::FileError;
use hushed_fhe::files::atomic::{Access, AtomicFile};

use crate::error::ServeError;
use crate::fhe::FheJobError;
use crate::fhe::run::secret_hash;
use crate::files;

/// The hash of the secret that the store's replies are made with.
const SECRET_HASH: &str = "reply-secret.sha256";

/// Checks that the store's file system keeps locks. Without them two processes could run one job. On Linux, a mount
/// that keeps locks from other machines is found by its options.
///
/// # Errors
/// [`FheJobError::NoLocks`].
pub(super) fn check_locks(root: &Path) -> Result<(), ServeError> {
    let path = root.join("locks");
    let open = || File::create(&path).map_err(|source| FheJobError::from(FileError::io("lock", &path)(source)));
    let (one, two) = (open()?, open()?);
    // Waits: another process may be checking the same.
    let kept = one.lock().is_ok() && matches!(two.try_lock(), Err(TryLockError::WouldBlock));
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let shared = root.canonicalize().is_ok_and(|root| shares_locks(&mounts, &root));
    match kept && (shared || mounts.is_empty()) {
        true => Ok(()),
        false => Err(FheJobError::NoLocks { path: root.to_owned() }.into()),
    }
}

/// Whether the mount that holds `path` shares its locks with other machines, or is none that machines share.
/// `mounts`: lines of source, place, type and options. Of several mounts at one place the last counts.
fn shares_locks(mounts: &str, path: &Path) -> bool {
    let lines = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (place, kind, options) = (fields.nth(1)?, fields.next()?, fields.next()?);
        // A space in a path is written so.
        let place = place.replace("\\040", " ");
        path.starts_with(&place).then_some((place.len(), kind, options))
    });
    let Some((_, kind, options)) = lines.max_by_key(|(length, ..)| *length) else {
        return true;
    };
    let keeps_to_itself = |option: &str| match option.split_once('=') {
        Some(("local_lock", which)) => which == "all" || which == "flock",
        _ => option == "nolock",
    };
    !(kind.starts_with("nfs") && options.split(',').any(keeps_to_itself))
}

/// Checks that this secret of replies is the store's, which the first process that opens the store decides: with
/// another one a job that changes hands would be masked twice, by different randomness.
///
/// # Errors
/// [`FheJobError::OtherSecret`].
pub(super) fn check_secret(root: &Path, secret: &Path) -> Result<(), ServeError> {
    let path = root.join(SECRET_HASH);
    let ours = secret_hash(secret)?.to_string();
    let written = AtomicFile::create(&path, Access::Usual).and_then(|mut file| {
        file.write_all(ours.as_bytes()).map_err(FileError::io("write", &path))?;
        file.commit_new()
    });
    written.map_err(FheJobError::from)?;
    match files::read(&path, 128)? == ours.as_bytes() {
        true => Ok(()),
        false => Err(FheJobError::OtherSecret { path }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_one_secret_of_replies() {
        let work = tempfile::tempdir().unwrap();
        let [one, two] = ["one", "two"].map(|name| work.path().join(name));
        for _ in 0..2 {
            check_secret(work.path(), &one).unwrap();
        }
        let refused = check_secret(work.path(), &two).unwrap_err();
        assert_eq!((refused.name(), refused.category()), ("other-secret", crate::error::Category::Mismatch));
        // The operator has emptied the store.
        fs::remove_file(work.path().join(SECRET_HASH)).unwrap();
        check_secret(work.path(), &two).unwrap();
    }

    #[test]
    fn mounts_whose_locks_are_one_machines_are_found() {
        let mounts = "/dev/vda / ext4 rw,nolock 0 0\n\
            srv:/a /shared nfs4 rw,vers=4.2,local_lock=none,addr=10.0.0.2 0 0\n\
            srv:/b /shared/old nfs rw,vers=3,nolock,local_lock=all 0 0\n\
            srv:/c /my\\040store nfs rw,vers=3,local_lock=flock 0 0\n\
            srv:/d /twice nfs4 rw,local_lock=all 0 0\n\
            srv:/d /twice nfs4 rw,local_lock=posix 0 0\n";
        for (path, shares) in [
            ("/var/lib/hushed", true),
            ("/shared/store", true),
            ("/shared/old/store", false),
            ("/shared/older", true),
            ("/my store", false),
            ("/twice/store", true),
        ] {
            assert_eq!(shares_locks(mounts, Path::new(path)), shares, "{path}");
        }
        assert!(shares_locks("not mounts\n\n", Path::new("/")));
        let folder = tempfile::tempdir().unwrap();
        check_locks(folder.path()).unwrap();
    }
}
