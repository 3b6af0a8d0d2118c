//! Tests of the crate from outside, in one binary: linking it costs more than most of them. `leaks` counts what its
//! whole process holds and `logs` has its process's only subscriber, so each is alone in its own.

#[path = "../common/mod.rs"]
mod common;

mod ahead;
mod decoders;
mod drafts;
mod encoder;
mod example;
mod generate;
mod hostile;
mod images;
mod kept;
mod operation;
mod pairs;
mod pins;
mod refusals;
mod search;
mod secrets;
mod waiting;
mod whole;
