//! Starts the two processes of a measurement, each pinned to a core, and joins their rows.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use super::{BenchError, How};

/// Runs the suite `name` in two processes, and passes one joined row per case to `row`.
pub fn run_pair(
    name: &str,
    how: How<'_>,
    mut row: impl FnMut(Value) -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    let pins = pins();
    let runs = how.runs.to_string();
    let between = how.between.arguments();
    let mut common = vec![name, "--json", "--runs", &runs];
    common.extend(between.iter().map(String::as_str));
    common.extend(how.only.iter().flat_map(|part| ["--only", part]));
    let start = |party: &'static str, core: Option<&str>, more: &[&str]| {
        Party::start(party, core, common.iter().chain(more).copied())
    };
    let (first, second) = (pins.map(|p| p.0), pins.map(|p| p.1));
    let mut server = start("server", second, &["--party", "server"])?;
    let hello = server.next()?.ok_or(BenchError::Garbled { party: "server" })?;
    let address = hello.get("listening").and_then(Value::as_str);
    let address = address.ok_or(BenchError::Garbled { party: "server" })?;
    let mut client = start("client", first, &["--party", "client", "--address", address])?;
    while let Some(mut joined) = client.next()? {
        let theirs = server.next()?.ok_or(BenchError::Garbled { party: "server" })?;
        if let Some(fields) = joined.as_object_mut() {
            let own = |key: &str| fields.get(key).cloned().unwrap_or(Value::Null);
            let of = |client: Value, server: &Value| json!({ "client": client, "server": server });
            let cpu = of(own("cpu_seconds"), &theirs["cpu_seconds"]);
            let memory = of(own("peak_rss"), &theirs["peak_rss"]);
            fields.insert("cpu_seconds".to_owned(), cpu);
            fields.insert("peak_rss".to_owned(), memory);
            for key in ["clear_token", "clear_lead"] {
                fields.extend(theirs.get(key).map(|found| (key.to_owned(), found.clone())));
            }
            fields.insert("net".to_owned(), json!(how.between.name()));
            fields.insert("forms".to_owned(), json!(how.between.forms().to_string()));
            fields.insert("pinned".to_owned(), json!(pins.is_some()));
        }
        row(joined)?;
    }
    server.wait()?;
    client.wait()?;
    Ok(())
}

/// The first two cores, if `taskset` can pin to them.
fn pins() -> Option<(&'static str, &'static str)> {
    let works = |core| {
        let status =
            Command::new("taskset").args(["-c", core, "true"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        status.is_ok_and(|status| status.success())
    };
    (works("0") && works("1")).then_some(("0", "1"))
}

/// A running party, killed if it is dropped before it ends.
struct Party {
    name: &'static str,
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Party {
    fn start<'a>(
        name: &'static str,
        core: Option<&str>,
        arguments: impl Iterator<Item = &'a str>,
    ) -> Result<Party, BenchError> {
        let failed = |source| BenchError::Process { what: "started", source };
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = match core {
            Some(core) => {
                let mut pinned = Command::new("taskset");
                pinned.args(["-c", core]).arg(program);
                pinned
            }
            None => Command::new(program),
        };
        let mut child = command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let out = child.stdout.take().ok_or(BenchError::Garbled { party: name })?;
        Ok(Party { name, child, lines: BufReader::new(out).lines() })
    }

    /// The party's next object, or `None` at its end.
    fn next(&mut self) -> Result<Option<Value>, BenchError> {
        let garbled = BenchError::Garbled { party: self.name };
        match self.lines.next() {
            None => {
                self.wait()?;
                Ok(None)
            }
            Some(Err(source)) => Err(BenchError::Process { what: "read from", source }),
            Some(Ok(line)) => serde_json::from_str(&line).map(Some).map_err(|_| garbled),
        }
    }

    fn wait(&mut self) -> Result<(), BenchError> {
        let status = self.child.wait().map_err(|source| BenchError::Process { what: "waited for", source })?;
        if status.success() {
            return Ok(());
        }
        Err(BenchError::Ended { party: self.name, status: status.to_string() })
    }
}

impl Drop for Party {
    fn drop(&mut self) {
        // Usually it has ended, which is all that the errors of both calls would say.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
