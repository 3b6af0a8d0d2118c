//! `hushed check`: is a folder supported? Every reason why not, at once: first what its files say, then whether its
//! numbers fit.

#[cfg(test)]
mod table;

use std::path::PathBuf;

use hushed_model::{ChatError, Graph, Model, ProblemType, Summary, Task, counted, folder};
use hushed_mpc::formats::longest;
use hushed_mpc::{CHECKED_LAYERS, Sampled, out_of_range, sampled, vocabulary};
use serde_json::{Map, Value, json};

use crate::error::CliError;
use crate::graphs;
use crate::input::PublicHead;
use crate::output::Output;

/// Say whether a model folder is supported, with every reason why not
#[derive(clap::Args)]
#[command(
    after_help = "First the files: architecture, sizes, tokenizer, pooling, names and shapes of all tensors. Then the numbers: \
weights, biases, token and position vectors against the limits of the formats of a private run, the activations \
of one text of the model's own tokens, and those of every token of its vocabulary in the first layers: a few \
neurons that fire on one token can leave the formats, and then a private answer is wrong. Other texts, and later \
layers, are not checked: `hushed calibrate` measures texts like those to come.

Examples:
  hushed check DIR
  hushed check DIR --json
  hushed check DIR --layers 0     the vocabulary is not run: seconds instead of a minute"
)]
pub struct Args {
    /// The model folder (config.json, model.safetensors, tokenizer.json, …), or one with graph.json (docs/networks.md)
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Run every token of the vocabulary through this many layers in the clear; 0: through none
    #[arg(long, value_name = "N", default_value_t = CHECKED_LAYERS)]
    layers: usize,
    #[command(flatten)]
    head: PublicHead,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        if Graph::is_in(&self.dir) {
            return graphs::check(&self.dir, out);
        }
        let report = folder::check(&self.dir);
        out.problems(&report.problems)?;
        for warning in &report.warnings {
            let text = warning.to_string();
            out.result(json!({ "warning": text }), || format!("- warning: {text}"))?;
        }
        let Some(s) = report.summary else {
            return Err(CliError::Unsupported { problems: report.problems.len() });
        };
        // Only now are the weights read, and their ranges compared with the formats of a private run.
        let model = Model::load(&self.dir)?;
        let refused = hushed_mpc::supported(&model.program()).err();
        let head = self.head.of(&model.public);
        let (beyond, inexact, needs_head) = match refused {
            Some(_) => Default::default(),
            None => {
                let mut all = out_of_range(&model)?;
                let Sampled { beyond, inexact, needs_head } = sampled(&model, head)?;
                all.extend(beyond);
                (all, inexact, needs_head)
            }
        };
        out.problems(&beyond)?;
        if !beyond.is_empty() {
            return Err(CliError::Unsupported { problems: beyond.len() });
        }
        let left = match refused {
            Some(_) => Vec::new(),
            None => {
                let bar = out.progress(0, "tokens of the vocabulary");
                let behind = if needs_head { head } else { &[] };
                let left = vocabulary(&model, (behind, self.layers), &|tokens, all| {
                    bar.set_length(all as u64);
                    bar.inc(tokens as u64);
                })?;
                bar.finish_and_clear();
                left
            }
        };
        for leaves in &left {
            let text = leaves.to_string();
            out.result(json!({ "problem": text, "tokens": leaves.tokens }), || format!("- {text}"))?;
        }
        if !left.is_empty() {
            return Err(CliError::Unsupported { problems: left.len() });
        }
        let protocols =
            [("2pc", interactive(&s, refused.map(|error| error.to_string()))), ("fhe", encrypted(&s, &model))];
        let runs = protocols.iter().filter(|(_, says)| says.is_ok());
        let names: Vec<&str> = runs.map(|(name, _)| *name).collect();
        let details: Map<String, Value> = protocols
            .iter()
            .map(|(name, says)| {
                let said = match says {
                    Ok(limits) => json!({ "supported": true, "limits": limits }),
                    Err(reason) => json!({ "supported": false, "reason": reason }),
                };
                ((*name).to_owned(), said)
            })
            .collect();
        let generates = model.public.task() == Task::Generate;
        // `null` for a model that does not generate, or has no template.
        let chat = match model.public.check_chat() {
            Err(ChatError::NoTemplate) => json!(null),
            Err(error) => json!({ "problem": error.to_string() }),
            Ok(()) => json!({ "problem": null }),
        };
        let object = json!({ "supported": true, "model": s, "protocols": names, "details": details, "chat": chat, "inexact": inexact,
            "public_head": { "tokens": head.len(), "needed": needs_head } });
        out.result(object, || {
            let ends = match (&s.labels, s.normalised) {
                (Some(labels), _) => format!(
                    "; a classifier of {} ({})",
                    counted(labels.len(), "class"),
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
            let said: String = protocols
                .iter()
                .map(|(name, says)| match says {
                    Ok(limits) => format!("\n- {name}: {limits}"),
                    Err(reason) => format!("\n- {name}: not supported: {reason}"),
                })
                .collect();
            let small = inexact.iter().map(|fit| {
                format!(
                    "\n- inexact in 2pc: rows of {} have a mean square down to {:.1e}, and below {:.1e} roundings show in an \
                     answer; `hushed calibrate --declare` gives them more fraction bits, where there is room",
                    fit.site, fit.measured, fit.holds
                )
            });
            let small: String = small.collect();
            let public = match (head.len(), needs_head) {
                (0, _) => String::new(),
                (tokens, false) => format!("\n- the first {} of a text may be public (docs/models.md)", counted(tokens, "token")),
                (tokens, true) => format!(
                    "\n- only texts that begin with the public head ({}) fit: the first rows exceed the formats of a private run",
                    counted(tokens, "token")
                ),
            };
            let supported = match names.is_empty() {
                true => "supported in the clear only",
                false => "supported",
            };
            format!(
                "{supported}: {}, {} wide, {}, {} hidden; {:.1} million parameters; \
                 {reads}; pooling: {}{ends}{said}{public}{small}",
                counted(s.layers, "layer"),
                s.width,
                counted(s.heads, "head"),
                s.hidden,
                s.parameters as f64 / 1e6,
                s.pooling
            )
        })
    }
}

/// What the two-party protocol does with a model, or why it does nothing.
fn interactive(s: &Summary, refused: Option<String>) -> Result<String, String> {
    if let Some(reason) = refused {
        return Err(reason);
    }
    let longest = longest(s.task == "generate");
    let rows = s.max_tokens.min(longest);
    let what = match (s.task, s.problem_type) {
        ("classify", _) if s.labels.as_ref().is_some_and(|labels| labels.len() == 1) => "the score, one number",
        ("classify", Some(ProblemType::MultiLabel)) => {
            "each label whose probability is above one half, or above P with serve --answers above:P"
        }
        ("classify", Some(ProblemType::Regression)) => {
            "the values, with serve --answers logits: the largest is no answer (problem_type)"
        }
        ("classify", _) => "the label, or more with serve --answers",
        ("generate", _) => "the next tokens",
        _ => "the embedding",
    };
    if s.image_side.is_some() {
        return match s.max_tokens > longest {
            true => Err(format!("images of {} rows, and {longest} is the most", s.max_tokens)),
            false => Ok(format!("of an image: {what}")),
        };
    }
    let texts = if s.pairs { "texts or pairs of texts" } else { "texts" };
    Ok(format!("{what}; {texts} of up to {rows} tokens"))
}

/// The same for encryption. What a plan then finds too long or too deep, `hushed plan` says.
fn encrypted(s: &Summary, model: &Model) -> Result<String, String> {
    let runs = |limits: &str| match hushed_fhe::can_run(&model.program_of_all_rows()) {
        Ok(()) => Ok(limits.to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let reason = match (model.public.task(), s.pooling) {
        (Task::Generate, _) => {
            return runs("the logits of the next token, in batches; hushed plan says for which lengths");
        }
        _ if s.image_side.is_some() => "requests of images cannot be made yet; calibrate, plan and verify take them",
        (Task::Classify, _) => {
            return runs("all logits; hushed plan says for which lengths");
        }
        (Task::Embed, "mean" | "first") => {
            return runs("the embedding; hushed plan says for which lengths");
        }
        (Task::Embed, _) => "it pools by the mean or the first row",
    };
    Err(reason.to_owned())
}

/// The first names, as text.
fn shortened(labels: &[String]) -> String {
    let shown: Vec<&str> = labels.iter().take(6).map(String::as_str).collect();
    let more = if labels.len() > shown.len() { ", …" } else { "" };
    shown.join(", ") + more
}
