//! Tests of the crate from outside, in one binary: linking it costs more than most of them. `leaks` counts what its
//! whole process holds and `fork` copies its process, so each has its own binary.

#[path = "../common/mod.rs"]
mod common;

mod channels;
mod frames;
mod hostile;
mod streams;
mod tls;
