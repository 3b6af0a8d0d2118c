//! External tests of the crate, in one binary.

mod two_processes;
