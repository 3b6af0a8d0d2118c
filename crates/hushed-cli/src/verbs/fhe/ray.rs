//! `hushed run --ray`: a run on the machines of a Ray cluster. The Python package does it, in a process of its own
//! (`hushed/ray/_command.py`), which is asked in JSON and answers in lines of JSON.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use hushed_model::{Graph, counted};
use hushed_mpc::parse_bandwidth;
use hushed_serve::fhe::RunOptions;
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output::{Output, gib};
use crate::running::Counting;

/// Without the working directory, where modules would be looked for first.
const PROGRAM: &str = "import sys; sys.path = [p for p in sys.path if p]; from hushed.ray._command import main; main()";
const WHAT: &str = "seconds of the plan";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Arguments of a run on several machines.
#[derive(clap::Args)]
#[group(skip)]
pub struct RayArgs {
    /// Run on the machines of the Ray cluster with this address, HOST:6379; auto is the one that this machine is in
    #[arg(
        long,
        value_name = "ADDRESS",
        env = "HUSHED_RAY",
        conflicts_with_all = ["spill", "steps"],
        help_heading = "On several machines"
    )]
    pub ray: Option<String>,

    /// Workers, each with --threads [default: one for each machine of the cluster]
    #[arg(
        long,
        value_name = "N",
        requires = "ray",
        env = "HUSHED_WORKERS",
        value_parser = clap::value_parser!(u16).range(1..=1024),
        help_heading = "On several machines"
    )]
    workers: Option<u16>,

    /// Keep each worker to so many cores that no other worker has
    #[arg(
        long,
        value_name = "N",
        requires = "ray",
        env = "HUSHED_CORES_PER_WORKER",
        value_parser = clap::value_parser!(u16).range(1..=1024),
        help_heading = "On several machines"
    )]
    cores_per_worker: Option<u16>,

    /// The bandwidth between two machines, by which the run is divided
    #[arg(
        long,
        value_name = "RATE",
        requires = "ray",
        default_value = "10gbit",
        value_parser = parse_bandwidth,
        help_heading = "On several machines"
    )]
    bandwidth: u32,

    /// The Python that has the package hushed
    #[arg(
        long,
        value_name = "FILE",
        env = "HUSHED_PYTHON",
        default_value = "python3",
        help_heading = "On several machines"
    )]
    python: PathBuf,
}

impl RayArgs {
    /// Runs a request on the cluster.
    pub fn run(&self, address: &str, options: &RunOptions, out: &Output) -> Result<(), CliError> {
        let (context, files) = (&options.context, &options.files);
        if Graph::is_in(&context.model) {
            return Err(usage("networks run on one machine: leave out --ray".to_owned()));
        }
        let path = |path: &Path| match path.to_str() {
            Some(text) => Ok(json!(text)),
            None => Err(usage(format!("--ray: the name of {} is not UTF-8", path.display()))),
        };
        let asked = json!({
            "address": address,
            "folder": path(&context.model)?, "manifest": path(&context.plan)?,
            "keys": path(&files.keys)?, "request": path(&files.request)?, "out": path(&files.out)?,
            "calibration": path(&context.calibration)?, "secret": path(&context.secret)?,
            "checkpoint": files.checkpoint.as_deref().map(path).transpose()?,
            "max_memory": context.max_memory.map(|bytes| bytes >> 30), "threads": context.threads,
            "workers": self.workers, "cores_per_worker": self.cores_per_worker,
            "bytes_per_second": f64::from(self.bandwidth) * 1000.0 / 8.0,
        });
        let mut report = self.ran(&asked, out)?;
        let before = report.is_null();
        if before {
            report = json!({});
        }
        report["done_before"] = before.into();
        let text = summary(&report, &files.out);
        out.result(report, || text)
    }

    /// The report of the Python process; null if the reply was there already.
    fn ran(&self, asked: &Value, out: &Output) -> Result<Value, CliError> {
        let lacks = |why: String| CliError::NoRay { python: self.python.clone(), why };
        let mut python = Command::new(&self.python);
        let child = python.args(["-c", PROGRAM]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.map_err(|error| lacks(error.to_string()))?;
        // Left open: its end tells the child that this process has ended.
        let (ask, answer) = (child.stdin.take(), child.stdout.take());
        if let Some(mut ask) = ask.as_ref() {
            // A child that has ended already says so by its answer.
            let _ = writeln!(ask, "{asked}");
        }
        let bar = Counting::new(out, WHAT);
        let (mut version, mut ended) = (None, None);
        for line in answer.map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
            let mut told: Value = serde_json::from_str(&line).unwrap_or_default();
            let number = |at: usize| told["progress"][at].as_f64().unwrap_or_default() as u64;
            match told.as_object().and_then(|told| told.keys().next()).map(String::as_str) {
                Some("version") => version = told["version"].as_str().map(str::to_owned),
                Some("progress") => bar.at(WHAT, number(0), number(1)),
                Some("report") => ended = Some(Ok(told["report"].take())),
                Some("error") => ended = Some(Err(failed(&told["error"]))),
                _ => {}
            }
            if version.as_deref() != Some(VERSION) {
                break;
            }
        }
        bar.end();
        drop(ask);
        let status = child.wait().map_or_else(|error| error.to_string(), |status| status.to_string());
        match (version, ended) {
            (None, _) => Err(lacks(format!("no package hushed, {status}"))),
            (Some(theirs), _) if theirs != VERSION => Err(lacks(format!("its version is {theirs}, not {VERSION}"))),
            (_, Some(ended)) => ended,
            (_, None) => Err(failed(&json!({ "message": format!("the process of hushed.ray has ended: {status}") }))),
        }
    }
}

fn usage(message: String) -> CliError {
    CliError::Ray { exit_code: 2, name: "usage".to_owned(), message }
}

/// An error of Python's package.
fn failed(error: &Value) -> CliError {
    let text = |name: &str| error[name].as_str().map(str::to_owned);
    CliError::Ray {
        exit_code: error["exit_code"].as_u64().and_then(|code| u8::try_from(code).ok()).unwrap_or(70),
        name: text("name").unwrap_or_else(|| "internal".to_owned()),
        message: text("message").unwrap_or_default(),
    }
}

/// A report as text.
fn summary(report: &Value, out: &Path) -> String {
    if report["done_before"] == true {
        return format!("the reply was there already: {}", out.display());
    }
    let number = |name: &str| report[name].as_f64().unwrap_or_default();
    let busy: Vec<f64> = report["busy"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    let (seconds, ready, again) = (number("seconds"), number("ready"), number("given_again"));
    let again = if again > 0.0 { format!(", {again} of them given to another machine") } else { String::new() };
    format!(
        "reply to {} in {} after {seconds:.1} s ({:.1} KiB): {ready:.1} s until all were ready, {:.1} s then by the plan; \
         {} on {}{again}, which computed for {:.0} % of their time; {:.2} GiB moved",
        report["request"].as_str().unwrap_or_default(),
        out.display(),
        number("bytes") / 1024.0,
        number("planned_seconds"),
        counted(number("ranges") as usize, "range"),
        counted(busy.len(), "worker"),
        100.0 * busy.iter().sum::<f64>() / (busy.len() as f64 * (seconds - ready)).max(1e-9),
        gib(number("bytes_moved") as u64),
    )
}
