//! The command line of a run on a server, shared by every program that runs (feature `arguments`).

use std::path::PathBuf;

use super::{ContextOptions, FheJobError, FheWorkerConfig, RunFiles, RunOptions, default_calibration, default_secret};
use crate::error::ServeError;

/// What a run reads besides its files: the arguments of every command that runs.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct ContextArguments {
    /// The model folder
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// The run manifest, the same as the client's
    #[arg(long = "manifest", alias = "plan", value_name = "FILE", env = "HUSHED_MANIFEST")]
    pub plan: PathBuf,

    /// The calibration that the manifest was made with [default: DIR/calibration-fhe.json]
    #[arg(long, value_name = "FILE", env = "HUSHED_CALIBRATION")]
    pub calibration: Option<PathBuf>,

    /// The secret from which the randomness of replies is derived; made on first use [default:
    /// ~/.local/state/hushed/reply.secret]
    #[arg(long, value_name = "FILE", env = "HUSHED_REPLY_SECRET")]
    pub secret: Option<PathBuf>,

    /// Memory that a run may use, in GiB; a run whose plan needs more is refused [default: the machine's memory]
    #[arg(long, value_name = "GIB", env = "HUSHED_MAX_MEMORY", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_memory: Option<u32>,

    /// Threads [default: as many as the machine has]
    #[arg(long, value_name = "N", env = "HUSHED_THREADS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

impl ContextArguments {
    fn options(&self) -> Result<ContextOptions, ServeError> {
        let secret = self.secret.clone().or_else(default_secret);
        Ok(ContextOptions {
            model: self.dir.clone(),
            plan: self.plan.clone(),
            calibration: self.calibration.clone().unwrap_or_else(|| default_calibration(&self.dir)),
            secret: secret.ok_or(FheJobError::NoStateFolder)?,
            max_memory: self.max_memory.map(|gib| u64::from(gib) << 30),
            threads: self.threads.map(usize::from),
        })
    }
}

/// The arguments of `hushed run` and `hushed-server run`.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArguments {
    #[command(flatten)]
    context: ContextArguments,

    /// The client's evaluation.keys
    #[arg(long, value_name = "FILE", env = "HUSHED_KEYS")]
    pub keys: PathBuf,

    /// The client's encrypted texts
    #[arg(long, value_name = "FILE")]
    pub request: PathBuf,

    /// Where the encrypted answers go
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,

    /// A folder for checkpoints; the same command, run again, continues from the last one
    #[arg(long, value_name = "DIR", env = "HUSHED_CHECKPOINT")]
    pub checkpoint: Option<PathBuf>,

    /// A folder on a fast disk for the vectors that a run with little memory spills; nothing is left in it [default:
    /// beside the reply]
    #[arg(long, value_name = "DIR", env = "HUSHED_SPILL")]
    pub spill: Option<PathBuf>,
}

impl RunArguments {
    /// The options that the arguments describe.
    ///
    /// # Errors
    /// [`FheJobError::NoStateFolder`] if there is no folder for the secret.
    pub fn options(&self) -> Result<RunOptions, ServeError> {
        let files = RunFiles {
            keys: self.keys.clone(),
            request: self.request.clone(),
            out: self.out.clone(),
            checkpoint: self.checkpoint.clone(),
            spill: self.spill.clone(),
        };
        Ok(RunOptions { context: self.context.options()?, files })
    }
}

/// The arguments of `hushed-server work`.
#[derive(Clone, Debug, clap::Args)]
pub struct WorkArguments {
    #[command(flatten)]
    context: ContextArguments,

    /// The store of the server whose jobs are run, on a file system that keeps locks
    #[arg(long, value_name = "DIR", env = "HUSHED_STORE")]
    pub store: PathBuf,

    /// End when no job waits
    #[arg(long)]
    pub until_empty: bool,
}

impl WorkArguments {
    /// The configuration that the arguments describe.
    ///
    /// # Errors
    /// As [`RunArguments::options`].
    pub fn config(&self) -> Result<FheWorkerConfig, ServeError> {
        let context = self.context.options()?;
        Ok(FheWorkerConfig { context, store: self.store.clone(), until_empty: self.until_empty })
    }
}
