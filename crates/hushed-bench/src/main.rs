//! The `hushed-bench` binary: measures speed on this machine.
#![forbid(unsafe_code)]

use std::env;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use hushed_bench::{BenchError, Between, How, Kind, LONG, Net, SUITES, Suite, machine};
use hushed_mpc::{Link, parse_bandwidth, parse_round_trip};
use hushed_serve::command_line;
use serde_json::{Value, json};

/// Measure on this machine: protocols as two processes with a core each, the engine as one process
#[derive(Parser)]
#[command(
    name = "hushed-bench",
    version = concat!(env!("CARGO_PKG_VERSION"), " (", env!("HUSHED_COMMIT"), ")"),
    after_help = "Rows are described in docs/benchmarks.md.

Examples:
  hushed-bench --list
  hushed-bench softmax --net lan --json
  hushed-bench layer --only bert-base --runs 1
  hushed-bench model --only bert-large --net wan --runs 1
  hushed-bench model --only minilm --rtt 40ms --bandwidth 50mbit --runs 1
  hushed-bench bootstrap --threads 2 --only n16
  hushed-bench gemm --only whole
  hushed-bench all --json > results.jsonl

Exit codes: 0 done, 2 wrong usage, 5 network or peer, 8 output not written, 70 a defect of this program. See docs/errors.md."
)]
struct Args {
    /// What to measure; `all` for everything but `fhe-layer`, `fhe-model` and `fhe-text`
    #[arg(required_unless_present = "list")]
    name: Option<String>,

    /// List the names
    #[arg(long)]
    list: bool,

    /// Print JSON, one object per line
    #[arg(long, env = "HUSHED_JSON")]
    json: bool,

    /// The network between the parties
    #[arg(long, value_enum, default_value = "loopback", env = "HUSHED_BENCH_NET")]
    net: Net,

    /// The round trip, as in 40ms [default: that of --net, or of lan]
    #[arg(long, value_name = "TIME", value_parser = parse_round_trip)]
    rtt: Option<u32>,

    /// The bandwidth each way, as in 50mbit [default: that of --net, or of lan]
    #[arg(long, value_name = "RATE", value_parser = parse_bandwidth)]
    bandwidth: Option<u32>,

    /// The network for which the forms of steps are chosen, as in lan or 40ms/50mbit [default: the one between the
    /// parties]
    #[arg(long, value_name = "NET")]
    forms: Option<Link>,

    /// Runs per size, of which the median is reported; one more run is discarded
    #[arg(long, default_value_t = 3, env = "HUSHED_BENCH_RUNS", value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,

    /// Threads of a single-process measurement (ckks, lintrans, gemm, bootstrap, flooding, fhe-…)
    #[arg(long, default_value_t = 1, env = "HUSHED_BENCH_THREADS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,

    /// Only sizes whose parameters contain this text, for example 768 or bert-base
    #[arg(long, value_name = "TEXT", env = "HUSHED_BENCH_ONLY")]
    only: Option<String>,

    /// Run as one party of a measurement (used by this program itself)
    #[arg(long, hide = true)]
    party: Option<Side>,

    /// Address at which the server of a measurement listens
    #[arg(long, hide = true, required_if_eq("party", "client"))]
    address: Option<String>,
}

fn main() -> ExitCode {
    let args: Args = match command_line::read(env::args_os()) {
        Ok(args) => args,
        Err(code) => return ExitCode::from(code),
    };
    match args.run() {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe may go away (`hushed-bench … | head`).
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            args.error(&error);
            ExitCode::from(error.exit_code())
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Side {
    Client,
    Server,
}

impl Args {
    fn run(&self) -> Result<(), BenchError> {
        let Some(name) = self.name.as_ref().filter(|_| !self.list) else {
            return SUITES.iter().try_for_each(|suite| {
                let object = json!({ "name": suite.name, "about": suite.about });
                self.result(&object, || format!("{:<10} {}", suite.name, suite.about))
            });
        };
        let chosen: Vec<&Suite> = match name.as_str() {
            "all" => SUITES.iter().filter(|s| !LONG.contains(&s.name)).collect(),
            name => hushed_bench::suite(name).into_iter().collect(),
        };
        if chosen.is_empty() {
            return Err(BenchError::NoSuchBench { name: name.clone() });
        }
        let machine = machine::describe();
        let between = Between::new(self.net, self.rtt, self.bandwidth, self.forms)?;
        let how = How { between, runs: self.runs.into(), threads: self.threads.into(), only: self.only.as_deref() };
        for suite in chosen {
            match (&suite.kind, self.party) {
                (Kind::Local(measure), _) => {
                    for row in measure(how)? {
                        self.show(&machine, row)?;
                    }
                }
                (_, Some(_)) => {
                    let say = |row: Value| self.result(&row, String::new);
                    hushed_bench::run_party(suite, self.address.as_deref(), how, say)?;
                }
                (_, None) => hushed_bench::run_pair(suite.name, how, |row| self.show(&machine, row))?,
            }
        }
        Ok(())
    }

    fn show(&self, machine: &Value, mut row: Value) -> Result<(), BenchError> {
        if let Some(fields) = row.as_object_mut() {
            for name in COMMON {
                fields.entry(name).or_insert(Value::Null);
            }
            fields.insert("machine".to_owned(), machine.clone());
            fields.insert("commit".to_owned(), json!(env!("HUSHED_COMMIT")));
        }
        self.result(&row, || describe(&row))
    }

    /// Prints one result: `object` under `--json`, otherwise the line from `text`.
    fn result(&self, object: &Value, text: impl FnOnce() -> String) -> Result<(), BenchError> {
        let line = if self.json { object.to_string() } else { text() };
        // Each line is flushed separately, so that a reader of a long run sees results as they come.
        let mut out = io::stdout().lock();
        writeln!(out, "{line}").and_then(|()| out.flush()).map_err(BenchError::Write)
    }

    fn error(&self, error: &BenchError) {
        command_line::error("hushed-bench", self.json, error.name(), error.exit_code(), &error.to_string());
    }
}

/// Fields of all rows, null if a measurement does not have them.
const COMMON: [&str; 8] =
    ["setup_seconds", "bytes_up", "bytes_down", "rounds", "peak_rss", "error", "precision", "kernel"];

fn describe(row: &Value) -> String {
    let number = |key: &str| row[key].as_f64();
    let name = row["name"].as_str().unwrap_or_default();
    let seconds = number("seconds").map_or_else(String::new, |s| match s {
        s if s < 1e-3 => format!("{:.2} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.2} s"),
    });
    let mut line = format!("{name:<20} {seconds:>10}");
    if let (Some(up), Some(down)) = (number("bytes_up"), number("bytes_down")) {
        line += &format!("  up {:8.3} MB  down {:8.3} MB", up / 1e6, down / 1e6);
        line += &format!("  rounds {:>4}", row["rounds"]);
    }
    if let Some(error) = number("error") {
        line += &format!("  error {error:.1e}");
    }
    if let (Some(worst), Some(mean)) = (number("precision_bits_min"), number("precision_bits_mean")) {
        line += &format!("  bits {worst:.1} worst, {mean:.1} mean");
    }
    if let (Some(found), Some(bound)) = (number("error_bits"), number("error_bits_bound")) {
        line += &format!("  error 2^-{found:.1}, at most 2^-{bound:.1}");
    }
    if let (Some(cost), Some(left)) = (number("flooding_bits"), number("bits_left")) {
        line += &format!("  costs {cost:.1} bits, leaves {left:.1}");
    }
    let stages = row["stage_seconds"].as_object();
    for (stage, seconds) in stages.into_iter().flatten() {
        let milliseconds = 1e3 * seconds.as_f64().unwrap_or(f64::NAN);
        line += &format!("  {stage} {milliseconds:.0} ms");
    }
    if let Some(rate) = number("products_per_second") {
        line += &format!("  {:.1} G products/s", rate / 1e9);
    }
    if let Some(level) = number("level") {
        line += &format!("  level {level}");
    }
    if let Some(cosine) = number("cosine") {
        line += &format!("  cosine {cosine:.6}");
    }
    format!("{line}  {}", row["params"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn there_is_help_with_examples_and_exit_codes() {
        let command = Args::command();
        assert!(command.get_about().is_some());
        let after = command.get_after_help().map(ToString::to_string);
        let after = after.unwrap_or_default();
        assert!(after.contains("hushed-bench --list") && after.contains("Exit codes"));
    }
}
