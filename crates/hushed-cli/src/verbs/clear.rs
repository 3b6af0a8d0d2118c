//! `hushed clear`: the same answer, in the clear, by the holder of the model folder. What the private answer is
//! compared with.

use std::path::PathBuf;
use std::time::Instant;

use hushed_model::Model;
use serde_json::json;

use crate::error::CliError;
use crate::input::{Texts, Truncate};
use crate::output::{Output, answer, answer_text};

/// Embed or classify texts in the clear, with the weights of a model folder
#[derive(clap::Args)]
#[command(override_usage = "hushed clear [OPTIONS] <DIR> <TEXT|--input <FILE>>")]
#[command(after_help = "Examples:
  hushed clear models/all-MiniLM-L6-v2 \"a small test\"
  hushed clear models/all-MiniLM-L6-v2 --input texts.txt --json")]
pub struct Args {
    /// The model folder (config.json, model.safetensors, tokenizer.json, …)
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    #[command(flatten)]
    texts: Texts,

    #[command(flatten)]
    too_long: Truncate,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let texts = self.texts.read()?;
        let start = Instant::now();
        let model = Model::load(&self.dir)?;
        let load_seconds = start.elapsed().as_secs_f64();

        let labels = model.public.labels();
        let tokens = self.too_long.tokens(&model.public, &texts)?;
        let in_text = |index| move |source| CliError::Text { index, source };

        let start = Instant::now();
        let bar = out.progress(tokens.len() as u64, "embedding");
        for (index, ids) in tokens.into_iter().enumerate() {
            let count = ids.rows().real;
            for numbers in model.embed(vec![ids]).map_err(in_text(index))? {
                let object = answer(index, count, &numbers, labels);
                out.result(object, || answer_text(index, count, &numbers, labels))?;
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        let seconds = start.elapsed().as_secs_f64();
        let mut end =
            json!({ "texts": texts.len(), "seconds": seconds, "load_seconds": load_seconds });
        if let Some(labels) = labels {
            end["labels"] = json!(labels);
        }
        out.summary(
            end,
            &format!(
                "{} text(s) in {seconds:.2} s, model read in {load_seconds:.2} s",
                texts.len()
            ),
        )
    }
}
