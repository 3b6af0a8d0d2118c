//! The command `hushed` in this process.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command with these arguments, beginning with the program name; returns its exit code.
#[pyfunction]
pub fn command(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| hushed_cli::run(arguments))
}
