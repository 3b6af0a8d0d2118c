//! What can end a run, with the exit code and the short name that scripts may rely on (docs/errors.md).

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("{path}: {source}")]
    ReadInput { path: PathBuf, source: io::Error },

    #[error("{path}, line {line}: not UTF-8 text")]
    NotText { path: PathBuf, line: usize },

    #[error("there is no text: {path} has only empty lines")]
    NoText { path: PathBuf },

    #[error("the output could not be written: {0}")]
    Write(#[source] io::Error),

    #[error("{failed} of {of} checks of this machine failed: see above")]
    Doctor { failed: usize, of: usize },
}

impl CliError {
    /// Stable: scripts branch on it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::ReadInput { .. } | Self::NotText { .. } | Self::NoText { .. } => 3,
            Self::Write(_) => 8,
            Self::Doctor { .. } => 1,
        }
    }

    /// Stable name of the kind of error, in `--json` output.
    pub fn name(&self) -> &'static str {
        match self {
            Self::ReadInput { .. } => "input-unreadable",
            Self::NotText { .. } => "input-not-text",
            Self::NoText { .. } => "input-empty",
            Self::Write(_) => "output",
            Self::Doctor { .. } => "doctor",
        }
    }

    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Write(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
