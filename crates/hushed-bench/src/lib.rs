//! Named measurements with stable rows, each compared with the clear answer, as run by the binary `hushed-bench`.
//!
//! A measurement between parties runs as two processes of this program over TCP on loopback, each pinned to its own
//! core, optionally over a shaped network. docs/benchmarks.md describes the rows.
#![forbid(unsafe_code)]
#![expect(missing_docs, reason = "public for its own binary alone")]

pub mod baselines;
mod cases;
mod ckks;
mod error;
mod fhe;
mod generate;
mod local;
pub mod machine;
mod model;
mod pair;
mod party;
mod peer;
mod products;
mod search;
mod stored;
mod suite;
mod suites;

pub use error::BenchError;
pub use pair::run_pair;
pub use party::run_party;
pub use suite::{Between, Case, How, Kind, Net, Suite, Whole};
pub(crate) use suite::{counters, median};
pub use suites::{LONG, SUITES, suite};
