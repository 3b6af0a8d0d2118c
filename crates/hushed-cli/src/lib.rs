//! The command `hushed`: arguments in, output and exit codes out. The libraries do the work.
//!
//! A library, so that the Python package has the same command in its own process.
#![forbid(unsafe_code)]

mod connect;
mod error;
mod graphs;
mod handed;
mod images;
mod input;
mod labels;
mod lengths;
mod machine;
mod output;
mod overwrite;
mod passes;
mod running;
mod verbs;

use std::ffi::OsString;

use clap::{CommandFactory, Parser};
use hushed_serve::{command_line, core_dumps};

use crate::output::Output;
use crate::verbs::Verb;

/// Run a transformer on text that the machine running it never sees.
///
/// The server never sees the text or the answer; the client never sees the weights. Start with `hushed check FOLDER`
/// (is this model supported?) and `hushed plan FOLDER --tokens 16` (what will it cost?). In 2pc both work together:
/// `serve` and `embed`, `classify`, `rerank`, `generate` or `search`. In fhe the server works alone: `keygen`,
/// `encrypt`, `run`, `decrypt`, or `serve` and `embed --protocol fhe`.
#[derive(Parser)]
#[command(
    name = "hushed",
    version = concat!(env!("CARGO_PKG_VERSION"), " (", env!("HUSHED_COMMIT"), ")"),
    after_help = "Exit codes: 0 done, 1 a check failed, 2 wrong usage, 3 bad input, 4 model folder, 5 network or peer, 6 client and server do not \
fit, 7 refused, 8 local files, 70 a defect of this program. See docs/errors.md."
)]
struct Cli {
    /// Print JSON, one object per line, and no progress
    #[arg(long, global = true, env = "HUSHED_JSON")]
    json: bool,

    /// Print results only
    #[arg(long, short, global = true, env = "HUSHED_QUIET")]
    quiet: bool,

    #[command(subcommand)]
    verb: Verb,
}

/// Runs the command with these arguments, the first of which is the program's name, and returns the exit code
/// (docs/errors.md).
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let cli: Cli = match command_line::read(arguments) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let out = Output::new(cli.json, cli.quiet);
    if let Err(error) = core_dumps::switch_off() {
        out.note(&format!(
            "note: core dumps of this process cannot be switched off, and would contain secrets: {error}"
        ));
    }
    match cli.verb.run(&out, Cli::command) {
        Ok(()) => 0,
        // The reader of a pipe has closed it (`hushed … | head`): not an error.
        Err(error) if error.is_broken_pipe() => 0,
        Err(error) => {
            out.error(&error);
            error.exit_code()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::ValueEnum;
    use clap::error::ErrorKind;

    #[test]
    fn the_arguments_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_verb_has_help_and_examples() {
        for verb in Cli::command().get_subcommands() {
            assert!(verb.get_about().is_some(), "{} has no help", verb.get_name());
            let examples = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(examples.contains("hushed"), "{} has no examples", verb.get_name());
        }
    }

    /// The terminal's width wraps a paragraph, once, and never an example.
    #[test]
    fn help_is_wrapped_once() {
        fn check(command: &clap::Command) {
            let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let lines: Vec<&str> = after.lines().collect();
            let flows = |line: &str| !line.is_empty() && !line.starts_with(' ') && line != "Examples:";
            for pair in lines.windows(2) {
                assert!(!(flows(pair[0]) && flows(pair[1])), "{}: {pair:?}", command.get_name());
            }
            for example in lines.iter().filter(|line| line.starts_with(' ')) {
                assert!(example.chars().count() <= 100, "{}: {example}", command.get_name());
            }
            command.get_subcommands().for_each(check);
        }
        check(&Cli::command());
    }

    /// A negative number is the value of any option that takes one, and then in range or not, and not another option.
    #[test]
    fn a_negative_number_is_a_value() {
        let command = command_line::finished(Cli::command());
        for verb in command.get_subcommands() {
            let valued = verb.get_arguments().filter(|arg| arg.get_action().takes_values());
            for option in valued.filter_map(clap::Arg::get_long) {
                let line = ["hushed".to_owned(), verb.get_name().to_owned(), format!("--{option}"), "-1".to_owned()];
                let refused = command.clone().try_get_matches_from(line).err().map(|error| error.kind());
                assert_ne!(refused, Some(ErrorKind::UnknownArgument), "{} --{option}", verb.get_name());
            }
        }
    }

    #[test]
    fn instructions_belong_to_a_question() {
        let parsed = |rest: &[&str]| {
            let common = ["hushed", "generate", "--server", "a:1", "--pin", "00"];
            Cli::try_parse_from(common.iter().chain(rest)).is_ok()
        };
        assert!(parsed(&["--chat", "a", "--system", "b"]) && parsed(&["a"]));
        for wrong in [
            &["a", "--system", "b"][..],
            &["--messages", "a", "--system", "b"],
            &["--system", "b"],
            &["a", "--chat", "b"],
            &[],
        ] {
            assert!(!parsed(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn every_verb_is_completed_and_has_a_manual_page() {
        let folder = tempfile::tempdir().unwrap();
        clap_mangen::generate_to(Cli::command(), folder.path()).unwrap();
        let page = |name: &str| std::fs::read_to_string(folder.path().join(format!("{name}.1")));
        let verbs = Cli::command();
        let verbs: Vec<&str> = verbs.get_subcommands().map(|v| v.get_name()).collect();
        for verb in &verbs {
            let page = page(&format!("hushed-{verb}")).unwrap();
            assert!(page.contains(".SH OPTIONS") && page.contains("xample"), "{verb}");
        }
        assert!(page("hushed").is_ok() && page("hushed-keys-list").is_ok());
        for shell in clap_complete::Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "hushed", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(verbs.iter().all(|verb| script.contains(verb)), "{shell}");
        }
    }
}
