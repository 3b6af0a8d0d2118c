//! The command line of every program: how arguments are read, and how errors are shown (feature `arguments`).

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};

use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, Command, Parser};
use serde_json::json;

use crate::category::Category;

/// The environment variable that stands for `--json`.
const JSON: &str = "HUSHED_JSON";

/// Reads a program's arguments, the first of which is its name. Help and wrong usage are printed; then there is nothing
/// to run, and the exit code is returned.
///
/// # Errors
/// The exit code: 0 after `--help` and `--version`, 2 for wrong usage, 8 if help could not be printed.
pub fn read<T: Parser>(arguments: impl IntoIterator<Item = OsString>) -> Result<T, u8> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let mut command = finished(T::command());
    let parsed = command.try_get_matches_from_mut(&arguments);
    let parsed = parsed.and_then(|found| T::from_arg_matches(&found).map_err(|error| error.format(&mut command)));
    parsed.map_err(|message| {
        let (name, json) = (command.get_name(), wants_json(&arguments));
        if message.use_stderr() {
            match json {
                true => error(name, true, "usage", Category::Usage.exit_code(), &first_words(&message.to_string())),
                // If it cannot be written, the code still says what it was.
                false => drop(message.print()),
            }
            return Category::Usage.exit_code();
        }
        match message.print().and_then(|()| io::stdout().flush()) {
            Err(failed) if failed.kind() != io::ErrorKind::BrokenPipe => {
                let code = Category::Local.exit_code();
                error(name, json, "output", code, &format!("the output could not be written: {failed}"));
                code
            }
            _ => 0,
        }
    })
}

/// Prints an error on standard error, as an object under `--json` (docs/errors.md).
pub fn error(program: &str, json: bool, name: &str, exit_code: u8, message: &str) {
    match json {
        true => eprintln!("{}", json!({ "error": { "name": name, "exit_code": exit_code, "message": message } })),
        false => eprintln!("{program}: {message}"),
    }
}

/// The same command with the rules that hold for all arguments: a negative number is a value, and the variable of a
/// flag is true or false.
#[must_use]
pub fn finished(command: Command) -> Command {
    let ruled = |arg: Arg| match arg.get_action() {
        ArgAction::SetTrue if arg.get_env().is_some() => arg.value_parser(Flag),
        ArgAction::Set | ArgAction::Append => arg.allow_negative_numbers(true),
        _ => arg,
    };
    command.mut_args(ruled).mut_subcommands(finished)
}

/// The value of a flag, which a variable may give.
#[derive(Clone)]
struct Flag;

impl TypedValueParser for Flag {
    type Value = bool;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<bool, clap::Error> {
        flag(value).ok_or_else(|| {
            let variable = arg.and_then(Arg::get_env).unwrap_or_default().to_string_lossy();
            let message = format!("{variable} is {value:?}, and true, false, 1 or 0 is expected\n");
            clap::Error::raw(ErrorKind::InvalidValue, message).with_cmd(command)
        })
    }
}

/// Whether a variable stands for its flag. An empty one counts as not set.
fn flag(value: &OsStr) -> Option<bool> {
    match value.to_str()?.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "" | "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Whether errors should be objects, for arguments that could not be read.
fn wants_json(arguments: &[OsString]) -> bool {
    let given = arguments.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json");
    given || env::var_os(JSON).as_deref().and_then(flag).unwrap_or(false)
}

/// What the parser says is wrong, in one line, without the usage that follows it.
fn first_words(message: &str) -> String {
    let said = message.split("\n\nUsage:").next().unwrap_or_default();
    let said = said.split("\n\nFor more information").next().unwrap_or_default();
    let words: Vec<&str> = said.strip_prefix("error: ").unwrap_or(said).split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, FromArgMatches};

    use super::*;

    #[derive(Debug, Parser)]
    #[command(name = "program")]
    struct Line {
        #[arg(long, env = "HUSHED_TEST_LOUD")]
        loud: bool,
        #[arg(long, default_value_t = 0.0)]
        warmth: f64,
        text: Option<String>,
    }

    fn parsed(arguments: &[&str]) -> Result<Line, clap::Error> {
        let all = ["program"].iter().chain(arguments);
        finished(Line::command()).try_get_matches_from(all).and_then(|found| Line::from_arg_matches(&found))
    }

    #[test]
    fn a_negative_number_is_a_value() {
        assert_eq!(parsed(&["--warmth", "-1.5"]).unwrap().warmth, -1.5);
        assert_eq!(parsed(&["-3"]).unwrap().text.as_deref(), Some("-3"));
        assert_eq!(parsed(&["--warmth", "-x"]).unwrap_err().kind(), ErrorKind::UnknownArgument);
        assert!(parsed(&["--loud"]).unwrap().loud && !parsed(&[]).unwrap().loud);
    }

    #[test]
    fn a_variable_is_true_or_false_or_named() {
        for (value, expected) in [("1", Some(true)), ("True", Some(true)), ("", Some(false)), ("0", Some(false))] {
            assert_eq!(flag(OsStr::new(value)), expected, "{value:?}");
        }
        assert_eq!(flag(OsStr::new("banana")), None);
        let command = finished(Line::command());
        let loud = command.get_arguments().find(|arg| arg.get_id() == "loud");
        let error = Flag.parse_ref(&command, loud, OsStr::new("banana")).unwrap_err();
        assert!(error.to_string().contains("HUSHED_TEST_LOUD is \"banana\""), "{error}");
    }

    #[test]
    fn what_is_wrong_is_one_line() {
        for (arguments, words) in [
            (&["--lod"][..], "unexpected argument '--lod' found tip: a similar argument exists: '--loud'"),
            (&["--warmth", "hot"], "invalid value 'hot' for '--warmth <WARMTH>': invalid float literal"),
        ] {
            assert_eq!(first_words(&parsed(arguments).unwrap_err().to_string()), words);
        }
    }
}
