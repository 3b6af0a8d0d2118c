//! Files that exist are not overwritten unasked: one rule for all verbs that write files.

use std::path::Path;

use crate::error::CliError;

/// Whether files may be overwritten.
#[derive(clap::Args)]
#[group(skip)]
pub struct Overwrite {
    /// Overwrite files that exist
    #[arg(long)]
    force: bool,
}

impl Overwrite {
    /// Refuses what exists, unless it may be overwritten. To be asked before the work that makes it.
    pub fn check(&self, path: &Path) -> Result<(), CliError> {
        match self.force {
            true => Ok(()),
            false => refuse(path, "give another name, or --force"),
        }
    }
}

/// Refuses what exists; `instead` says what to do.
pub fn refuse(path: &Path, instead: &'static str) -> Result<(), CliError> {
    match path.symlink_metadata() {
        Ok(_) => Err(CliError::Exists { path: path.to_owned(), instead }),
        Err(_) => Ok(()),
    }
}
