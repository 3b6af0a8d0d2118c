//! The command line of a server for encrypted runs, beyond that of every server (feature `arguments`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::FheServerConfig;
use crate::error::ServeError;
use crate::fhe::{ContextOptions, FheJobError, default_calibration, default_secret};
use crate::session::config::Entrance;

/// Further arguments of `serve --protocol fhe`.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "With --protocol fhe")]
pub struct FheServeArguments {
    /// The run manifest, which every client gets
    #[arg(
        long = "manifest",
        alias = "plan",
        value_name = "FILE",
        required_if_eq("protocol", "fhe"),
        env = "HUSHED_MANIFEST"
    )]
    pub plan: Option<PathBuf>,

    /// The public model that belongs to the manifest. Every client gets it, including token vectors, positions and the
    /// first norm
    #[arg(long, value_name = "FILE", required_if_eq("protocol", "fhe"), env = "HUSHED_PUBLIC")]
    pub public: Option<PathBuf>,

    /// The folder for clients' keys and requests, jobs and replies; a server restarted with it continues
    #[arg(long, value_name = "DIR", required_if_eq("protocol", "fhe"), env = "HUSHED_STORE")]
    pub store: Option<PathBuf>,

    /// The calibration that the manifest was made with [default: DIR/calibration-fhe.json]
    #[arg(long, value_name = "FILE", env = "HUSHED_CALIBRATION")]
    pub calibration: Option<PathBuf>,

    /// Maximum size of a client's files in the store, in GiB; a client is identified by its token
    #[arg(long, value_name = "GIB", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..), env = "HUSHED_OWNER_QUOTA")]
    pub owner_quota: u32,

    /// Days to keep a reply, or a request that is not run
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=3650), env = "HUSHED_KEEP_DAYS")]
    pub keep_days: u32,

    /// The secret from which the randomness of replies is derived; made on first use [default:
    /// ~/.local/state/hushed/reply.secret]
    #[arg(long, value_name = "FILE", env = "HUSHED_REPLY_SECRET")]
    pub secret: Option<PathBuf>,

    /// Threads of a run [default: as many as the machine has]
    #[arg(long, value_name = "N", env = "HUSHED_THREADS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

impl FheServeArguments {
    /// The configuration that the arguments describe.
    pub(crate) fn config(
        &self,
        model: &Path,
        entrance: Entrance,
        max_memory: Option<u64>,
    ) -> Result<FheServerConfig, ServeError> {
        let secret = self.secret.clone().or_else(default_secret);
        // The parser requires these three when they are needed.
        let given = |path: &Option<PathBuf>| path.clone().unwrap_or_default();
        let calibration = self.calibration.clone();
        Ok(FheServerConfig {
            entrance,
            context: ContextOptions {
                model: model.to_owned(),
                plan: given(&self.plan),
                calibration: calibration.unwrap_or_else(|| default_calibration(model)),
                secret: secret.ok_or(FheJobError::NoStateFolder)?,
                max_memory,
                threads: self.threads.map(usize::from),
            },
            public: given(&self.public),
            store: given(&self.store),
            owner_quota: u64::from(self.owner_quota) << 30,
            keep: Duration::from_secs(u64::from(self.keep_days) * 86_400),
        })
    }
}
