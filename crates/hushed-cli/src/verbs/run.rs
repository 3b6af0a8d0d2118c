//! `hushed run`: the server's part of a run under encryption, from files to a file.

use hushed_serve::fhe::{self, JobEvent, RunArguments};
use serde_json::json;

use crate::error::CliError;
use crate::output::Output;

/// Run a model on encrypted texts; needs no secret of the client
#[derive(clap::Args)]
#[command(
    after_help = "Everything is checked before work begins: whether keys, request, plan, model and calibration belong together, whether each key is there,
whether disk and memory suffice. A plan that was made for little memory (`hushed plan --max-memory`) puts vectors on disk while it runs, in
the folder --spill or beside the reply. With --checkpoint the columns are kept after each layer; after a crash or a kill the same command
goes on from there, and the reply has the same bytes.

Examples:
  hushed run models/minilm --plan plan.json --keys evaluation.keys --request request --out reply
  hushed run models/minilm --plan plan.json --keys evaluation.keys --request request --out reply --checkpoint checkpoints --max-memory 22"
)]
pub struct Args {
    #[command(flatten)]
    run: RunArguments,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let bar = out.progress(1000, "running");
        let report = fhe::run(&self.run.options()?, &|event| {
            if let JobEvent::Step { site, part } = &event {
                bar.set_message(site.path().to_owned());
                bar.set_position((part * 1000.0) as u64);
            }
            if let Some(line) = event.line() {
                bar.suspend(|| out.note(&line));
            }
        })?;
        bar.finish_and_clear();
        let object = json!({
            "request": report.request, "bytes": report.bytes, "seconds": report.seconds,
            "done_before": report.done_before, "planned_memory": report.planned_memory,
            "planned_disk": report.planned_disk, "disk_peak": report.spilled.peak,
            "disk_written": report.spilled.written, "disk_read": report.spilled.read,
        });
        out.result(object, || match report.done_before {
            true => format!("the reply to {} was there already", report.request),
            false => format!(
                "reply to {} in {} after {:.1} s ({:.1} KiB)",
                report.request,
                self.run.out.display(),
                report.seconds,
                report.bytes as f64 / 1024.0
            ),
        })
    }
}
