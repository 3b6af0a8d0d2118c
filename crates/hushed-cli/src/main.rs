//! The `hushed` binary: arguments in, output and exit codes out. What it does lives in the libraries.
#![forbid(unsafe_code)]

mod connect;
mod error;
mod folders;
mod input;
mod machine;
mod output;
mod passes;
mod running;
mod verbs;

use std::process::ExitCode;

use clap::Parser;

use crate::output::Output;
use crate::verbs::Verb;

/// Run a transformer on text that the machine it runs on never sees.
///
/// The server never sees the text or the answer; the client never sees the weights. Start with `hushed check FOLDER`
/// (is this model supported?) and `hushed plan FOLDER` (what will it cost?). In 2pc both work together: `serve` and
/// `embed`, `classify` or `generate`. In fhe the server works alone: `keygen`, `encrypt`, `run`, `decrypt`, or `serve` and
/// `embed --protocol fhe`.
#[derive(Parser)]
#[command(
    name = "hushed",
    version = concat!(env!("CARGO_PKG_VERSION"), " (", env!("HUSHED_COMMIT"), ")"),
    after_help = "Exit codes: 0 done, 2 wrong usage, 3 bad input, 4 model folder, 5 network or peer, \
                  6 client and server do not fit, 7 refused, 8 local files, 70 a defect of this program. See docs/errors.md."
)]
struct Cli {
    /// Print JSON, one object a line, and no progress
    #[arg(long, global = true, env = "HUSHED_JSON", value_parser = clap::builder::FalseyValueParser::new())]
    json: bool,

    /// Print results only
    #[arg(long, short, global = true, env = "HUSHED_QUIET", value_parser = clap::builder::FalseyValueParser::new())]
    quiet: bool,

    #[command(subcommand)]
    verb: Verb,
}

fn main() -> ExitCode {
    // clap prints its own message and ends with exit code 2 on wrong usage, 0 on --help.
    let cli = Cli::parse();
    let out = Output::new(cli.json, cli.quiet);
    match cli.verb.run(&out) {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe has closed it (`hushed … | head`): not an error.
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            out.error(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_has_help_and_examples() {
        for verb in Cli::command().get_subcommands() {
            assert!(
                verb.get_about().is_some(),
                "{} has no help",
                verb.get_name()
            );
            let examples = verb
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(
                examples.contains("hushed"),
                "{} has no examples",
                verb.get_name()
            );
        }
    }
}
