//! One file a verb: its arguments, and how its result is shown.

mod doctor;

use clap::Subcommand;

use crate::error::CliError;
use crate::output::Output;

#[derive(Subcommand)]
pub enum Verb {
    Doctor(doctor::Args),
}

impl Verb {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        match self {
            Verb::Doctor(args) => args.run(out),
        }
    }
}
