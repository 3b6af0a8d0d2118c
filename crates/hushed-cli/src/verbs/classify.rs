//! `hushed classify`: private texts or images in, the names of their classes out, with a server that sees neither.

use hushed_model::{ProblemType, ScoreFn, counted};
use hushed_mpc::Answers;
use hushed_serve::{Answered, Class};
use serde_json::json;

use crate::connect::ConnectArgs;
use crate::error::CliError;
use crate::images::{Given, Read, pixels};
use crate::input::note_shown;
use crate::output::{Output, answer_text, list};
use crate::passes::{PassArgs, Sum, progress};

/// Classify private texts or images with a server that sees neither them nor their classes
#[derive(clap::Args)]
#[command(
    after_help = "The answer is the name of the class whose logit is largest. No logit is opened, to anyone, unless the server's \
operator allows it (`serve --answers logits`): then all are, and each counts as a text against the server's \
limits. With `serve --answers top:K` the answer is the names of the K largest, in order, each of which counts as \
a text. Of classes of which several or none may be right (problem_type) the answer is the names of those whose \
probability is above the operator's threshold (`--answers above:P`). A head of one number gives that number, and \
with --json also the score that the model's folder makes of \
it; for pairs of texts see `hushed rerank`. `embed --protocol fhe` gives all logits. The server learns what it learns of `hushed embed`: how many \
texts there are and when, and how many tokens each has. Of images (PNG or JPEG) it learns how many there are and \
when: all have the size that its model reads, whatever the size of the file.

Examples:
  hushed classify --server 127.0.0.1:7450 --pin 9f86d0… \"a private question\"
  hushed classify --server 127.0.0.1:7450 --pin 9f86d0… --input texts.txt --bucket 32 --batch 8 \\
    --json
  hushed classify --server 127.0.0.1:7450 --pin 9f86d0… --image cat.jpg --image dog.png"
)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,

    #[command(flatten)]
    given: Given,

    #[command(flatten)]
    passes: PassArgs,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        note_shown(out, self.given.is_shown());
        let given = self.given.read()?;
        let options = self.passes.options();
        // All are decoded or read before the first request.
        let (mut client, (images, ids)) = self.connect.client(out, false, |offer| match &given {
            Read::Images(_) if self.passes.are_of_texts() => Err(CliError::NotForImages),
            Read::Images(files) => {
                let images = pixels(offer.public(), files)?;
                offer.images_to_run(&images, options.batch)?;
                Ok((Some(images), Vec::new()))
            }
            Read::Texts(texts) => Ok((None, offer.texts_to_classify(texts, &options)?)),
        })?;
        let setup = client.setup().time.as_secs_f64();
        out.note(&format!(
            "connected to {}, set up in {setup:.1} s; its model is {}",
            self.connect.server(),
            client.bundle_hash()
        ));
        let answers = client.answers();
        let scores = client.public().config.scores();
        match answers {
            Answers::Above(_) => out.note(&format!("the server opens which classes are likely enough ({answers})")),
            Answers::Label => {}
            _ if scores => {}
            _ => out.note(&format!(
                "the server opens more than the label ({answers}), and counts each place or logit as a text"
            )),
        }
        let (bar, advance) = progress(out, &client, given.len(), "classifying");
        let mut sum = Sum::default();
        let mut written = Ok(());
        let labels = client.public().labels().unwrap_or_default().to_vec();
        let problem = client.public().config.problem;
        let function = client.public().score;
        let what = match images {
            Some(_) => ("image", "row"),
            None => ("text", "token"),
        };
        let each = |index, answer: Answered<Class>| {
            sum.add(index, &answer);
            // The session continues to its end even if nobody reads, so that the server does not wait.
            if written.is_ok() {
                written = show(out, index, &answer, (&labels, problem, scores.then_some(function)), what);
            }
        };
        match images {
            Some(images) => {
                client.classify_images_each(&images, options.batch, Some(advance), each)?;
            }
            None => client.classify_tokens(&ids, &options, Some(advance), each)?,
        }
        bar.finish_and_clear();
        sum.made = client.made_ahead();
        let stats = client.close()?;
        written?;
        let mut end = sum.json(setup, &stats);
        if answers == Answers::Logits {
            end["labels"] = json!(labels);
        }
        out.summary(end, &sum.words(setup, &stats, what))
    }
}

fn show(
    out: &Output,
    index: usize,
    answer: &Answered<Class>,
    (labels, problem, score): (&[String], ProblemType, Option<ScoreFn>),
    (what, unit): (&str, &str),
) -> Result<(), CliError> {
    let (class, tokens) = (&answer.values, answer.tokens);
    let mut object = json!({
        "text_index": index,
        "tokens": tokens,
        "padded_tokens": answer.rows,
        "seconds": answer.pass.cost.time.as_secs_f64(),
        "texts_in_pass": answer.pass.texts,
    });
    match problem {
        ProblemType::MultiLabel => object["labels"] = json!(class.top),
        // Values, and a single score, name no label.
        ProblemType::SingleLabel if score.is_none() => object["label"] = json!(class.name()),
        ProblemType::SingleLabel | ProblemType::Regression => object["label"] = json!(null),
    }
    if let Some(logits) = &class.logits {
        object["logits"] = json!(logits);
        if let (Some(score), [logit]) = (score, logits.as_slice()) {
            object["score"] = json!(score.of(*logit));
        }
    }
    if class.top.len() > 1 && class.logits.is_none() && problem == ProblemType::SingleLabel {
        object["top"] = json!(class.top);
    }
    out.result(object, || match &class.logits {
        Some(logits) => answer_text(index, tokens, logits, Some((labels, problem))),
        None => format!("{what} {index}, {}: {}", counted(tokens, unit), list(&class.top)),
    })
}
