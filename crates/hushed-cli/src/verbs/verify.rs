//! `hushed verify`: where accuracy goes, stage by stage, and what is left of it in the answers.

use std::path::PathBuf;

use hushed_infer::verify::{Answer, Report, verify};
use hushed_model::{Model, cosine};
use serde_json::json;

use crate::error::CliError;
use crate::input::{self, Truncate};
use crate::output::Output;

/// Compare the private run with the clear one, stage by stage: both parties on this machine
#[derive(clap::Args)]
#[command(
    after_help = "Both parties run in this process, on keys made for the occasion, and their shares are put together: this needs the
weights and is never done with a server. A stage's error is relative to the root mean square of its clear values;
`approximation` is what the functions behind GELU and softmax and the rounding of fixed point cost, `protocol` what the shares cost,
which round at random.

--labels takes pairs of texts with a number, tab-separated (text, text, score), and reports the rank correlation of the
cosines with the scores, in the clear and privately.

Examples:
  hushed verify models/all-MiniLM-L6-v2 --input data/sample.txt
  hushed verify models/all-MiniLM-L6-v2 --labels pairs.tsv --json"
)]
#[command(group = clap::ArgGroup::new("source").required(true).args(["input", "labels"]))]
pub struct Args {
    /// The model folder (config.json, model.safetensors, tokenizer.json, …)
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// A file with one text a line, `-` for standard input
    #[arg(long, value_name = "FILE", env = "HUSHED_INPUT")]
    input: Option<PathBuf>,

    /// A file of labelled pairs: text, text and a number, tab-separated
    #[arg(long, value_name = "FILE.tsv", env = "HUSHED_LABELS")]
    labels: Option<PathBuf>,

    #[command(flatten)]
    too_long: Truncate,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let (texts, scores) = self.read()?;
        let model = Model::load(&self.dir)?;
        let tokens = self.too_long.tokens(&model.public, &texts)?;
        let bar = out.progress(tokens.len() as u64, "three ways");
        let report = verify(&model, &tokens, |done| bar.set_position(done as u64))?;
        bar.finish_and_clear();

        for (index, answer) in report.answers.iter().enumerate() {
            let found = (
                cosine(&answer.clear, &answer.private),
                cosine(&answer.clear, &answer.approximated),
            );
            let object = json!({ "text_index": index, "tokens": tokens[index].rows().real, "cosine": found.0, "cosine_approximated": found.1 });
            out.result(object, || {
                format!(
                    "text {index:<4} cosine to the clear embedding {:.6}, of the approximation alone {:.6}",
                    found.0, found.1
                )
            })?;
        }
        for stage in &report.stages {
            out.result(json!({ "stage": stage }), || {
                format!(
                    "{:<9} approximation {:.2e}  protocol {:.2e}  total {:.2e}  largest difference {:.2e}",
                    stage.stage, stage.approximation, stage.protocol, stage.total, stage.worst
                )
            })?;
        }
        self.end(out, &report, &scores)
    }

    /// The texts, and the scores of consecutive pairs if there are labels.
    fn read(&self) -> Result<(Vec<String>, Vec<f64>), CliError> {
        if let Some(path) = &self.labels {
            return pairs(&input::read_lines(path)?);
        }
        // The group above asks for one of the two.
        let path = self.input.as_deref().unwrap_or("-".as_ref());
        Ok((input::read_lines(path)?, Vec::new()))
    }

    fn end(&self, out: &Output, report: &Report, scores: &[f64]) -> Result<(), CliError> {
        let cosines = report.answers.iter().map(|a| cosine(&a.clear, &a.private));
        let least = cosines.fold(f64::INFINITY, f64::min);
        let worst = report.worst_stage().map(|s| s.stage.clone());
        let mut end =
            json!({ "texts": report.answers.len(), "cosine_min": least, "worst_stage": worst });
        let mut text = format!(
            "{} texts; least cosine {least:.6}; most is lost in {}",
            report.answers.len(),
            worst.as_deref().unwrap_or("no stage")
        );
        if !scores.is_empty() {
            let of = |pick: fn(&Answer) -> &[f64]| -> Vec<f64> {
                let pairs = report.answers.chunks_exact(2);
                pairs.map(|p| cosine(pick(&p[0]), pick(&p[1]))).collect()
            };
            let clear = rank_correlation(&of(|a| &a.clear), scores);
            let private = rank_correlation(&of(|a| &a.private), scores);
            end["rank_correlation"] = json!({ "clear": clear, "private": private });
            text += &format!(
                "; rank correlation with the labels {clear:.4} in the clear, {private:.4} privately"
            );
        }
        out.summary(end, &text)
    }
}

/// Texts in pairs, and their scores.
fn pairs(lines: &[String]) -> Result<(Vec<String>, Vec<f64>), CliError> {
    let (mut texts, mut scores) = (Vec::new(), Vec::new());
    for (index, line) in lines.iter().enumerate() {
        let fields: Vec<&str> = line.split('\t').collect();
        let (&[a, b, score], at) = (fields.as_slice(), index + 1) else {
            return Err(CliError::Labels { line: index + 1 });
        };
        let score: f64 = score
            .trim()
            .parse()
            .map_err(|_| CliError::Labels { line: at })?;
        texts.extend([a.to_owned(), b.to_owned()]);
        scores.push(score);
    }
    Ok((texts, scores))
}

/// Spearman's: the correlation of the ranks, equal values sharing theirs.
fn rank_correlation(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 - 1.0) / 2.0;
    let centred = |x: &[f64]| x.iter().map(|v| v - mean).collect::<Vec<f64>>();
    cosine(&centred(&a), &centred(&b))
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |v: f64| values.iter().filter(|&&o| o < v).count() as f64;
    let equal = |v: f64| values.iter().filter(|&&o| o == v).count() as f64;
    values
        .iter()
        .map(|&v| below(v) + (equal(v) - 1.0) / 2.0)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_correlation_of_known_lists() {
        assert!((rank_correlation(&[1.0, 2.0, 3.0], &[10.0, 20.0, 25.0]) - 1.0).abs() < 1e-12);
        assert!((rank_correlation(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]) + 1.0).abs() < 1e-12);
        assert_eq!(ranks(&[5.0, 1.0, 5.0]), [1.5, 0.0, 1.5]);
    }

    #[test]
    fn pairs_are_three_fields() {
        let line = |s: &str| vec![s.to_owned()];
        let (texts, scores) = pairs(&line("a\tb\t 4.5")).unwrap();
        assert_eq!((texts.len(), scores), (2, vec![4.5]));
        for bad in ["a\tb", "a\tb\tc", "a\tb\t1\t2", ""] {
            assert!(
                matches!(pairs(&line(bad)), Err(CliError::Labels { line: 1 })),
                "{bad}"
            );
        }
    }
}
