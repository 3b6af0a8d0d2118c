//! Files of secrets, for tests of every crate.

use std::path::Path;

use hushed_fhe::files::atomic::{Access, write};

/// Writes a file that only its owner can read, as files of secrets must be.
pub fn write_private(path: &Path, text: impl AsRef<[u8]>) {
    write(path, Access::Private, text.as_ref()).expect("a file");
}
