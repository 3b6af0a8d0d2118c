//! `hushed verify` of a two-party run, with both parties on this machine.

use hushed_model::{Item, Model, Task, cosine, counted};
use hushed_mpc::verify::{Answer, Report, verify};
use serde_json::json;

use crate::error::CliError;
use crate::labels::{self, likeness, rank_correlation};
use crate::output::Output;

/// The lead of a clear logit above which a private run must find the same token.
const SURE: f64 = 0.05;

/// Runs and reports; `scores` are those of pairs, if there are labels.
pub fn run(out: &Output, model: &Model, (items, head): (&[Item], &[u32]), scores: &[f64]) -> Result<(), CliError> {
    let bar = out.progress(items.len() as u64, "three ways");
    let report = verify(model, items, head, |done| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    let name = match model.public.images.is_some() {
        true => "image",
        false => "text",
    };
    let classifies = model.public.task() == Task::Classify;
    let of = if classifies { "logits" } else { "embedding" };

    for (index, answer) in report.answers.iter().enumerate() {
        let found = (cosine(&answer.clear, &answer.private), cosine(&answer.clear, &answer.approximated));
        let mut object = json!({ "text_index": index, "tokens": items[index].rows().real, "cosine": found.0, "cosine_approximated": found.1 });
        let mut more = String::new();
        let [clear, private] = [&answer.clear, &answer.private].map(|logits| labels::named(&model.public, logits));
        if classifies {
            match clear.is_some() {
                true => {
                    object["same_label"] = json!(clear == private);
                    more += if clear == private { ", the same label" } else { ", ANOTHER LABEL" };
                }
                // A cosine says nothing of a single number.
                false => {
                    let apart = labels::farthest(&answer.clear, &answer.private);
                    object["difference"] = json!(apart);
                    more += &format!(", differing by at most {apart:.2e}");
                }
            }
        }
        out.result(object, || {
            format!(
                "{name} {index:<4} cosine to the clear {of} {:.6}, of the approximation alone {:.6}{more}",
                found.0, found.1
            )
        })?;
    }
    for at in report.positions.iter().filter(|at| !at.agrees()) {
        out.result(json!({ "differs": at }), || {
            format!(
                "text {:<4} row {:<4} token {} privately, {} in the clear by {:.4}",
                at.text, at.row, at.private, at.clear, at.margin
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
    match report.positions.is_empty() {
        true => end(out, &report, scores),
        false => end_of_tokens(out, items.len(), &report),
    }
}

/// Reports how many of a generator's next tokens are the same.
fn end_of_tokens(out: &Output, texts: usize, report: &Report) -> Result<(), CliError> {
    let same = |sure: bool| {
        let those = report.positions.iter().filter(|at| !sure || at.margin > SURE);
        let agree = those.clone().filter(|at| at.agrees()).count();
        (those.count(), agree)
    };
    let ((all, agree), (sure, sure_agree)) = (same(false), same(true));
    let worst = report.worst_stage().map(|s| s.stage.clone());
    let object = json!({
        "texts": texts,
        "positions": all,
        "agree": agree,
        "sure": sure,
        "sure_agree": sure_agree,
        "worst_stage": worst,
    });
    out.summary(
        object,
        &format!(
            "{}: of {all} tokens that follow a row, {agree} are those of the clear model; of {sure} whose clear logit leads by more \
             than {SURE}, {sure_agree}; most is lost in {}",
            counted(texts, "text"),
            worst.as_deref().unwrap_or("no stage")
        ),
    )
}

fn end(out: &Output, report: &Report, scores: &[f64]) -> Result<(), CliError> {
    let cosines = report.answers.iter().map(|a| cosine(&a.clear, &a.private));
    let least = cosines.fold(f64::INFINITY, f64::min);
    let worst = report.worst_stage().map(|s| s.stage.clone());
    let mut end = json!({ "texts": report.answers.len(), "cosine_min": least, "worst_stage": worst });
    let mut text = format!(
        "{}; least cosine {least:.6}; most is lost in {}",
        counted(report.answers.len(), "text"),
        worst.as_deref().unwrap_or("no stage")
    );
    if !scores.is_empty() {
        let of = |pick: fn(&Answer) -> &[f64]| likeness(report.answers.iter().map(pick), scores.len());
        let (clear, private) = (of(|a| &a.clear), of(|a| &a.private));
        let agreement = rank_correlation(&clear, &private);
        let clear = rank_correlation(&clear, scores);
        let private = rank_correlation(&private, scores);
        end["rank_correlation"] = json!({ "clear": clear, "private": private, "agreement": agreement });
        text += &format!(
            "; rank correlation with the labels {clear:.4} in the clear, {private:.4} privately; between the two {agreement:.6}"
        );
    }
    out.summary(end, &text)
}
