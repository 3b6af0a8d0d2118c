//! Checks of the repository itself: `cargo xtask check [--fast]`, `cargo xtask secrets [--watch]`,
//! `cargo xtask python`, `cargo xtask python-wheel`, `cargo xtask wheel`,
//! `cargo xtask third-party`, `cargo xtask measured` and `cargo xtask test`.
//!
//! `check` runs what continuous integration runs, cheapest first, prints one line per check, and goes on after a
//! failure so that one run shows everything. `--fast` leaves out clippy, the only check that compiles. `secrets` checks
//! in an optimised build whether secrets influence timing or jumps, with `--watch` in the released one and under
//! valgrind too. `python` builds the Python package and runs its tests, `python-wheel` only builds it, and `wheel`
//! builds it for a release, in `dist/`. `third-party` writes the licences of everything that a package links.
//! `measured` prints the tables of the documents from the rows in `docs/measured/`. `test` runs `check` and `secrets`,
//! then every test of the workspace and of the Python package, and ends with one line `N passed, N failed, N skipped`.

#![forbid(unsafe_code)]

mod arrows;
mod house;
mod imports;
mod licences;
mod measured;
mod metadata;
mod numbers;
mod python;
mod rules;
mod secrets;
mod shell;
mod source;
mod suite;
mod third_party;
mod width;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The result of a check: a one-line summary, or the list of problems.
pub type Outcome = Result<String, Vec<String>>;

const USAGE: &str = "usage: cargo xtask check [--fast] | cargo xtask secrets [--watch] | cargo xtask python | cargo xtask python-wheel | cargo xtask wheel | cargo xtask third-party PACKAGE FILE | cargo xtask measured | cargo xtask test [cargo test arguments]";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let root = repository_root();
    let passed = match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["check"] => check(&root, false),
        ["check", "--fast"] => check(&root, true),
        ["secrets"] => secrets(&root, false),
        ["secrets", "--watch"] => secrets(&root, true),
        ["python"] => python::test(&root).failed == 0,
        ["python-wheel"] => told("wheel", python::wheel(&root)),
        ["wheel"] => told("wheel", python::release(&root)),
        ["third-party", package, file] => {
            let written = third_party::write(&root, package, Path::new(file));
            told("third-party", written.map_err(|problem| vec![problem]))
        }
        ["measured"] => told("measured", measured::write(&root)),
        ["test", rest @ ..] => {
            let checked = check(&root, false);
            let kept = secrets(&root, false);
            suite::run(&root, checked && kept, rest)
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn repository_root() -> PathBuf {
    // xtask/ lies directly under the root; cargo sets this variable for `cargo run`.
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map(Path::to_path_buf).unwrap_or(here)
}

/// Runs the checks in order of cost; true if all of them pass.
fn check(root: &Path, fast: bool) -> bool {
    let tree = source::Tree::read(root);
    let graph = metadata::Graph::load(root);
    let mut all = true;
    let mut report = |name: &str, outcome: Outcome| all &= told(name, outcome);

    report("fmt", formatted(root));
    match &tree {
        Ok(tree) => {
            report("file sizes", rules::file_sizes(tree));
            report("unsafe code", rules::unsafe_code(tree));
            report("test modules", rules::test_modules(tree));
            report("documentation", rules::documentation(tree));
            report("columns", width::columns(tree));
            report("unfinished words", rules::unfinished_words(tree));
            report("hostile bytes", rules::hostile_bytes(tree));
            report("architectures", rules::architectures(tree));
            report("order of files", house::order(tree));
            report("shell blocks", shell::blocks(tree, root));
            report("messages in words", shell::words(tree));
            report("message kinds", rules::message_kinds(tree));
            report("shared numbers", numbers::shared(tree));
            report("measured tables", measured::check(tree, root));
        }
        Err(error) => report("sources", Err(vec![error.to_string()])),
    }
    match &graph {
        Ok(graph) => {
            report("import arrows", arrows::check(graph));
            report("release features", arrows::release_features(root));
            report("licences, sources", licences::check(root, graph));
        }
        Err(problem) => report("cargo metadata", Err(vec![problem.clone()])),
    }
    if !fast {
        let clippy = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
        report("clippy", command(root, &clippy, "no warning in any target"));
    }
    all
}

/// Checks whether secrets influence timing, branches or addresses in an optimised build; `watch` takes the released one
/// and runs valgrind too, which takes minutes.
fn secrets(root: &Path, watch: bool) -> bool {
    let outcomes = secrets::check(root, watch).into_iter();
    outcomes.fold(true, |all, (name, outcome)| told(name, outcome) && all)
}

/// Prints the line of a check, with any problems below it; true if there are none.
fn told(name: &str, outcome: Outcome) -> bool {
    match outcome {
        Ok(summary) => {
            println!("ok    {name:<18} {summary}");
            true
        }
        Err(problems) => {
            println!("FAIL  {name:<18} {} problem(s)", problems.len());
            for problem in problems {
                println!("      {problem}");
            }
            false
        }
    }
}

/// Lists the files that rustfmt would change, without the changes.
fn formatted(root: &Path) -> Outcome {
    let output = Command::new(cargo())
        .args(["fmt", "--all", "--check", "--", "-l"])
        .current_dir(root)
        .output()
        .map_err(|error| vec![format!("cargo fmt did not start: {error}")])?;
    if output.status.success() {
        return Ok("every file is formatted".to_owned());
    }
    let text = [output.stdout, output.stderr].concat();
    let lines = String::from_utf8_lossy(&text).lines().map(str::to_owned).collect();
    Err(lines)
}

/// Runs cargo with its output shown and turns its exit status into an outcome.
fn command(root: &Path, args: &[&str], summary: &str) -> Outcome {
    match Command::new(cargo()).args(args).current_dir(root).status() {
        Ok(status) if status.success() => Ok(summary.to_owned()),
        Ok(status) => Err(vec![format!("cargo {} ended with {status}", args.join(" "))]),
        Err(error) => Err(vec![format!("cargo {} did not start: {error}", args.join(" "))]),
    }
}

/// The cargo that runs this program, so that the pinned toolchain stays in force.
pub fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}
