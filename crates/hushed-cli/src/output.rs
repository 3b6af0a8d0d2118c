//! Where results, progress and errors go: results to standard output, everything else to standard error.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use hushed_ckks::counters::Counts;
use hushed_model::{ProblemType, ScoreFn, counted};
use hushed_serve::command_line;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde_json::{Map, Value, json};

use crate::error::CliError;

/// Counters by name.
pub fn counters(counts: &Counts) -> Value {
    let entries = counts.entries().into_iter();
    entries.map(|(name, count)| (name.to_owned(), count.into())).collect::<Map<_, Value>>().into()
}

/// Bytes in GiB.
pub fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// How results and progress are shown.
pub struct Output {
    json: bool,
    quiet: bool,
}

impl Output {
    pub fn new(json: bool, quiet: bool) -> Output {
        Output { json, quiet }
    }

    pub fn is_json(&self) -> bool {
        self.json
    }

    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// Prints one result: `object` under `--json`, otherwise the line that `text` makes.
    pub fn result(&self, object: Value, text: impl FnOnce() -> String) -> Result<(), CliError> {
        let line = if self.json { object.to_string() } else { text() };
        // Each line is flushed, so that a reader of a long run sees results as they come.
        let mut out = io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush()).map_err(CliError::Write)
    }

    /// Prints what is wrong with a folder, a line each.
    pub fn problems(&self, problems: &[impl fmt::Display]) -> Result<(), CliError> {
        problems
            .iter()
            .map(ToString::to_string)
            .try_for_each(|problem| self.result(json!({ "problem": problem }), || format!("- {problem}")))
    }

    /// Prints a piece of a generated text at once; nothing under `--json`. Control characters are escaped, as a model
    /// could control the terminal with them.
    pub fn piece(&self, text: &str) -> Result<(), CliError> {
        if self.json {
            return Ok(());
        }
        // Flushed even if there is nothing to write: how long a token takes does not depend on its text.
        let mut out = io::stdout().lock();
        out.write_all(escaped(text).as_bytes()).and_then(|()| out.flush()).map_err(CliError::Write)
    }

    /// Prints the closing line of a run: an object under `--json`, otherwise a remark.
    pub fn summary(&self, object: Value, text: &str) -> Result<(), CliError> {
        if self.json {
            return self.result(object, String::new);
        }
        self.note(text);
        Ok(())
    }

    /// Prints a remark; nothing under `--json` or `--quiet`.
    pub fn note(&self, text: &str) {
        if !self.json && !self.quiet {
            eprintln!("{text}");
        }
    }

    /// Prints a warning, always: if it is missed, an answer may be wrong.
    pub fn warn(&self, text: &str) {
        eprintln!("warning: {text}");
    }

    /// A bar with an estimate of the time left; invisible unless standard error is a terminal.
    pub fn progress(&self, steps: u64, what: &'static str) -> ProgressBar {
        self.bar(steps, what, "{msg} {bar:30} {percent:>3} % {elapsed}{left}")
    }

    /// A bar in thousandths whose message shows the time left, for work of uneven pace.
    pub fn planned(&self, what: &'static str) -> ProgressBar {
        self.bar(1000, what, "{bar:20} {percent:>3} % {elapsed} {wide_msg}")
    }

    /// Whether bars are visible.
    pub fn shows_bars(&self) -> bool {
        !self.json && !self.quiet && io::stderr().is_terminal()
    }

    fn bar(&self, steps: u64, what: &'static str, style: &str) -> ProgressBar {
        let target = if self.shows_bars() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(steps), target).with_message(what);
        if let Ok(style) = ProgressStyle::with_template(style) {
            // Before the first step nothing is known.
            let left = |state: &ProgressState, out: &mut dyn fmt::Write| {
                if state.pos() > 0 {
                    let _ = write!(out, " (about {} left)", HumanDuration(state.eta()));
                }
            };
            bar.set_style(style.with_key("left", left));
        }
        if self.shows_bars() {
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        bar
    }

    pub fn error(&self, error: &CliError) {
        command_line::error("hushed", self.json, error.name(), error.exit_code(), &error.to_string());
    }
}

/// The names of a classifier's classes, and what its numbers say of them; `None` for an embedding.
pub type Classes<'a> = Option<(&'a [String], ProblemType)>;

/// The answer to a text as an object: an embedding, or a classifier's logits and what they name: the class with the
/// largest, or every one whose probability is above one half.
pub fn answer(index: usize, tokens: usize, numbers: &[f64], classes: Classes<'_>) -> Value {
    let Some((labels, problem)) = classes else {
        return json!({ "text_index": index, "tokens": tokens, "embedding": numbers });
    };
    let named = named(numbers, labels, problem);
    match problem {
        ProblemType::MultiLabel => json!({
            "text_index": index, "tokens": tokens, "logits": numbers, "labels": named,
            "probabilities": numbers.iter().map(|&logit| ScoreFn::Sigmoid.of(logit)).collect::<Vec<f64>>(),
        }),
        _ => json!({ "text_index": index, "tokens": tokens, "logits": numbers, "label": named.first() }),
    }
}

/// The same answer as text.
pub fn answer_text(index: usize, tokens: usize, numbers: &[f64], classes: Classes<'_>) -> String {
    let text = format!("text {index}, {}", counted(tokens, "token"));
    let Some((labels, problem)) = classes else {
        return format!("{text}: {}", preview(numbers));
    };
    let several = problem == ProblemType::MultiLabel;
    let shown = |logit: f64| if several { ScoreFn::Sigmoid.of(logit) } else { logit };
    let mut classes: Vec<(&String, f64)> = labels.iter().zip(numbers.iter().copied()).collect();
    classes.sort_by(|a, b| b.1.total_cmp(&a.1));
    let first: Vec<String> =
        classes.iter().take(6).map(|(name, logit)| format!("{name} {:.4}", shown(*logit))).collect();
    let more = if classes.len() > first.len() { ", …" } else { "" };
    let first = first.join(", ");
    match several {
        true => format!("{text}: {} (probabilities: {first}{more})", list(&named(numbers, labels, problem))),
        false => format!("{text}: {first}{more} ({})", counted(numbers.len(), "logit")),
    }
}

/// The classes that logits name.
fn named<'a>(numbers: &[f64], labels: &'a [String], problem: ProblemType) -> Vec<&'a String> {
    problem.answer(numbers, 0.0).into_iter().filter_map(|place| labels.get(place)).collect()
}

/// Labels as text.
pub fn list(labels: &[impl AsRef<str>]) -> String {
    match labels.is_empty() {
        true => "no label".to_owned(),
        false => labels.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", "),
    }
}

/// A text with its control characters escaped, except line feeds and tabs.
fn escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => shown.push(c),
            // Also characters that change the direction of a line.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => shown.extend(c.escape_unicode()),
            c if c.is_control() => shown.extend(c.escape_unicode()),
            c => shown.push(c),
        }
    }
    shown
}

/// A text for a terminal: one line, without control characters.
pub fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}

/// The first numbers of a vector, as text; `--json` prints them all.
pub fn preview(vector: &[f64]) -> String {
    let shown: Vec<String> = vector.iter().take(6).map(|x| format!("{x:.4}")).collect();
    let more = if vector.len() > shown.len() { ", …" } else { "" };
    format!("[{}{more}] ({})", shown.join(", "), counted(vector.len(), "number"))
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escaped("a\tb\nc\u{e9}"), "a\tb\ncé");
        assert_eq!(escaped("\u{1b}[2J\r\u{9b}"), "\\u{1b}[2J\\u{d}\\u{9b}");
    }
}
