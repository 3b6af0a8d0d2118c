//! A full disk: every `2pc` verb that writes says so, exits with 8, and leaves what was there.
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::common::{Server, command, embeddings, error, json_lines};
use hushed_model::testing::tiny_folder;
use serde_json::json;
use tempfile::TempDir;

/// Writes to it are refused: no space left.
const FULL: &str = "/dev/full";

fn tiny() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    tiny_folder(folder.path()).expect("a model");
    let dir = folder.path().to_string_lossy().into_owned();
    (folder, dir)
}

/// How the command ends if its results cannot be written.
fn nowhere(mut command: Command) -> Output {
    let full = File::options().write(true).open(FULL);
    command.stdout(full.expect("Linux has it")).stderr(Stdio::piped());
    command.output().expect("the binary starts")
}

fn assert_refused(output: &Output, name: &str) {
    assert_eq!(output.status.code(), Some(8), "{output:?}");
    let error = error(output);
    assert_eq!(error["name"], json!(name));
    assert_eq!(error["exit_code"], json!(8));
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains("No space left"), "{message}");
}

/// The old file is there, and no draft.
fn assert_untouched(path: &Path, before: &[u8], draft: &Path) {
    assert_eq!(fs::read(path).expect("the old file"), before);
    assert!(draft.symlink_metadata().is_err(), "the draft is gone");
}

#[test]
fn results_that_nobody_can_keep() {
    let (_folder, dir) = tiny();
    for args in [
        &["--help", "--json"][..],
        &["--version", "--json"],
        &["embed", "--help", "--json"],
        &["completions", "bash", "--json"],
        &["check", &dir, "--json"],
        &["plan", &dir, "--tokens", "4", "--json"],
        &["clear", &dir, "hello world", "--json"],
    ] {
        assert_refused(&nowhere(command(args)), "output");
    }
    let server = Server::start(&dir, &[]);
    assert_refused(&nowhere(server.embed(&["hello world"])), "output");
    // The server still serves the next client.
    let answer = server.embed(&["hello world"]).output();
    let answer = answer.expect("the binary starts");
    assert_eq!(answer.status.code(), Some(0), "{answer:?}");
    assert_eq!(embeddings(&json_lines(&answer.stdout)).len(), 1);
}

#[test]
fn a_calibration() {
    let (folder, dir) = tiny();
    let sample = folder.path().join("sample.txt");
    fs::write(&sample, "hello world\na private world\n").expect("a sample");
    let path = folder.path().join("calibration.json");
    fs::write(&path, "the old one").expect("a file");
    let draft = folder.path().join("calibration.json.new");
    symlink(FULL, &draft).expect("a link");
    let sample = sample.to_string_lossy();
    let output = command(&["calibrate", &dir, "--input", &sample, "--force", "--json"]).output();
    assert_refused(&output.expect("the binary starts"), "file-unwritable");
    assert_untouched(&path, b"the old one", &draft);
}

#[test]
fn a_bundle() {
    let (folder, dir) = tiny();
    let path = folder.path().join("model.bundle");
    fs::write(&path, "the old one").expect("a file");
    // The draft is named after the process id, which a shell passes on to the program.
    let script = "ln -s /dev/full \"$2.$$-0.tmp\" && echo $$ && exec \"$0\" bundle \"$1\" \"$2\" --force --json";
    let out = path.to_string_lossy();
    let output =
        Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_hushed"), &dir, &out]).output().expect("a shell");
    assert_refused(&output, "file");
    let process = String::from_utf8(output.stdout).expect("a number");
    let draft = PathBuf::from(format!("{out}.{}-0.tmp", process.trim()));
    assert_untouched(&path, b"the old one", &draft);
}
