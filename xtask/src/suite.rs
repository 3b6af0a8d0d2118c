//! Every test of the workspace and of the Python package, summed up in one line.
//!
//! A test that cannot run here (a kernel that this processor lacks, a model that was not fetched) prints `skipped: why`
//! and returns. The harness counts it as passed; the summary moves it to `skipped`. `--show-output` makes the harness
//! print what passing tests wrote after each binary's run. Those blocks are parsed here and not shown, except for the
//! reasons of skipped tests.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::python;

/// Totals over all test binaries.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sum {
    passed: usize,
    failed: usize,
    skipped: usize,
    ignored: usize,
}

/// Runs `cargo test --workspace` with `extra` arguments; true if everything passed, `checked` included.
pub fn run(root: &Path, checked: bool, extra: &[&str]) -> bool {
    // All targets but the examples, which tests include and clippy has compiled. Doc tests would cost a pass over every
    // crate, and there are none (`rules::documentation`). The Python package has no target here and is not excluded:
    // its features are united with the others', so that its own build links what this one compiles. Arguments may
    // select otherwise.
    let selected: &[&str] = if extra.is_empty() { &["--tests"] } else { &[] };
    let child = Command::new(crate::cargo())
        .args(["test", "--workspace", "--locked", "--no-fail-fast"])
        .args(selected)
        .args(extra)
        .args(["--", "--show-output"])
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            println!("cargo test did not start: {error}");
            return summary(&Sum::default(), checked, false);
        }
    };
    let mut reader = Reader::default();
    if let Some(out) = child.stdout.take() {
        for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            if let Some(shown) = reader.line(&line) {
                println!("{shown}");
            }
        }
    }
    let ended_well = child.wait().is_ok_and(|status| status.success());
    let mut sum = reader.sum();
    if extra.is_empty() {
        let tested = python::test(root);
        sum.passed += tested.passed;
        sum.skipped += tested.skipped;
        // Counted here, before failures of the Python package: a cargo failure that names no test.
        let broken = usize::from(!ended_well && sum.failed == 0);
        sum.failed += tested.failed + broken;
    }
    summary(&sum, checked, ended_well)
}

/// Prints the closing line. A failed check, or a run that broke without naming a test (a crash, a compile error),
/// counts as one failure each, so the line never says `0 failed` for a red run.
fn summary(sum: &Sum, checked: bool, ended_well: bool) -> bool {
    let broken = usize::from(!ended_well && sum.failed == 0);
    let unchecked = usize::from(!checked);
    if unchecked == 1 {
        println!("cargo xtask check failed: see the top of this output");
    }
    if broken == 1 {
        println!("cargo test ended with an error: a crash or a compile error, see above");
    }
    let failed = sum.failed + broken + unchecked;
    println!("{} passed, {failed} failed, {} skipped", sum.passed, sum.skipped + sum.ignored);
    failed == 0
}

/// Follows the harness's output line by line.
#[derive(Default)]
struct Reader {
    totals: Sum,
    /// Inside the part that shows the output of passing tests.
    successes: bool,
    /// The test of this block has already been counted as skipped.
    counted: bool,
}

impl Reader {
    /// Takes one line and returns what to show of it.
    fn line(&mut self, line: &str) -> Option<String> {
        if let Some(result) = line.strip_prefix("test result: ") {
            self.successes = false;
            self.totals.passed += count(result, "passed");
            self.totals.failed += count(result, "failed");
            self.totals.ignored += count(result, "ignored");
            return Some(line.to_owned());
        }
        match line {
            "successes:" => self.successes = true,
            // The failures follow the successes and are shown in full.
            "failures:" => self.successes = false,
            _ if line.starts_with("running ") && line.contains(" test") => self.successes = false,
            _ => {}
        }
        if !self.successes {
            return Some(line.to_owned());
        }
        if line.starts_with("---- ") && line.ends_with(" ----") {
            self.counted = false;
        } else if line.trim_start().starts_with("skipped: ") {
            self.totals.skipped += usize::from(!self.counted);
            self.counted = true;
            return Some(line.to_owned());
        }
        None
    }

    fn sum(self) -> Sum {
        let Sum { passed, failed, skipped, ignored } = self.totals;
        Sum { passed: passed.saturating_sub(skipped), failed, skipped, ignored }
    }
}

/// The number before `word` in `ok. 12 passed; 0 failed; 1 ignored; …`.
fn count(result: &str, word: &str) -> usize {
    let parts = result.split([';', '.']).map(str::trim);
    parts.filter_map(|part| part.strip_suffix(word)).find_map(|n| n.trim().parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Sum, String) {
        let mut reader = Reader::default();
        let shown: Vec<String> = text.lines().filter_map(|l| reader.line(l)).collect();
        (reader.sum(), shown.join("\n"))
    }

    #[test]
    fn results_of_several_binaries_are_added() {
        let one = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        let two = "test result: FAILED. 2 passed; 5 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n";
        let (sum, _) = read(&format!("{one}{two}"));
        assert_eq!(sum, Sum { passed: 5, failed: 5, skipped: 0, ignored: 1 });
    }

    #[test]
    fn skipped_tests_are_not_called_passed() {
        let text = "running 3 tests\ntest a ... ok\n\nsuccesses:\n\n---- a stdout ----\nskipped: no ifma\nskipped: really\n\
                    ---- b stdout ----\nnoise\n\n\nsuccesses:\n    a\n    b\n\n\
                    test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        let (sum, shown) = read(text);
        assert_eq!(sum, Sum { passed: 2, failed: 0, skipped: 1, ignored: 0 });
        assert!(shown.contains("skipped: no ifma") && !shown.contains("noise"));
    }

    #[test]
    fn failures_are_shown_whole() {
        let text = "successes:\n---- a stdout ----\nquiet\nfailures:\n---- b stdout ----\nloud\nfailures:\n    b\n";
        let (_, shown) = read(text);
        assert!(shown.contains("loud") && !shown.contains("quiet"));
    }

    #[test]
    fn a_red_run_never_says_none_failed() {
        assert!(!summary(&Sum::default(), true, false));
        assert!(!summary(&Sum::default(), false, true));
        assert!(summary(&Sum { passed: 1, failed: 0, skipped: 0, ignored: 0 }, true, true));
    }
}
