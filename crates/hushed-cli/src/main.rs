//! The `hushed` binary.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(hushed_cli::run(std::env::args_os()))
}
