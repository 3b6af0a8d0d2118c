//! Bundles kept from one session to the next, each in a file named by its hash. A bundle that is read is checked
//! against that hash again, so a damaged file is simply fetched again.

use std::path::{Path, PathBuf};

use crate::bundle::Bundle;
use crate::digest::Digest;
use crate::error::ServeError;

fn path(dir: &Path, hash: Digest) -> PathBuf {
    dir.join(format!("{hash}.bundle"))
}

/// The bundle of this hash, if it is there and whole.
pub(super) fn find(dir: &Path, hash: Digest) -> Option<Bundle> {
    let bundle = Bundle::read(&path(dir, hash)).ok()?;
    (bundle.hash() == hash).then_some(bundle)
}

/// Keeps a bundle.
pub(super) fn keep(dir: &Path, bundle: &Bundle) -> Result<(), ServeError> {
    make(dir)?;
    bundle.write(&path(dir, bundle.hash()))
}

/// Makes the folder, if it is not there.
pub(super) fn make(dir: &Path) -> Result<(), ServeError> {
    std::fs::create_dir_all(dir).map_err(|source| ServeError::File {
        operation: "create",
        path: dir.to_owned(),
        source,
    })
}
