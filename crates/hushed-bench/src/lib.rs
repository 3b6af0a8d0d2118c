//! Named measurements with stable rows, each compared with the clear answer, as run by the binary `hushed-bench`.
//!
//! A measurement between parties runs as two processes of this program over TCP on loopback, each pinned to its own
//! core, optionally over a shaped network. docs/benchmarks.md describes the rows.
#![forbid(unsafe_code)]
#![expect(missing_docs, reason = "public for its own binary alone")]

pub mod baselines;
mod cases;
mod ckks;
mod fhe;
mod generate;
mod local;
pub mod machine;
mod model;
mod pair;
mod party;
mod products;
mod search;
mod stored;

use std::io;

use hushed_ckks::counters::Counts;
use hushed_ckks::{CkksError, CkksParamsError};
use hushed_fhe::FheError;
use hushed_model::ModelError;
use hushed_mpc::RunError;
use hushed_net::{NetError, Session, Shape};
use hushed_twopc::TwopcError;
use serde_json::{Map, Value};

pub use pair::run_pair;
pub use party::run_party;

use party::Peer;

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
    Process {
        what: &'static str,
        source: io::Error,
    },
    #[error("the {party} process of this measurement ended early ({status}); its message is above")]
    Ended { party: &'static str, status: String },
    #[error("the {party} process sent a line that this program does not understand")]
    Garbled { party: &'static str },
    #[error("the parameters of this measurement have no transform")]
    NoTransform,
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
            Self::NoSuchBench { .. } => 2,
            Self::Net(_) => 5,
            Self::Write(_) | Self::Weights(_) => 8,
            _ => 70,
        }
    }

    /// Stable name of the kind of error, for `--json` output.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NoSuchBench { .. } => "usage",
            Self::Write(_) => "output",
            _ => "bench",
        }
    }

    /// Whether the reader of the output is gone.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Write(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// The network between the parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Net {
    /// No limit
    Loopback,
    /// 1 Gbit/s, 0.5 ms round trip
    Lan,
    /// 400 Mbit/s, 4 ms round trip
    Wan,
}

impl Net {
    pub fn name(self) -> &'static str {
        match self {
            Net::Loopback => "loopback",
            Net::Lan => "lan",
            Net::Wan => "wan",
        }
    }

    fn shape(self) -> Option<Shape> {
        match self {
            Net::Loopback => None,
            Net::Lan => Some(Shape::LAN),
            Net::Wan => Some(Shape::WAN),
        }
    }
}

/// One size of a measurement between two parties. Both build the same case.
pub trait Case {
    fn params(&self) -> Value;

    /// Shares the inputs; not timed.
    fn prepare(&mut self, peer: &mut Peer) -> Result<(), BenchError>;

    /// The timed part.
    fn run(&mut self, peer: &mut Peer) -> Result<(), BenchError>;

    /// The largest error of the last run compared with the clear, at the client; not timed.
    fn error(&mut self, peer: &mut Peer) -> Result<Option<f64>, BenchError>;
}

/// A measurement of a model between two parties.
pub trait Whole {
    fn params(&self) -> Value;

    /// The server's work before the two parties meet.
    fn prepare(&mut self) -> Result<(), BenchError> {
        Ok(())
    }
    /// Whether to run it; what takes long runs only if named.
    fn wanted(&self, how: How<'_>) -> bool;

    /// Runs it as one party, `runs` times after one extra run. Returns the session for the next measurement.
    fn measure(&self, session: Session, runs: usize) -> Result<(Session, Value), BenchError>;
}

/// How a suite runs.
pub enum Kind {
    /// One process.
    Local(fn(How<'_>) -> Result<Vec<Value>, BenchError>),
    /// Two processes.
    Pair(fn() -> Vec<Box<dyn Case>>),
    /// Two processes that run a model, each with the set-up of a session.
    Model(fn() -> Vec<Box<dyn Whole>>),
}

pub struct Suite {
    pub name: &'static str,
    pub about: &'static str,
    pub kind: Kind,
}

pub const SUITES: &[Suite] = &[
    Suite {
        name: "ntt",
        about: "negacyclic transform of one polynomial",
        kind: Kind::Local(local::ntt),
    },
    Suite {
        name: "cot",
        about: "random correlated OTs",
        kind: Kind::Pair(cases::cot),
    },
    Suite {
        name: "ole",
        about: "element-wise products of shares",
        kind: Kind::Pair(products::products),
    },
    Suite {
        name: "olt",
        about: "shared matrix times the server's weights, and shared times shared",
        kind: Kind::Pair(products::linear),
    },
    Suite {
        name: "packing",
        about: "how the products of a matrix are packed into responses (InterLeave, KRDY, PackLWEs)",
        kind: Kind::Pair(products::packing),
    },
    Suite {
        name: "compare",
        about: "sign of shared values",
        kind: Kind::Pair(cases::compare),
    },
    Suite {
        name: "truncate",
        about: "truncation of shared values",
        kind: Kind::Pair(cases::truncate),
    },
    Suite {
        name: "gelu",
        about: "GELU of shared values",
        kind: Kind::Pair(cases::gelu),
    },
    Suite {
        name: "softmax",
        about: "softmax of shared rows",
        kind: Kind::Pair(cases::softmax),
    },
    Suite {
        name: "norm",
        about: "LayerNorm of shared rows",
        kind: Kind::Pair(cases::norm),
    },
    Suite {
        name: "layer",
        about: "one layer with random weights; of LLaMA-7B with --only llama-7b",
        kind: Kind::Model(model::layers),
    },
    Suite {
        name: "model",
        about: "whole encoders with random weights, and their time and bytes by operation; BERT-large with --only bert-large",
        kind: Kind::Model(model::models),
    },
    Suite {
        name: "generate",
        about: "GPT-2 with random weights: the first token after a prompt, and a later one; LLaMA-7B, whose weights are read from disk (13.5 GB in TMPDIR, or in HUSHED_BENCH_WEIGHTS), with --only llama-7b",
        kind: Kind::Model(generate::cases),
    },
    Suite {
        name: "search",
        about: "a private search among random vectors, after the embedding of its query",
        kind: Kind::Model(search::cases),
    },
    Suite {
        name: "ckks",
        about: "CKKS operations one by one, at several levels",
        kind: Kind::Local(ckks::operations),
    },
    Suite {
        name: "lintrans",
        about: "CKKS: a matrix of 768 × 768 times the slots, by four methods",
        kind: Kind::Local(ckks::transforms),
    },
    Suite {
        name: "lintrans-rows",
        about: "CKKS: maps of the columns of one text, 384 to 1,152 and 768 to 3,072, in packed rows",
        kind: Kind::Local(ckks::maps),
    },
    Suite {
        name: "matvec",
        about: "CKKS: the first feed-forward maps of GPT-2, Phi-3 mini and Llama 3 times one vector, by baby and giant steps and by packed rows",
        kind: Kind::Local(ckks::vectors),
    },
    Suite {
        name: "matmul",
        about: "CKKS: products of two encrypted matrices by outer products, up to 128 × 128, at levels 2 and 13; at each from 2 to 17, minutes, with --only level; of one size with --only '\"dimension\":64,\"level'",
        kind: Kind::Local(ckks::products),
    },
    Suite {
        name: "gemm",
        about: "CKKS: 768 × 768 weights times 768 ciphertexts, 64 of the outputs; all of them, minutes, with --only whole",
        kind: Kind::Local(ckks::gemm),
    },
    Suite {
        name: "bootstrap",
        about: "CKKS: whole bootstraps of three sets, one and four in a call, in two passes, and of few slots",
        kind: Kind::Local(ckks::bootstrap),
    },
    Suite {
        name: "flooding",
        about: "CKKS: bits that noise for 1,024 published openings takes away, by circuit",
        kind: Kind::Local(ckks::flooding),
    },
    Suite {
        name: "fhe-softmax",
        about: "CKKS: softmax of 128 × 128 for 256 texts",
        kind: Kind::Local(fhe::softmaxes),
    },
    Suite {
        name: "fhe-norm",
        about: "CKKS: LayerNorm of 128 × 768 for 256 texts, RMSNorm of longer ones",
        kind: Kind::Local(fhe::norms),
    },
    Suite {
        name: "fhe-pcmm",
        about: "CKKS: the product of 2048 × 768 with a ternary matrix of 768 × 64, for 16 texts",
        kind: Kind::Local(fhe::ternary_products),
    },
    Suite {
        name: "fhe-sigmoid",
        about: "CKKS: the sigmoid of 32,768 numbers",
        kind: Kind::Local(fhe::sigmoids),
    },
    Suite {
        name: "fhe-rope",
        about: "CKKS: rotary positions of 2048 rows and 16 heads of 96, for 16 texts",
        kind: Kind::Local(fhe::turned),
    },
    Suite {
        name: "fhe-ccmm",
        about: "CKKS: the scores of a head, 128 × 128, for 256 texts, and the key switches of other algorithms",
        kind: Kind::Local(fhe::ccmm),
    },
    Suite {
        name: "fhe-heads",
        about: "CKKS: scores and values of all heads of one text of 128 rows, in packed rows",
        kind: Kind::Local(fhe::heads),
    },
    Suite {
        name: "ffn",
        about: "CKKS: the feed-forward block of GPT-2 for one vector and for several, with GELU, without, and merged",
        kind: Kind::Local(fhe::blocks),
    },
    Suite {
        name: "fhe-layer",
        about: "CKKS: an encoder layer with random weights for 256 texts of 128 tokens; most of an hour on two cores, and gigabytes in TMPDIR; --only llama-ternary-small: of a ternary decoder; llama-softmax-small: with a softmax; llama-ternary-640, -1536: of wider ones, twenty minutes and most of an hour; -head: of one head for 2,048 tokens, ten minutes",
        kind: Kind::Local(fhe::layers),
    },
    Suite {
        name: "fhe-model",
        about: "CKKS: a whole encoder with random weights for 256 texts of 128 tokens; two hours and more on two cores, and gigabytes in TMPDIR",
        kind: Kind::Local(fhe::models),
    },
    Suite {
        name: "fhe-text",
        about: "CKKS: an encoder layer with random weights for one text of 128 tokens, in packed rows; a minute or two on two cores",
        kind: Kind::Local(fhe::texts),
    },
    Suite {
        name: "roofline",
        about: "CKKS: modular products a byte and a second of each primitive, beside the machine's peaks",
        kind: Kind::Local(ckks::roofline),
    },
];

/// Measurements that `all` leaves out because they take too long.
pub const LONG: &[&str] = &["fhe-layer", "fhe-model", "fhe-text"];

/// How to run the sizes of a suite.
#[derive(Clone, Copy)]
pub struct How<'a> {
    pub net: Net,
    pub runs: usize,
    /// Threads of a single-process measurement.
    pub threads: usize,
    /// Only sizes whose parameters, as JSON, contain this.
    pub only: Option<&'a str>,
}

impl How<'_> {
    fn wants(&self, params: &Value) -> bool {
        self.only
            .is_none_or(|part| params.to_string().contains(part))
    }
}

pub fn suite(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}

/// The median; the upper one of the two middle values for an even number.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Counters by name.
fn counters(counts: &Counts) -> Value {
    let entries = counts.entries().into_iter();
    entries
        .map(|(name, count)| (name.to_owned(), count.into()))
        .collect::<Map<_, Value>>()
        .into()
}
