//! `hushed check`: is a folder supported? Every reason why not, at once, before anything is computed.

use std::path::PathBuf;

use hushed_model::folder;
use serde_json::json;

use crate::error::CliError;
use crate::output::Output;

/// Say whether a model folder is supported, with every reason why not
#[derive(clap::Args)]
#[command(after_help = "Examples:
  hushed check models/all-MiniLM-L6-v2
  hushed check models/all-MiniLM-L6-v2 --json")]
pub struct Args {
    /// The model folder (config.json, model.safetensors, tokenizer.json, …)
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let report = folder::check(&self.dir);
        for problem in &report.problems {
            let text = problem.to_string();
            out.result(json!({ "problem": text }), || format!("- {text}"))?;
        }
        let Some(s) = report.summary else {
            return Err(CliError::Unsupported {
                problems: report.problems.len(),
            });
        };
        let object = json!({ "supported": true, "model": s });
        out.result(object, || {
            let ends = if s.normalised {
                ", scaled to unit length"
            } else {
                ""
            };
            format!(
                "supported: {} layers, {} wide, {} heads, {} hidden; {:.1} million parameters; \
                 texts of up to {} tokens; pooling: {}{ends}",
                s.layers,
                s.width,
                s.heads,
                s.hidden,
                s.parameters as f64 / 1e6,
                s.max_tokens,
                s.pooling
            )
        })
    }
}
