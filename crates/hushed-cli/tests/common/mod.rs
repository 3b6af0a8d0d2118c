//! Running the binary as a user does.
#![allow(dead_code, reason = "each test binary uses a part of this")]

#[path = "../../../hushed-serve/tests/common/private.rs"]
mod private;

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use serde_json::Value;

pub use private::write_private;

/// A command that does not inherit the settings of the user who runs the tests, with its own folders.
pub fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hushed"));
    let settings = std::env::vars().map(|(name, _)| name);
    for name in settings.filter(|n| n.starts_with("HUSHED_") && !n.starts_with("HUSHED_DENY_")) {
        command.env_remove(name);
    }
    let home = std::env::temp_dir().join(format!("hushed-cli-tests-{}", std::process::id()));
    // Half a minute of two cores for each server of the reference model; hushed-serve has the tests of this check.
    command.env("HUSHED_VOCABULARY_LAYERS", "0");
    command.env("XDG_CACHE_HOME", home.join("cache")).env("XDG_STATE_HOME", home.join("state")).args(args);
    command
}

pub fn hushed(args: &[&str]) -> Output {
    command(args).output().expect("the binary starts")
}

pub fn json_lines(bytes: &[u8]) -> Vec<Value> {
    let text = String::from_utf8(bytes.to_vec()).expect("UTF-8");
    text.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect()
}

/// The one error object on standard error.
pub fn error(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let line = stderr.lines().last().expect("an error");
    let object: Value = serde_json::from_str(line).expect("an object");
    object["error"].clone()
}

/// The vectors of `clear` or `embed`.
pub fn embeddings(rows: &[Value]) -> Vec<Vec<f64>> {
    let vector = |v: &Value| v.as_array().map(|a| a.iter().filter_map(Value::as_f64).collect());
    rows.iter().filter_map(|row| vector(&row["embedding"])).collect()
}

/// The reference model, or `None` with a line that the test runner counts.
pub fn model() -> Option<String> {
    let fetched = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.models/all-MiniLM-L6-v2");
    let folder = std::env::var_os("HUSHED_MODEL_DIR").map_or(fetched, PathBuf::from);
    if folder.join("model.safetensors").is_file() {
        return Some(folder.to_string_lossy().into_owned());
    }
    println!("skipped: the model is not here; scripts/fetch_model.sh fetches it");
    None
}

/// `hushed serve` on a free port; killed when dropped.
pub struct Server {
    pub child: Child,
    pub address: String,
    pub pin: String,
    pub hello: Value,
    // Held open: a server whose output nobody can read would be another test.
    _out: BufReader<ChildStdout>,
}

impl Server {
    pub fn start(model: &str, more: &[&str]) -> Server {
        let args = ["serve", model, "--listen", "127.0.0.1:0", "--json", "--quiet"];
        let mut child = command(&[&args, more].concat()).stdout(Stdio::piped()).spawn().expect("the server starts");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("its first line");
        let hello: Value = serde_json::from_str(&line).expect("an object");
        let text = |key: &str| hello[key].as_str().expect("a text").to_owned();
        Server { child, address: text("address"), pin: text("certificate_sha256"), hello, _out: out }
    }

    /// A command that embeds with this server.
    pub fn embed(&self, more: &[&str]) -> Command {
        let args = ["embed", "--server", &self.address, "--pin", &self.pin, "--json"];
        command(&[&args, more].concat())
    }

    pub fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        let status = Command::new("kill").args(["-s", name, &id]).status();
        assert!(status.expect("kill is here").success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
