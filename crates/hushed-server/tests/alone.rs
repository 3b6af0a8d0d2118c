//! The server's binary, built alone, has no client code: the client's marker and its module's name are in no byte of it. (That a program
//! with the client does contain the marker is a test of `hushed-serve`.)
//!
//! Built alone, because cargo unites the features of everything that one command builds: `cargo test --workspace` makes a server with the
//! client's code in it, which nobody installs.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use hushed_model::testing::tiny_folder;
use hushed_serve::{Client, ClientConfig, ServerTrust, TooLong};

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
    serves(&binary);
}

/// Starts it as an operator would, asks it one text, and ends it by SIGTERM.
fn serves(binary: &Path) {
    let folder = tempfile::tempdir().unwrap();
    tiny_folder(folder.path()).unwrap();
    let mut server = Command::new(binary)
        .arg(folder.path())
        .args(["--listen", "127.0.0.1:0", "--cert-dir"])
        .arg(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut last_word = || {
        let line = lines.next().unwrap().unwrap();
        line.rsplit(' ').next().unwrap().to_owned()
    };
    let (address, pin, bundle) = (last_word(), last_word(), last_word());
    let config = ClientConfig::new(address, ServerTrust::Pin(pin));
    let mut client = Client::connect(&config).unwrap();
    assert_eq!(client.bundle_hash().to_string(), bundle);
    let answers = client.embed(&["hello"], TooLong::Refuse, None).unwrap();
    assert_eq!(answers[0].values.len(), 32);
    client.close().unwrap();
    let killed = Command::new("kill").arg(server.id().to_string()).status();
    assert!(killed.unwrap().success());
    assert_eq!(server.wait().unwrap().code(), Some(0));
}
