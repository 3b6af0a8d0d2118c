//! Why a measurement stops.

use std::io;

use hushed_ckks::{CkksError, CkksParamsError};
use hushed_fhe::FheError;
use hushed_model::ModelError;
use hushed_mpc::RunError;
use hushed_net::NetError;
use hushed_twopc::TwopcError;

/// Why a measurement stopped.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error(transparent)]
    Net(#[from] NetError),
    #[error(transparent)]
    Protocol(#[from] TwopcError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Model(#[from] ModelError),
    #[error("a process of this measurement could not be {what}: {source}")]
    Process { what: &'static str, source: io::Error },
    #[error("the {party} process of this measurement ended early ({status}); its message is above")]
    Ended { party: &'static str, status: String },
    #[error("the {party} process sent a line that this program does not understand")]
    Garbled { party: &'static str },
    #[error("the parameters of this measurement have no transform")]
    NoTransform,
    #[error(transparent)]
    NoLink(#[from] hushed_mpc::NoLink),
    #[error("the weights of this measurement are out of their range")]
    BadWeights,
    #[error(transparent)]
    Ckks(#[from] CkksError),
    #[error(transparent)]
    Gemm(#[from] hushed_ckks::gemm::GemmError),
    #[error(transparent)]
    CkksParams(#[from] CkksParamsError),
    #[error(transparent)]
    Fhe(#[from] FheError),
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Device(#[from] hushed_device::DeviceError),
    #[cfg(feature = "cuda")]
    #[error("the card differs from the processor: {what}, {wrong} words")]
    Differs { what: String, wrong: usize },
    #[error("{threads} threads could not be started")]
    NoThreads { threads: usize },
    #[error("there is no measurement `{name}`: `hushed-bench --list` lists them")]
    NoSuchBench { name: String },
    #[error("the weights of this measurement could not be written: {0}")]
    Weights(#[source] io::Error),
    #[error("the output could not be written: {0}")]
    Write(#[source] io::Error),
}

impl BenchError {
    /// Stable, because scripts branch on it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NoSuchBench { .. } | Self::NoLink(_) => 2,
            Self::Net(_) => 5,
            Self::Write(_) | Self::Weights(_) => 8,
            _ => 70,
        }
    }

    /// Stable name of the kind of error, for `--json` output.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoSuchBench { .. } | Self::NoLink(_) => "usage",
            Self::Write(_) => "output",
            _ => "bench",
        }
    }

    /// Whether the reader of the output is gone.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Write(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}
