//! LLaMA-7B with random weights on disk, 13.5 GB, as for a server that reads them in every pass.

use std::path::{Path, PathBuf};
use std::{env, fs};

use hushed_model::{NetworkConfig, Program, stored_llama, write_random_llama};

use super::BenchError;

/// Names a folder for the weights, in which they are kept.
const FOLDER: &str = "HUSHED_BENCH_WEIGHTS";

/// The weights' folder, removed afterwards unless it was named.
pub struct Stored {
    folder: PathBuf,
    keep: bool,
}

impl Stored {
    /// Writes the weights if they are not there yet.
    pub fn new(config: &NetworkConfig) -> Result<Stored, BenchError> {
        let named = env::var_os(FOLDER).map(PathBuf::from);
        let own = || env::temp_dir().join(format!("hushed-bench-{}", std::process::id()));
        let stored = Stored { keep: named.is_some(), folder: named.unwrap_or_else(own) };
        if stored_llama(config, &stored.folder).is_err() {
            write_random_llama(config, 1, &stored.folder).map_err(BenchError::Weights)?;
        }
        Ok(stored)
    }

    /// The model; its matrices stay in the folder.
    pub fn program(&self, config: &NetworkConfig) -> Result<Program, BenchError> {
        Ok(stored_llama(config, &self.folder)?.program())
    }
}

impl Drop for Stored {
    fn drop(&mut self) {
        if !self.keep {
            remove(&self.folder);
        }
    }
}

fn remove(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder) {
        eprintln!("{}: {error}", folder.display());
    }
}
