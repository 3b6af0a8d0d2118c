//! `hushed bench`: how fast is it here?

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::bench::{self, How, Kind, LONG, Net, SUITES, Suite};
use crate::error::CliError;
use crate::machine::Machine;
use crate::output::Output;

/// Measure on this machine: protocols as two processes with a core each, the engine in one
#[derive(clap::Args)]
#[command(after_help = "Rows are described in docs/benchmarks.md.

Examples:
  hushed bench --list
  hushed bench softmax --net lan --json
  hushed bench layer --only bert-base --runs 1
  hushed bench model --only bert-large --net wan --runs 1
  hushed bench bootstrap --threads 2 --only n16
  hushed bench gemm --only whole
  hushed bench all --json > results.jsonl")]
pub struct Args {
    /// What to measure; `all` for everything but `fhe-layer` and `fhe-model`
    #[arg(required_unless_present = "list")]
    name: Option<String>,

    /// List the names
    #[arg(long)]
    list: bool,

    /// The network between the parties
    #[arg(long, value_enum, default_value = "loopback", env = "HUSHED_BENCH_NET")]
    net: Net,

    /// Runs of each size, of which the median counts; one more is thrown away
    #[arg(long, default_value_t = 3, env = "HUSHED_BENCH_RUNS", value_parser = clap::value_parser!(u16).range(1..))]
    runs: u16,

    /// Threads of a measurement in one process (ckks, lintrans, gemm, bootstrap, flooding, fhe-…)
    #[arg(long, default_value_t = 1, env = "HUSHED_BENCH_THREADS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: u16,

    /// Only sizes whose parameters contain this text, for example 768 or bert-base
    #[arg(long, value_name = "TEXT", env = "HUSHED_BENCH_ONLY")]
    only: Option<String>,

    /// Be one party of a measurement (used by this program itself)
    #[arg(long, hide = true)]
    party: Option<Side>,

    /// Where the server of a measurement listens
    #[arg(long, hide = true, required_if_eq("party", "client"))]
    address: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Side {
    Client,
    Server,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let Some(name) = self.name.as_ref().filter(|_| !self.list) else {
            return SUITES.iter().try_for_each(|suite| {
                let object = json!({ "name": suite.name, "about": suite.about });
                out.result(object, || format!("{:<10} {}", suite.name, suite.about))
            });
        };
        let chosen: Vec<&Suite> = match name.as_str() {
            "all" => SUITES.iter().filter(|s| !LONG.contains(&s.name)).collect(),
            name => bench::suite(name).into_iter().collect(),
        };
        if chosen.is_empty() {
            return Err(CliError::NoSuchBench { name: name.clone() });
        }
        let machine = Machine::read();
        let how = How {
            net: self.net,
            runs: self.runs.into(),
            threads: self.threads.into(),
            only: self.only.as_deref(),
        };
        for suite in chosen {
            match (&suite.kind, self.party) {
                (Kind::Local(measure), _) => {
                    for row in measure(how)? {
                        show(out, &machine, row)?;
                    }
                }
                (_, Some(_)) => {
                    let say = |row: Value| out.result(row, String::new);
                    bench::run_party(suite, self.address.as_deref(), how, say)?;
                }
                (_, None) => bench::run_pair(suite.name, how, |row| show(out, &machine, row))?,
            }
        }
        Ok(())
    }
}

/// Fields of all rows: null where a measurement has no such thing.
const COMMON: [&str; 8] = [
    "setup_seconds",
    "bytes_up",
    "bytes_down",
    "rounds",
    "peak_rss",
    "error",
    "precision",
    "kernel",
];

fn show(out: &Output, machine: &Machine, mut row: Value) -> Result<(), CliError> {
    if let Some(fields) = row.as_object_mut() {
        for name in COMMON {
            fields.entry(name).or_insert(Value::Null);
        }
        fields.insert("machine".to_owned(), machine.json());
        fields.insert("commit".to_owned(), json!(env!("HUSHED_COMMIT")));
    }
    let line = describe(&row);
    out.result(row, || line)
}

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
    if let (Some(worst), Some(mean)) = (number("precision_bits_min"), number("precision_bits_mean"))
    {
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
