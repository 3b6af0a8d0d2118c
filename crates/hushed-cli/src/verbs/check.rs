//! `hushed check`: is a folder supported? Every reason why not, at once: first what its files say, then whether its
//! numbers fit.

use std::path::PathBuf;

use hushed_model::{ChatError, Model, Task, folder};
use hushed_mpc::{Sampled, out_of_range, sampled};
use serde_json::json;

use crate::error::CliError;
use crate::output::Output;

/// Say whether a model folder is supported, with every reason why not
#[derive(clap::Args)]
#[command(
    after_help = "First the files: architecture, sizes, tokenizer, pooling, names and shapes of all tensors. Then the numbers: weights, biases, token and
position vectors against the limits of the formats of a private run, and the activations of one text of the model's own tokens.

Examples:
  hushed check models/all-MiniLM-L6-v2
  hushed check models/all-MiniLM-L6-v2 --json"
)]
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
        // Only now are the weights read, and their ranges compared with the formats of a private run.
        let model = Model::load(&self.dir)?;
        let one_class = s.labels.as_ref().is_some_and(|labels| labels.len() < 2);
        let interactive = hushed_mpc::supported(&model.program()).is_ok();
        let (beyond, inexact) = match interactive {
            false => Default::default(),
            true => {
                let mut all = out_of_range(&model)?;
                let Sampled { beyond, inexact } = sampled(&model)?;
                all.extend(beyond);
                (all, inexact)
            }
        };
        for problem in &beyond {
            let text = problem.to_string();
            out.result(json!({ "problem": text }), || format!("- {text}"))?;
        }
        if !beyond.is_empty() {
            return Err(CliError::Unsupported {
                problems: beyond.len(),
            });
        }
        let protocols: &[&str] = match (model.public.task(), s.pooling) {
            (Task::Generate, _) if interactive => &["2pc"],
            (Task::Generate, _) => &[],
            // The label of one class says nothing, and images have no other protocol.
            (Task::Classify, _) if one_class && s.image_side.is_some() => &[],
            (Task::Classify, _) if one_class => &["fhe"],
            (Task::Classify, _) if s.image_side.is_some() => &["2pc"],
            (Task::Classify, _) => &["2pc", "fhe"],
            (Task::Embed, "mean" | "first") => &["2pc", "fhe"],
            (Task::Embed, _) => &["2pc"],
        };
        let generates = model.public.task() == Task::Generate;
        // `null` for a model that does not generate, or has no template.
        let chat = match model.public.check_chat() {
            Err(ChatError::NoTemplate) => json!(null),
            Err(error) => json!({ "problem": error.to_string() }),
            Ok(()) => json!({ "problem": null }),
        };
        let object = json!({ "supported": true, "model": s, "protocols": protocols, "chat": chat, "inexact": inexact });
        out.result(object, || {
            let ends = match (&s.labels, s.normalised) {
                (Some(labels), _) => format!(
                    "; a classifier of {} classes ({})",
                    labels.len(),
                    shortened(labels)
                ),
                (None, _) if generates => match (chat.is_null(), chat["problem"].as_str()) {
                    (true, _) => "; continues a text".to_owned(),
                    (false, None) => "; continues a text, and answers conversations".to_owned(),
                    (false, Some(problem)) => format!("; continues a text; {problem}"),
                },
                (None, true) => ", scaled to unit length".to_owned(),
                (None, false) => String::new(),
            };
            let reads = match s.image_side {
                Some(side) => format!("images of {side} × {side} points, {} rows", s.max_tokens),
                None => format!("texts of up to {} tokens", s.max_tokens),
            };
            let small = inexact.iter().map(|fit| {
                format!(
                    "\n- inexact in 2pc: rows of {} have a mean square down to {:.1e}, and below {:.1e} roundings show in an \
                     answer; `hushed calibrate --declare` gives them more fraction bits, where there is room",
                    fit.site, fit.measured, fit.holds
                )
            });
            let small: String = small.collect();
            format!(
                "supported: {} layers, {} wide, {} heads, {} hidden; {:.1} million parameters; \
                 {reads}; pooling: {}{ends}{small}",
                s.layers,
                s.width,
                s.heads,
                s.hidden,
                s.parameters as f64 / 1e6,
                s.pooling
            )
        })
    }
}

/// The first names, as text.
fn shortened(labels: &[String]) -> String {
    let shown: Vec<&str> = labels.iter().take(6).map(String::as_str).collect();
    let more = if labels.len() > shown.len() {
        ", …"
    } else {
        ""
    };
    shown.join(", ") + more
}
