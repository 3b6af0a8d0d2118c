//! One file a verb: its arguments, and how its result is shown.

mod bench;
mod calibrate;
mod check;
mod clear;
mod doctor;
mod plan;

use clap::Subcommand;

use crate::error::CliError;
use crate::output::Output;

#[derive(Subcommand)]
pub enum Verb {
    Bench(bench::Args),
    Calibrate(calibrate::Args),
    Check(check::Args),
    Clear(clear::Args),
    Doctor(doctor::Args),
    Plan(plan::Args),
}

impl Verb {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        match self {
            Verb::Bench(args) => args.run(out),
            Verb::Calibrate(args) => args.run(out),
            Verb::Check(args) => args.run(out),
            Verb::Clear(args) => args.run(out),
            Verb::Doctor(args) => args.run(out),
            Verb::Plan(args) => args.run(out),
        }
    }
}
