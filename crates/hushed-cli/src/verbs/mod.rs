//! One file a verb: its arguments, and how its result is shown.

mod bench;
mod bundle;
mod calibrate;
mod check;
mod clear;
mod doctor;
mod embed;
mod params;
mod plan;
mod serve;
mod verify;

use clap::Subcommand;

use crate::error::CliError;
use crate::output::Output;

#[derive(Subcommand)]
pub enum Verb {
    Bench(bench::Args),
    Bundle(bundle::Args),
    Calibrate(calibrate::Args),
    Check(check::Args),
    Clear(clear::Args),
    Doctor(doctor::Args),
    Embed(embed::Args),
    Params(params::Args),
    Plan(plan::Args),
    Serve(serve::Args),
    Verify(verify::Args),
}

impl Verb {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        match self {
            Verb::Bench(args) => args.run(out),
            Verb::Bundle(args) => args.run(out),
            Verb::Calibrate(args) => args.run(out),
            Verb::Check(args) => args.run(out),
            Verb::Clear(args) => args.run(out),
            Verb::Doctor(args) => args.run(out),
            Verb::Embed(args) => args.run(out),
            Verb::Params(args) => args.run(out),
            Verb::Plan(args) => args.run(out),
            Verb::Serve(args) => args.run(out),
            Verb::Verify(args) => args.run(out),
        }
    }
}
