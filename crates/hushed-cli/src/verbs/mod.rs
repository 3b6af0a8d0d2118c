//! One file per verb: its arguments, and how its result is shown.

mod bundle;
mod calibrate;
mod check;
mod classify;
mod clear;
mod doctor;
mod embed;
mod fhe;
mod gateway;
mod generate;
mod index;
mod params;
mod plan;
mod prune;
mod rerank;
mod search;
mod serve;
mod verify;

use clap::Subcommand;

use crate::error::CliError;
use crate::handed::{Completions, Manual};
use crate::output::Output;

#[derive(Subcommand)]
pub enum Verb {
    Bundle(bundle::Args),
    Calibrate(calibrate::Args),
    Check(check::Args),
    Classify(classify::Args),
    Clear(clear::Args),
    Completions(Completions),
    Decrypt(fhe::decrypt::Args),
    Doctor(doctor::Args),
    Embed(embed::Args),
    Encrypt(fhe::encrypt::Args),
    Gateway(gateway::Args),
    Generate(generate::Args),
    Index(index::Args),
    Keygen(fhe::keygen::Args),
    Keys(fhe::keys::Args),
    Man(Manual),
    Next(fhe::next::Args),
    Params(params::Args),
    Plan(plan::Args),
    Prune(prune::Args),
    Rerank(rerank::Args),
    Run(fhe::run::Args),
    Score(fhe::score::Args),
    Search(search::Args),
    Serve(serve::Args),
    Verify(verify::Args),
}

impl Verb {
    /// Runs the verb; `command` gives all of the command's arguments.
    pub fn run(&self, out: &Output, command: fn() -> clap::Command) -> Result<(), CliError> {
        match self {
            Verb::Bundle(args) => args.run(out),
            Verb::Calibrate(args) => args.run(out),
            Verb::Check(args) => args.run(out),
            Verb::Classify(args) => args.run(out),
            Verb::Clear(args) => args.run(out),
            Verb::Completions(args) => args.run(command()),
            Verb::Decrypt(args) => args.run(out),
            Verb::Doctor(args) => args.run(out),
            Verb::Embed(args) => args.run(out),
            Verb::Encrypt(args) => args.run(out),
            Verb::Gateway(args) => args.run(out),
            Verb::Generate(args) => args.run(out),
            Verb::Index(args) => args.run(out),
            Verb::Keygen(args) => args.run(out),
            Verb::Keys(args) => args.run(out),
            Verb::Man(args) => args.run(command(), out),
            Verb::Next(args) => args.run(out),
            Verb::Params(args) => args.run(out),
            Verb::Plan(args) => args.run(out),
            Verb::Prune(args) => args.run(out),
            Verb::Rerank(args) => args.run(out),
            Verb::Run(args) => args.run(out),
            Verb::Score(args) => args.run(out),
            Verb::Search(args) => args.run(out),
            Verb::Serve(args) => args.run(out),
            Verb::Verify(args) => args.run(out),
        }
    }
}
