//! The command line of a run on a server, shared by every program that runs (feature `arguments`).

use std::path::PathBuf;

use super::{ContextOptions, FheJobError, RunFiles, RunOptions, default_calibration, default_secret};
use crate::error::ServeError;

/// The arguments of `hushed run` and `hushed-server run`.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArguments {
    /// The model folder
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// The run manifest, the same as the client's
    #[arg(long = "manifest", alias = "plan", value_name = "FILE", env = "HUSHED_MANIFEST")]
    pub plan: PathBuf,

    /// The client's evaluation.keys
    #[arg(long, value_name = "FILE", env = "HUSHED_KEYS")]
    pub keys: PathBuf,

    /// The client's encrypted texts
    #[arg(long, value_name = "FILE")]
    pub request: PathBuf,

    /// Where the encrypted answers go
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,

    /// The calibration that the manifest was made with [default: DIR/calibration-fhe.json]
    #[arg(long, value_name = "FILE", env = "HUSHED_CALIBRATION")]
    pub calibration: Option<PathBuf>,

    /// A folder for checkpoints; the same command, run again, continues from the last one
    #[arg(long, value_name = "DIR", env = "HUSHED_CHECKPOINT")]
    pub checkpoint: Option<PathBuf>,

    /// A folder on a fast disk for the vectors that a run with little memory spills; nothing is left in it [default:
    /// beside the reply]
    #[arg(long, value_name = "DIR", env = "HUSHED_SPILL")]
    pub spill: Option<PathBuf>,

    /// The secret from which the randomness of replies is derived; made on first use [default:
    /// ~/.local/state/hushed/reply.secret]
    #[arg(long, value_name = "FILE", env = "HUSHED_REPLY_SECRET")]
    pub secret: Option<PathBuf>,

    /// Memory that the run may use, in GiB; a run whose plan needs more is refused [default: the machine's memory]
    #[arg(long, value_name = "GIB", env = "HUSHED_MAX_MEMORY", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_memory: Option<u32>,

    /// Threads [default: as many as the machine has]
    #[arg(long, value_name = "N", env = "HUSHED_THREADS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

impl RunArguments {
    /// The options that the arguments describe.
    ///
    /// # Errors
    /// [`FheJobError::NoStateFolder`] if there is no folder for the secret.
    pub fn options(&self) -> Result<RunOptions, ServeError> {
        let secret = self.secret.clone().or_else(default_secret);
        let context = ContextOptions {
            model: self.dir.clone(),
            plan: self.plan.clone(),
            calibration: self.calibration.clone().unwrap_or_else(|| default_calibration(&self.dir)),
            secret: secret.ok_or(FheJobError::NoStateFolder)?,
            max_memory: self.max_memory.map(|gib| u64::from(gib) << 30),
            threads: self.threads.map(usize::from),
        };
        let files = RunFiles {
            keys: self.keys.clone(),
            request: self.request.clone(),
            out: self.out.clone(),
            checkpoint: self.checkpoint.clone(),
            spill: self.spill.clone(),
        };
        Ok(RunOptions { context, files })
    }
}
