//! `hushed calibrate --protocol fhe`: intervals, degrees and constants of every approximation under CKKS, for a model.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use hushed_fhe::calibrate::{Options, Quantity, Reach, Sample, calibrate, reaches, vocabulary, weights_sha256};
use hushed_fhe::{Candidate, FheError};
use hushed_model::{Item, Model, ModelError, Task, counted};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::write::write;
use crate::error::CliError;
use crate::images::Read;
use crate::input::{self, Truncate};
use crate::output::Output;

/// Options of this protocol only.
#[derive(clap::Args)]
// As in `plan`: a separate group would have the name of the verb's.
#[group(skip)]
pub struct Args {
    /// fhe: rows per text, padding included, for which the intervals are measured
    #[arg(long, value_name = "N", default_value_t = 128, env = "HUSHED_ROWS")]
    rows: usize,

    /// fhe: the lowest cosine to the exact embedding that a held-out text may have
    #[arg(long, value_name = "C", default_value_t = 0.9995)]
    cosine: f64,

    /// fhe: the degree of the activations' polynomials, from 1 to 127, instead of the lowest that is enough
    #[arg(long, value_name = "D")]
    activation_degree: Option<usize>,

    /// fhe: a file of texts made to leave intervals, one per line; they are measured, and accuracy is judged by the
    /// others
    #[arg(long, value_name = "FILE")]
    hostile: Option<PathBuf>,

    /// fhe: a file of other texts, one per line, not measured; report how far each goes in the chosen intervals
    #[arg(long, value_name = "FILE")]
    unseen: Option<PathBuf>,
}

impl Args {
    pub fn run(
        &self,
        out: &Output,
        dir: &Path,
        (given, mut digest): (Read, Sha256),
        path: &Path,
        too_long: &Truncate,
    ) -> Result<(), CliError> {
        let model = Model::load(dir)?;
        let items = |given: &Read| given.within(&model.public, self.rows, too_long);
        let given = given.without_blanks();
        let texts = items(&given)?;
        let hostile = match &self.hostile {
            Some(path) => {
                let bytes = input::read(path)?;
                digest.update(&bytes);
                items(&Read::Texts(input::lines(bytes, path)?).without_blanks())?
            }
            None => Vec::new(),
        };
        let weights = weights_sha256(dir)
            .map_err(|source| CliError::ReadInput { path: dir.join("model.safetensors"), source })?;
        let broad: Vec<Item> = match given {
            Read::Texts(_) => {
                let tokenizer = model.public.tokenizer().map_err(ModelError::from)?;
                vocabulary(tokenizer, self.rows).into_iter().map(Item::from).collect()
            }
            Read::Images(_) => Vec::new(),
        };
        let sample = Sample {
            texts: &texts,
            hostile: &hostile,
            broad: &broad,
            sha256: &hushed_serve::Digest(digest.finalize().into()).to_string(),
            model_sha256: &weights,
        };
        if self.unseen.is_some() && model.public.task() == Task::Generate {
            // Only an encoder's unseen texts can be measured. Refused before the work, not after it.
            model.encoder()?;
        }
        let options =
            Options { rows: self.rows, wanted: self.cosine, activation: self.activation_degree, ..Options::default() };
        let choices = calibrate(&model, &sample, &options, &mut |doing| out.note(doing))?;
        for candidate in &choices.report.candidates {
            out.result(json!({ "candidate": candidate }), || shown(candidate))?;
        }
        write(&choices.to_json().map_err(FheError::from)?, path)?;
        if let Some(path) = &self.unseen {
            let texts = items(&Read::Texts(input::read_lines(path)?).without_blanks())?;
            out.note("looking at other texts");
            unseen(out, &reaches(&model, &choices, &texts, &options.params()?)?)?;
        }
        let end = json!({
            "texts": choices.texts, "held_out": choices.report.held_out, "rows": choices.rows,
            "sample_sha256": choices.sample_sha256, "written": path,
        });
        out.summary(
            end,
            &format!(
                "{} measured, {} of them not while degrees were chosen; written to {}",
                counted(choices.texts, "text"),
                choices.report.held_out,
                path.display()
            ),
        )
    }
}

/// Prints for each quantity how many texts leave their intervals, and the farthest.
fn unseen(out: &Output, all: &[Vec<Reach>]) -> Result<(), CliError> {
    let quantities: BTreeSet<Quantity> = all.iter().flatten().map(|r| r.quantity).collect();
    for quantity in quantities {
        let those = || {
            let texts = all.iter().enumerate();
            texts
                .flat_map(|(i, text)| text.iter().map(move |reach| (i, reach)))
                .filter(|(_, reach)| reach.quantity == quantity)
        };
        let beyond = those().filter(|(_, reach)| reach.reach > 1.0).count();
        let farthest = those().max_by(|a, b| a.1.reach.total_cmp(&b.1.reach));
        let Some((text, farthest)) = farthest else {
            continue;
        };
        out.result(
            json!({ "unseen": { "quantity": quantity, "texts": all.len(), "beyond": beyond, "text": text, "farthest": farthest } }),
            || {
                format!(
                    "{quantity}: {beyond} of {} unseen texts leave an interval; the farthest, line {} of those with text, goes to {:.3} of it (layer {}, index {})",
                    all.len(), text + 1, farthest.reach, farthest.layer, farthest.index
                )
            },
        )?;
    }
    Ok(())
}

fn shown(c: &Candidate) -> String {
    let errors = match c.cosine_min_with_errors {
        Some(least) => {
            let stay = 100.0 * c.neighbours.unwrap_or(0.0);
            format!("{least:.6}, {stay:.0} % of nearest neighbours stay")
        }
        None => "not tried".to_owned(),
    };
    format!(
        "{} {}: levels {} and {}, cosine at least {:.6}, mean {:.6}, with errors {errors}",
        if c.chosen { "*" } else { " " },
        c.name,
        c.attention_levels,
        c.feed_forward_levels,
        c.cosine_min,
        c.cosine_mean
    )
}
