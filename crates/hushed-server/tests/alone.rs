//! The server's binary, built alone, has no client code: the client's marker and its module's name are in no byte of it. (That a program
//! with the client does contain the marker is a test of `hushed-serve`.)
//!
//! Built alone, because cargo unites the features of everything that one command builds: `cargo test --workspace` makes a server with the
//! client's code in it, which nobody installs.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What `hushed-serve/src/client.rs` leaves in every program that links it.
const MARKER: &str = "hushed-serve client is here";

fn contains(bytes: &[u8], what: &str) -> bool {
    bytes.windows(what.len()).any(|w| w == what.as_bytes())
}

/// Builds what `cargo build -p hushed-server` builds, into the target folder of this test, where most of it lies already.
fn build() -> PathBuf {
    let here = Path::new(env!("CARGO_BIN_EXE_hushed-server"));
    let target = here.parent().and_then(Path::parent).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args([
            "build",
            "--locked",
            "--offline",
            "-p",
            "hushed-server",
            "--target-dir",
        ])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{message}");
    target.join("debug/hushed-server")
}

fn run(binary: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = Command::new(binary)
        .args(arguments)
        .env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .output()
        .unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn built_alone_it_serves_and_has_no_client_code() {
    let binary = build();
    let bytes = std::fs::read(&binary).unwrap();
    assert!(!contains(&bytes, MARKER));
    // Symbols and line tables name each module whose code is there.
    assert!(contains(&bytes, "hushed_serve6server"));
    assert!(!contains(&bytes, "hushed_serve6client"));

    assert_eq!(run(&binary, &["--help"]).0, Some(0));
    assert_eq!(run(&binary, &[]).0, Some(2));
    let (code, message) = run(&binary, &["/nonexistent/model"]);
    assert_eq!(code, Some(4), "{message}");
    let (code, message) = run(&binary, &["/nonexistent/model", "--listen", "0.0.0.0:0"]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("token file"), "{message}");
}
