//! `hushed run`: the server's part of a run under encryption, from files to a file.

use hushed_model::Graph;
use hushed_serve::fhe::{self, JobReport, RunArguments, StepTime};
use serde_json::json;

use crate::error::CliError;
use crate::graphs;
use crate::machine::peak_memory;
use crate::output::{Output, counters, gib};
use crate::running::Running;
use crate::verbs::fhe::ray::RayArgs;

/// Run a model on encrypted texts; needs no secret of the client
#[derive(clap::Args)]
#[command(
    after_help = "Everything is checked before the run begins: that keys, request, manifest, model and calibration belong \
together, that no key is missing, and that disk and memory suffice. A run placed for little memory (`hushed plan \
--max-memory`) spills vectors to disk, in the folder --spill or beside the reply. With --checkpoint the columns \
are saved after each layer; after a crash or a kill the same command continues from there, and the reply has the \
same bytes.

With --ray the run is divided among the machines of a Ray cluster, each of which has the files at the same paths; the \
reply has the same bytes. It needs Python with `pip install 'hushed[ray]'` on all of them.

Progress is a bar on a terminal and elsewhere a line now and then on standard error, with the time left, \
estimated from the plan and the pace so far. There is none with --json or --quiet.

Examples:
  hushed run DIR --manifest manifest.json --keys evaluation.keys --request request --out reply
  hushed run DIR --manifest manifest.json --keys evaluation.keys --request request --out reply \\
    --checkpoint checkpoints --max-memory 22
  hushed run DIR --manifest manifest.json --keys evaluation.keys --request request --out reply \\
    --steps --json
  hushed run DIR --manifest manifest.json --keys evaluation.keys --request request --out reply \\
    --ray HOST:6379 --threads 16 --checkpoint checkpoints"
)]
pub struct Args {
    #[command(flatten)]
    run: RunArguments,

    /// Show the time of every step beside its planned time
    #[arg(long)]
    steps: bool,

    #[command(flatten)]
    ray: RayArgs,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let options = self.run.options()?;
        if let Some(cluster) = &self.ray.ray {
            return self.ray.run(cluster, &options, out);
        }
        if Graph::is_in(&options.context.model) {
            return graphs::run(&options, out);
        }
        let bar = Running::new(out, "checking");
        let report = fhe::run(&options, &|event| bar.told(&event))?;
        bar.end();
        if self.steps {
            for step in &report.steps {
                let object =
                    json!({ "site": step.site.to_string(), "planned_seconds": step.planned, "seconds": step.seconds });
                out.result(json!({ "step": object }), || describe(step))?;
            }
        }
        let object = json!({
            "request": report.request, "bytes": report.bytes, "seconds": report.seconds,
            "planned_seconds": report.planned_seconds,
            "done_before": report.done_before, "planned_memory": report.planned_memory,
            "planned_disk": report.planned_disk, "disk_peak": report.spilled.peak,
            "disk_written": report.spilled.written, "disk_read": report.spilled.read,
            "peak_memory": peak_memory(), "counts": counters(&report.counts),
        });
        out.result(object, || self.summary(&report))
    }

    fn summary(&self, report: &JobReport) -> String {
        if report.done_before {
            return format!("the reply to {} was there already", report.request);
        }
        let memory = peak_memory().map_or_else(String::new, |bytes| format!("; {:.1} GiB of memory", gib(bytes)));
        format!(
            "reply to {} in {} after {:.1} s, {:.1} s by the plan ({:.1} KiB){memory}; {}",
            report.request,
            self.run.out.display(),
            report.seconds,
            report.planned_seconds,
            report.bytes as f64 / 1024.0,
            report.counts
        )
    }
}

fn describe(step: &StepTime) -> String {
    let taken = match step.seconds {
        Some(seconds) if step.planned > 0.0 => {
            let more = 100.0 * (seconds / step.planned - 1.0);
            format!("took {seconds:>8.1} s  {more:>+6.0} %")
        }
        Some(seconds) => format!("took {seconds:>8.1} s"),
        None => "done before".to_owned(),
    };
    format!("{:<34} planned {:>8.1} s  {taken}", step.site.to_string(), step.planned)
}
