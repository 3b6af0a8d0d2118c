//! `hushed classify`: private texts in, the names of their classes out, with a server that sees neither.

use hushed_serve::{Answered, Client};
use serde_json::json;

use crate::connect::ConnectArgs;
use crate::error::CliError;
use crate::input::Texts;
use crate::output::Output;
use crate::passes::{PassArgs, Sum, progress};

/// Classify private texts with a server that sees neither text nor class
#[derive(clap::Args)]
#[command(
    after_help = "The answer is the name of the class whose logit is largest. No logit is opened, to anyone; `embed --protocol fhe` gives them all.
The server learns what it learns of `hushed embed`: how many texts there are and when, and how many tokens each has.

Examples:
  hushed classify --server 127.0.0.1:7450 --pin 9f86d0… \"a private question\"
  hushed classify --server 127.0.0.1:7450 --pin 9f86d0… --input texts.txt --bucket 32 --batch 8 --json"
)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,

    #[command(flatten)]
    texts: Texts,

    #[command(flatten)]
    passes: PassArgs,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let texts = self.texts.read()?;
        let mut client = Client::connect(&self.connect.config()?)?;
        let setup = client.setup().time.as_secs_f64();
        out.note(&format!(
            "connected to {}, set up in {setup:.1} s; its model is {}",
            self.connect.server(),
            client.bundle_hash()
        ));
        let (bar, advance) = progress(out, &client, texts.len(), "classifying");
        let mut sum = Sum::default();
        let mut written = Ok(());
        let options = self.passes.options();
        client.classify_each(&texts, options, Some(advance), |index, answer| {
            sum.add(index, &answer);
            // The session continues to its end even if nobody reads, so that the server does not wait.
            if written.is_ok() {
                written = show(out, index, &answer);
            }
        })?;
        bar.finish_and_clear();
        let stats = client.close()?;
        written?;
        out.summary(sum.json(setup, &stats), &sum.text(setup, &stats))
    }
}

fn show(out: &Output, index: usize, answer: &Answered<String>) -> Result<(), CliError> {
    let object = json!({
        "text_index": index,
        "tokens": answer.tokens,
        "padded_tokens": answer.rows,
        "label": answer.values,
        "seconds": answer.pass.cost.time.as_secs_f64(),
        "texts_in_pass": answer.pass.texts,
    });
    let tokens = answer.tokens;
    out.result(object, || {
        format!("text {index}, {tokens} tokens: {}", answer.values)
    })
}
