//! Tests of the crate from outside, in one binary.

mod two_processes;
