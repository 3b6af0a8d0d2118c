//! The Python package: `cargo xtask python` builds a wheel in the dev profile and runs its tests, `cargo xtask wheel`
//! builds a release wheel.
//!
//! Both work offline with the files that `make setup` has fetched (scripts/fetch_python.sh): maturin, pytest, numpy and
//! clients of the gateway, pinned by hash. The virtual environment is in the target folder and is recreated when the
//! pins or the interpreter change. Without an interpreter or the files, the tests count as one skipped, with a line
//! that says why.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use crate::{Outcome, third_party};

const PINS: &str = "crates/hushed-python/tests/requirements.txt";
const FETCHED: &str = ".python/wheels";
const MANIFEST: &str = "crates/hushed-python/Cargo.toml";
const TESTS: &str = "crates/hushed-python/tests";
/// The licences of everything that the wheel links, where pyproject.toml expects them. Git ignores the file.
const THIRD_PARTY: &str = "crates/hushed-python/THIRD-PARTY.txt";

/// The counts that pytest reported.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Tested {
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
}

/// Builds the wheel, installs it and runs the tests.
pub fn test(root: &Path) -> Tested {
    let (home, python, wheel) = match dev_wheel(root) {
        Ok(built) => built,
        Err(Lack::Missing(why)) => {
            println!("skipped: the Python package: {why}");
            return Tested { skipped: 1, ..Tested::default() };
        }
        Err(Lack::Failed(why)) => return broken(&why),
    };
    let install = ["--no-index", "--no-deps", "--force-reinstall"];
    let mut install = pip(&python, &install);
    if let Err(why) = succeed(install.arg(&wheel), "installing the wheel") {
        return broken(&why);
    }
    run(root, &python, &home)
}

/// Builds the wheel that the tests use, in the target folder.
pub fn wheel(root: &Path) -> Outcome {
    let (_, _, wheel) = dev_wheel(root).map_err(|lack| vec![lack.why()])?;
    Ok(wheel.display().to_string())
}

/// The folder of the package's builds, the interpreter of its environment, and the wheel.
fn dev_wheel(root: &Path) -> Result<(PathBuf, PathBuf, PathBuf), Lack> {
    let home = target(root).join("python");
    let python = environment(root, &home)?;
    let wheel = build(root, &python, &home.join("dist"), &TESTED).map_err(Lack::Failed)?;
    Ok((home, python, wheel))
}

/// Builds the release wheel and the source archive, in `dist/`.
pub fn release(root: &Path) -> Outcome {
    let home = target(root).join("python");
    let python = environment(root, &home).map_err(|lack| vec![lack.why()])?;
    let dist = root.join("dist");
    let wheel = build(root, &python, &dist, &["--profile", "dist"]).map_err(|why| vec![why])?;
    let archive = sources(root, &python, &dist).map_err(|why| vec![why])?;
    Ok(format!("{}\n{}", wheel.display(), archive.display()))
}

/// Builds the source archive, from which pip builds the package where no wheel fits, and replaces an old one.
fn sources(root: &Path, python: &Path, dist: &Path) -> Result<PathBuf, String> {
    for old in files(dist, "gz") {
        fs::remove_file(&old).map_err(|error| format!("{}: {error}", old.display()))?;
    }
    let mut maturin = Command::new(python);
    maturin
        .args(["-m", "maturin", "sdist", "--manifest-path"])
        .arg(root.join(MANIFEST))
        .arg("--out")
        .arg(dist)
        .current_dir(root);
    succeed(&mut maturin, "maturin sdist")?;
    let archive = files(dist, "gz").pop();
    archive.ok_or_else(|| format!("maturin left no archive in {}", dist.display()))
}

/// Why there is no environment.
enum Lack {
    /// This machine lacks a prerequisite.
    Missing(String),
    /// The prerequisites are there, but something went wrong.
    Failed(String),
}

impl Lack {
    fn why(self) -> String {
        match self {
            Self::Missing(why) | Self::Failed(why) => why,
        }
    }
}

/// The interpreter of the virtual environment, which is created if it is missing or was made for other pins.
fn environment(root: &Path, home: &Path) -> Result<PathBuf, Lack> {
    let version = Command::new("python3").args(["-c", VERSION]).output();
    let version = match version {
        Ok(output) if output.status.success() => output.stdout,
        Ok(_) => return Err(Lack::Missing("python3 is older than 3.9".to_owned())),
        Err(error) => return Err(Lack::Missing(format!("python3 did not start: {error}"))),
    };
    let version = String::from_utf8_lossy(&version).into_owned();
    let fetched = root.join(FETCHED);
    let pins = fs::read_to_string(root.join(PINS)).unwrap_or_default();
    let mark = format!("{version}{pins}");
    if !fs::read_to_string(fetched.join("complete")).is_ok_and(|m| m == mark) {
        let why = format!("{FETCHED} lacks the pinned files for this python3: run `make setup` with a network");
        return Err(Lack::Missing(why));
    }
    let venv = home.join("venv");
    let python = venv.join("bin/python");
    let made = venv.join("made");
    if python.exists() && fs::read_to_string(&made).is_ok_and(|m| m == mark) {
        return Ok(python);
    }
    let failed = Lack::Failed;
    let _ = fs::remove_dir_all(&venv); // none, the first time
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(&venv);
    succeed(&mut make, "python3 -m venv (on Debian: apt-get install python3-venv)").map_err(failed)?;
    let install = ["--no-index", "--require-hashes", "--only-binary", ":all:"];
    let mut install = pip(&python, &install);
    install.arg("--find-links").arg(&fetched).arg("-r").arg(root.join(PINS));
    succeed(&mut install, "pip install of the pinned files").map_err(failed)?;
    fs::write(&made, mark).map_err(|error| failed(format!("{}: {error}", made.display())))?;
    Ok(python)
}

/// Prints the version, in the form that scripts/fetch_python.sh writes down.
const VERSION: &str =
    "import sys, platform; assert sys.version_info >= (3, 9); print(platform.python_version(), platform.machine())";

/// As the tests of the workspace are built, so that almost all of it is compiled already.
const TESTED: [&str; 4] = ["--profile", "dev", "--features", "tested"];

/// Builds the wheel into a folder, replacing those that are there; returns its path.
fn build(root: &Path, python: &Path, dist: &Path, how: &[&str]) -> Result<PathBuf, String> {
    for old in files(dist, "whl") {
        fs::remove_file(&old).map_err(|error| format!("{}: {error}", old.display()))?;
    }
    third_party::write(root, "hushed-python", &root.join(THIRD_PARTY))?;
    let mut maturin = Command::new(python);
    maturin
        .args(["-m", "maturin", "build", "--quiet", "--offline"])
        .args(how)
        .arg("--manifest-path")
        .arg(root.join(MANIFEST))
        .arg("--interpreter")
        .arg(python)
        .arg("--out")
        .arg(dist)
        .env("CARGO_TARGET_DIR", target(root))
        .current_dir(root);
    succeed(&mut maturin, "maturin build")?;
    let wheel = files(dist, "whl").pop();
    wheel.ok_or_else(|| format!("maturin left no wheel in {}", dist.display()))
}

/// The files in a folder with this extension; none if the folder does not exist.
fn files(dist: &Path, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dist).into_iter().flatten();
    let files = entries.filter_map(Result::ok).map(|entry| entry.path());
    files.filter(|path| path.extension().is_some_and(|its| its == end)).collect()
}

/// Runs pytest without the user's settings and shows what it prints.
fn run(root: &Path, python: &Path, home: &Path) -> Tested {
    let mut pytest = Command::new(python);
    pytest
        .args(["-m", "pytest", "-q", "-rs", "--color=no", "-p", "no:cacheprovider"])
        .arg(root.join(TESTS))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("XDG_CACHE_HOME", home.join("cache"))
        .env("XDG_STATE_HOME", home.join("state"))
        .current_dir(root)
        .stdout(Stdio::piped());
    let settings = env::vars().map(|(name, _)| name);
    for name in settings.filter(|n| n.starts_with("HUSHED_") && !n.starts_with("HUSHED_DENY_")) {
        pytest.env_remove(name);
    }
    let output = match pytest.spawn().and_then(std::process::Child::wait_with_output) {
        Ok(output) => output,
        Err(error) => return broken(&format!("pytest did not start: {error}")),
    };
    let text = String::from_utf8_lossy(&output.stdout);
    print!("{text}");
    let mut tested = text.lines().last().map(counted).unwrap_or_default();
    if !output.status.success() && tested.failed == 0 {
        println!("pytest ended with {}", output.status);
        tested.failed = 1;
    }
    if output.status.success() && tested.passed == 0 {
        println!("pytest ran no test");
        tested.failed = 1;
    }
    tested
}

/// The numbers of `3 failed, 12 passed, 1 skipped in 4.20s`.
fn counted(line: &str) -> Tested {
    let counts = line.split(" in ").next().unwrap_or_default();
    let mut tested = Tested::default();
    for part in counts.trim_matches(['=', ' ']).split(", ") {
        let Some((number, word)) = part.split_once(' ') else {
            continue;
        };
        let number: usize = number.parse().unwrap_or(0);
        match word {
            "passed" => tested.passed += number,
            "failed" | "error" | "errors" => tested.failed += number,
            "skipped" => tested.skipped += number,
            _ => {}
        }
    }
    tested
}

/// One failure, for an error before any test could be counted.
fn broken(why: &str) -> Tested {
    println!("the Python package: {why}");
    Tested { failed: 1, ..Tested::default() }
}

fn pip(python: &Path, arguments: &[&str]) -> Command {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    pip.args(arguments);
    // Use neither an index nor a folder of the user's.
    pip.env_remove("PIP_FIND_LINKS").env_remove("PIP_INDEX_URL");
    pip
}

/// Runs a command with its output shown.
fn succeed(command: &mut Command, what: &str) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{what} ended with {status}")),
        Err(error) => Err(format!("{what} did not start: {error}")),
    }
}

/// Cargo's target folder.
fn target(root: &Path) -> PathBuf {
    let set = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    set.map_or_else(|| root.join("target"), |folder| root.join(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_pytest() {
        let of = |passed, failed, skipped| Tested { passed, failed, skipped };
        assert_eq!(counted("12 passed in 4.20s"), of(12, 0, 0));
        assert_eq!(counted("3 failed, 12 passed, 1 skipped in 4.20s"), of(12, 3, 1));
        assert_eq!(counted("= 1 passed, 2 errors, 5 warnings in 1.00s ="), of(1, 2, 0));
        assert_eq!(counted("no tests ran in 0.01s"), of(0, 0, 0));
    }
}
