//! Shell blocks of the documents, each of which runs or says why not; and messages, which are in words.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Outcome;
use crate::source::{Tree, code_only};

/// Documents whose blocks the tests of the Python package run (`test_documents.py`).
const RUN_ELSEWHERE: [&str; 2] = ["README.md", "docs/quickstart.md"];
const RUN: &str = "<!-- run -->";
const NOT_RUN: &str = "<!-- not run: ";
/// What a command of a document begins with.
const PROGRAMS: [&str; 38] = [
    "hushed",
    "hushed-server",
    "make",
    "cargo",
    "curl",
    "python",
    "python3",
    "pip",
    "openssl",
    "git",
    "cd",
    "export",
    "source",
    "scripts/",
    "examples/",
    "sudo",
    "systemctl",
    "kubectl",
    "podman",
    "docker",
    "cat",
    "echo",
    "printf",
    "head",
    "chmod",
    "taskset",
    "done",
    ".venv/",
    "benches/",
    "DIR/",
    "umask",
    "install",
    "sha256sum",
    "for",
    "cp",
    "mkdir",
    "./",
    "target/",
];

/// A shell block.
struct Block<'a> {
    path: &'a str,
    line: usize,
    text: String,
    /// The last line before it that is not empty.
    before: String,
}

/// Checks that each shell block is marked as run or not, that its lines begin with programs, and that a backslash ends
/// a line; runs those that are marked so in an empty folder each, if their programs are there.
pub fn blocks(tree: &Tree, root: &Path) -> Outcome {
    let mut problems = Vec::new();
    let (mut run, mut skipped, mut all) = (0, 0, 0);
    for block in found(tree) {
        all += 1;
        let at = format!("{}:{}", block.path, block.line);
        let elsewhere = RUN_ELSEWHERE.contains(&block.path);
        let marked = block.before == RUN;
        if !elsewhere && !marked && !block.before.starts_with(NOT_RUN) {
            problems.push(format!("{at}: write `{RUN}` or `{NOT_RUN}why -->` before this block"));
        }
        problems.extend(faults(&block.text).into_iter().map(|fault| format!("{at}: {fault}")));
        if marked {
            match try_it(&block.text, root) {
                Ok(true) => run += 1,
                Ok(false) => skipped += 1,
                Err(why) => problems.push(format!("{at}: {why}")),
            }
        }
    }
    match problems.is_empty() {
        true => Ok(format!("{all} blocks, {run} run here, {skipped} whose programs are missing")),
        false => Err(problems),
    }
}

fn found(tree: &Tree) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with(".md")) {
        let (mut before, mut block): (&str, Option<Block<'_>>) = ("", None);
        for (line, number) in file.text.lines().zip(1..) {
            let text = line.trim();
            match &mut block {
                None if text == "```sh" || text == "```bash" => {
                    block = Some(Block { path: &file.path, line: number, text: String::new(), before: before.into() });
                }
                None if !text.is_empty() => before = text,
                None => {}
                Some(_) if text == "```" => {
                    blocks.extend(block.take());
                    before = "";
                }
                Some(block) => {
                    block.text.push_str(line.trim_start());
                    block.text.push('\n');
                }
            }
        }
    }
    blocks
}

/// What is wrong with the lines of a block.
fn faults(text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    // Inside quotes or after a backslash a line goes on.
    let mut open = false;
    for line in text.lines() {
        if line.contains("\\ ") && !line.contains("'") {
            faults.push(format!("a backslash in the middle of a line: {line}"));
        }
        let begins = !open && !line.is_empty() && !line.starts_with('#');
        if begins && !line.trim_start_matches('(').split_whitespace().find(|w| !is_variable(w)).is_none_or(is_program) {
            faults.push(format!("no program begins this line: {line}"));
        }
        let quotes = line.matches(['\'', '"']).count();
        open = line.ends_with('\\') || (open && quotes == 0 && !line.is_empty()) || quotes % 2 == 1;
        if !line.ends_with('\\') && quotes % 2 == 0 {
            open = false;
        }
    }
    faults
}

/// Whether a word is `NAME=value`.
fn is_variable(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'))
}

fn is_program(word: &str) -> bool {
    PROGRAMS.iter().any(|known| word == *known || known.ends_with('/') && word.starts_with(known))
}

/// Runs a block; `false` if one of its programs is missing.
fn try_it(text: &str, root: &Path) -> Result<bool, String> {
    let first = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let there = |program: &String| {
        let asked = Command::new("sh").args(["-c", "command -v \"$0\"", program]).stdout(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    if !text.lines().filter_map(first).filter(|word| is_program(word)).all(|program| there(&program)) {
        return Ok(false);
    }
    let folder = root.join("target").join("document-blocks");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let ran = Command::new("sh").args(["-eu", "-c", text]).current_dir(&folder).output();
    let ran = ran.map_err(|error| error.to_string())?;
    match ran.status.success() {
        true => Ok(true),
        false => Err(format!("it fails: {}", String::from_utf8_lossy(&ran.stderr).trim())),
    }
}

/// Names that fields and variables with an error of another library have.
const ERRORS: [&str; 9] = ["error", "reason", "source", "alert", "kind", "fault", "cause", "err", "e"];

/// Checks that no message prints an error as Rust's `Debug` does: its names are a library's, not a user's words.
pub fn words(tree: &Tree) -> Outcome {
    let mut problems = Vec::new();
    let mut files = 0;
    for file in tree.rust().filter(|file| file.path.starts_with("crates/") && file.path.contains("/src/")) {
        let tests = ["/testing", "/tests/", "tests.rs"].iter().any(|part| file.path.contains(part));
        if tests || file.path.starts_with("crates/hushed-bench/") {
            continue;
        }
        files += 1;
        // Tests come last in a file, and their messages are for us.
        let end = code_only(&file.text).lines().position(|line| line.trim() == "mod tests {").unwrap_or(usize::MAX);
        for (line, number) in file.text.lines().take(end).zip(1..) {
            for name in ERRORS.iter().filter(|name| line.contains(&format!("{{{name}:?}}"))) {
                problems.push(format!("{}:{number}: `{{{name}:?}}` in a message: say it in words", file.path));
            }
        }
    }
    match problems.is_empty() {
        true => Ok(format!("{files} files")),
        false => Err(problems),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_broken_by_a_reflow_is_found() {
        let broken = "openssl req -x509 \\ -subj\n/CN=a.example\n";
        assert_eq!(faults(broken).len(), 2);
        for fine in [
            "openssl req -x509 \\\n-subj /CN=a.example\n",
            "A=1 hushed serve DIR && make test   # a comment\n\n# only a comment\n",
            "curl http://a -d '{\"a\": 1,\n\"b\": 2}'\nscripts/fetch_model.sh\n",
        ] {
            assert!(faults(fine).is_empty(), "{:?}", faults(fine));
        }
    }

    #[test]
    fn blocks_are_marked_and_those_that_run_are_run() {
        let root = tempfile::tempdir().unwrap();
        let of = |text: &str| blocks(&Tree::of(&[("docs/a.md", text)]), root.path());
        assert!(of("```sh\necho a\n```\n").is_err());
        assert!(of("<!-- not run: a server -->\n\n```sh\necho a\n```\n").is_ok());
        assert!(of("* a\n  <!-- run -->\n  ```sh\n  echo a\n  ```\n").is_ok());
        assert!(of("<!-- run -->\n```sh\ncat nothing-there\n```\n").is_err());
    }

    #[test]
    fn errors_in_messages_are_in_words() {
        let of = |text: &str| words(&Tree::of(&[("crates/a/src/lib.rs", text)]));
        assert!(of("#[error(\"refused: {reason:?}\")]\n").is_err());
        assert!(of("#[error(\"refused: {path:?}: {reason}\")]\n").is_ok());
        assert!(of("fn a() {}\n#[cfg(test)]\nmod tests {\n    panic!(\"{error:?}\");\n}\n").is_ok());
    }
}
