//! The server's binary serves, says what is wrong, and built alone has no client code: neither the client's marker nor
//! the name of its module occurs in it. (A test of `hushed-serve` checks that a program with the client does contain
//! the marker.)
//!
//! Built alone, because cargo unites the features of everything that one command builds: `cargo test --workspace`
//! builds a server with the client's code in it, which nobody installs. That second build takes minutes, so it belongs
//! to the long tests; `cargo xtask check` asks cargo that the feature which holds the client's code is off.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

use hushed_model::testing::{long, tiny_folder};
use hushed_serve::{Client, ClientConfig, ServerTrust, TooLong};

/// What `hushed-serve/src/twopc/client.rs` and `…/fhe/client/texts.rs` leave in every program that links them.
const MARKERS: [&str; 2] = ["hushed-serve client is here", "hushed-serve fhe owner here"];

fn contains(bytes: &[u8], what: &str) -> bool {
    bytes.windows(what.len()).any(|w| w == what.as_bytes())
}

/// The symbol names of an ELF file: its section `.strtab`.
fn symbol_names(elf: &[u8]) -> &[u8] {
    let word = |at: usize, bytes: usize| -> usize {
        let part = elf[at..at + bytes].iter().rev();
        part.fold(0, |word, &byte| word << 8 | usize::from(byte))
    };
    assert_eq!(&elf[..5], b"\x7fELF\x02", "a 64-bit ELF file");
    // Offset of the section headers, their size, their number, and the section that holds their names.
    let (headers, size, count) = (word(0x28, 8), word(0x3a, 2), word(0x3c, 2));
    let section = |i: usize| {
        let at = headers + i * size;
        (word(at, 4), word(at + 0x18, 8), word(at + 0x20, 8))
    };
    let (_, names, _) = section(word(0x3e, 2));
    let found = (0..count).map(section).find(|(name, ..)| {
        let name = &elf[names + name..];
        name.starts_with(b".strtab\0")
    });
    let (_, start, length) = found.unwrap();
    &elf[start..start + length]
}

/// Builds what `cargo build -p hushed-server` builds, into the target folder of this test, which already holds most of
/// the foreign crates. Our crates are compiled again, because their features differ.
fn build() -> PathBuf {
    let here = Path::new(env!("CARGO_BIN_EXE_hushed-server"));
    let target = here.parent().and_then(Path::parent).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--locked", "--offline", "-p", "hushed-server"]);
    command.args(["--config", "profile.dev.incremental=false"]);
    let built = command.arg("--target-dir").arg(target).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let message = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{message}");
    target.join("debug/hushed-server")
}

/// The second build replaces the file that the first one left.
static ONE: Mutex<()> = Mutex::new(());

fn run(binary: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } =
        Command::new(binary).args(arguments).env("XDG_STATE_HOME", env!("CARGO_TARGET_TMPDIR")).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn built_alone_it_serves_and_has_no_client_code() {
    if !long() {
        println!("skipped: it builds the server once more; `make test-long` does");
        return;
    }
    let _one = ONE.lock().unwrap();
    let binary = build();
    let bytes = std::fs::read(&binary).unwrap();
    for marker in MARKERS {
        assert!(!contains(&bytes, marker), "{marker}");
    }
    // Symbols and line tables name each module whose code is present.
    for there in ["hushed_serve5twopc6server", "hushed_serve3fhe3run", "hushed_serve3fhe6server", "hushed_fhe3run3job"]
    {
        assert!(contains(&bytes, there), "{there}");
    }
    for not in [
        "hushed_serve5twopc6client",
        "hushed_serve7session7connect",
        "hushed_serve3fhe6client",
        "hushed_fhe3run6client",
        "hushed_fhe5files5owner",
        "hushed_fhe5files6secret",
    ] {
        assert!(!contains(&bytes, not), "{not}");
    }
    // Nothing decrypts a ciphertext of a run: the engine's decryption is compiled but not linked.
    let symbols = symbol_names(&bytes);
    assert!(contains(symbols, "hushed_ckks"));
    assert!(!contains(symbols, "9Decryptor"));
    exits(&binary);
    serves(&binary);
}

#[test]
fn it_serves_and_says_what_is_wrong() {
    let _one = ONE.lock().unwrap();
    let binary = Path::new(env!("CARGO_BIN_EXE_hushed-server"));
    exits(binary);
    serves(binary);
}

/// Its status, and what it says, for wrong arguments and missing files.
fn exits(binary: &Path) {
    assert_eq!(run(binary, &["--help"]).0, Some(0));
    assert_eq!(run(binary, &[]).0, Some(2));
    let (code, message) = run(binary, &["/nonexistent/model"]);
    assert_eq!(code, Some(4), "{message}");
    assert_eq!(run(binary, &["run", "--help"]).0, Some(0));
    assert_eq!(run(binary, &["run", "/nonexistent/model"]).0, Some(2));
    let files = ["--plan", "/nonexistent/plan", "--keys", "k", "--request", "r", "--out", "o"];
    let (code, message) = run(binary, &[&["run", "/nonexistent/model"], &files[..]].concat());
    assert_eq!(code, Some(8), "{message}");
    assert_eq!(run(binary, &["work", "--help"]).0, Some(0));
    assert_eq!(run(binary, &["work", "/nonexistent/model", "--manifest", "m"]).0, Some(2));
    let files = ["--manifest", "/nonexistent/manifest", "--store", "s"];
    let (code, message) = run(binary, &[&["work", "/nonexistent/model"], &files[..]].concat());
    assert_eq!(code, Some(8), "{message}");
    let fhe = ["/nonexistent/model", "--protocol", "fhe"];
    let (code, message) = run(binary, &fhe);
    assert_eq!(code, Some(2), "{message}");
    for flag in ["--manifest", "--public", "--store"] {
        assert!(message.contains(flag), "{message}");
    }
    let files = ["--plan", "/nonexistent/plan", "--public", "p", "--store", "s"];
    let (code, message) = run(binary, &[&fhe[..], &files].concat());
    assert_eq!(code, Some(8), "{message}");
    let (code, message) = run(binary, &["/nonexistent/model", "--listen", "0.0.0.0:0"]);
    assert_eq!(code, Some(2), "{message}");
    assert!(message.contains("token file"), "{message}");
    // Errors are objects under --json, those of the arguments too.
    for (args, code) in [
        (&["--json"][..], 2),
        (&["/nonexistent/model", "--no-such-option", "--json"], 2),
        (&["/nonexistent/model", "--listen", ":80000", "--json"], 2),
        (&["/nonexistent/model", "--json"], 4),
    ] {
        let (status, message) = run(binary, args);
        let object = message.lines().last().unwrap_or_default();
        assert_eq!(status, Some(code), "{message}");
        assert!(object.starts_with(&format!("{{\"error\":{{\"exit_code\":{code},\"message\":")), "{message}");
        assert!(object.contains("\"name\":"), "{message}");
    }
}

#[test]
fn the_flags_of_deployed_workers_exist() {
    let deployed = include_str!("../../../deploy/k8s/encrypted.yaml");
    let (_, worker) = deployed.split_once("- work\n").unwrap();
    let (worker, _) = worker.split_once("resources:").unwrap();
    let flags = worker.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split('=').next());
    let flags: Vec<&str> = flags.filter(|flag| flag.starts_with("--")).collect();
    assert!(flags.len() >= 4, "{flags:?}");
    let help = Command::new(env!("CARGO_BIN_EXE_hushed-server")).args(["work", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    for flag in flags {
        assert!(help.contains(&format!("{flag} ")) || help.contains(&format!("{flag}\n")), "{flag}");
    }
}

/// Starts the server as an operator would, sends it one text, and ends it with SIGTERM.
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
    #[cfg(target_os = "linux")]
    {
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.id())).unwrap();
        let core = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
        assert_eq!(core.split_whitespace().take(2).collect::<Vec<_>>(), ["0", "0"]);
    }
    let killed = Command::new("kill").arg(server.id().to_string()).status();
    assert!(killed.unwrap().success());
    assert_eq!(server.wait().unwrap().code(), Some(0));
}
