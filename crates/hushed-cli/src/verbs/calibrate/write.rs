//! Calibration files.

use std::fs;
use std::io::Write;
use std::path::Path;

use crate::error::CliError;

/// Writes a file as a whole or not at all: a full disk leaves the old file as it was.
pub(super) fn write(bytes: &[u8], path: &Path) -> Result<(), CliError> {
    let failed = |source| CliError::WriteFile { path: path.to_owned(), source };
    let new = path.with_extension("json.new");
    let result = fs::File::create(&new).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)
    });
    if result.is_err() {
        // A left-over is useless, and failing to remove it changes nothing.
        let _ = fs::remove_file(&new);
    }
    result.map_err(failed)
}
