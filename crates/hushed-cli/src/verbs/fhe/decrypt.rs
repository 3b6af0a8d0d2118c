//! `hushed decrypt`: decrypts the reply to a batch.

use std::path::PathBuf;

use hushed_serve::fhe::{self, Answer, Head};
use serde_json::{Value, json};

use super::encrypt::Files;
use crate::connect::at_least_one;
use crate::error::CliError;
use crate::output::{Output, answer, answer_text};

/// Decrypt the answers of a run
#[derive(clap::Args)]
#[command(
    after_help = "Numbers are rounded to what the manifest certifies. If it has a canary, the canary's answer is compared with the published one, here
and nowhere else. If it differs, the batch cannot be trusted: nothing is printed without --anyway, and the keys are retired, so that nothing
more is encrypted for them. A right canary proves nothing about a server that cheats on single texts.

Of a decoder each text is answered with the hidden state of its last row. The likeliest next tokens are made of it here. What follows them
takes another run: to send back a token that was read from a reply would tell the server something about the key (docs/ensi.md).

Do not publish the numbers, or report them with an error: each decryption reveals a little about the secret key. Decryptions are counted.

Examples:
  hushed decrypt --manifest manifest.json --public model.public --keys keys --reply reply
  hushed decrypt --manifest manifest.json --public model.public --keys keys --reply reply --json
  hushed decrypt --manifest manifest.json --public model.public --keys keys --reply reply --top 10"
)]
pub struct Args {
    #[command(flatten)]
    files: Files,

    /// The reply
    #[arg(long, value_name = "FILE")]
    reply: PathBuf,

    /// Print the answers even if the canary's is wrong
    #[arg(long)]
    anyway: bool,

    #[command(flatten)]
    next: Next,
}

/// What is shown of a decoder's answers.
#[derive(clap::Args)]
pub struct Next {
    /// Of a decoder: so many of the likeliest next tokens of each text, with the logarithms of their probabilities
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = at_least_one)]
    top: usize,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let files = &self.files;
        let opened = fhe::decrypt(&files.plan, &files.public, &files.keys, &self.reply)?;
        show(out, &opened, self.anyway, &self.next)
    }
}

impl Next {
    /// Prints the likeliest tokens after a text.
    fn show(
        &self,
        out: &Output,
        head: &Head,
        (index, tokens): (usize, usize),
        hidden: &[f64],
    ) -> Result<(), CliError> {
        let next = head.likeliest(hidden, self.top)?;
        let listed: Vec<Value> = next
            .iter()
            .map(|t| json!({ "id": t.id, "text": t.text, "log_probability": t.log_probability }))
            .collect();
        let object = json!({ "text_index": index, "tokens": tokens, "next": listed, "hidden_state": hidden });
        out.result(object, || {
            let shown = next
                .iter()
                .map(|t| format!("{:?} {:.3}", t.text, t.log_probability));
            let shown: Vec<String> = shown.collect();
            format!("text {index}, {tokens} tokens: next {}", shown.join(", "))
        })
    }
}

/// Prints the answers, unless the canary's is wrong and they are not wanted `anyway`.
pub fn show(out: &Output, opened: &Answer, anyway: bool, next: &Next) -> Result<(), CliError> {
    match opened.check_canary() {
        Err(_) if anyway => out.note(
            "the canary's answer is not the published one: these numbers are not to be trusted",
        ),
        checked => checked?,
    }
    let labels = opened.labels.as_deref();
    let texts = opened.embeddings.iter().zip(&opened.tokens);
    for (index, (numbers, &tokens)) in texts.enumerate() {
        if let Some(head) = &opened.head {
            next.show(out, head, (index, tokens), numbers)?;
            continue;
        }
        let object = answer(index, tokens, numbers, labels);
        out.result(object, || answer_text(index, tokens, numbers, labels))?;
    }
    let canary = opened.canary;
    let object = json!({
        "texts": opened.embeddings.len(), "decryptions": opened.decryptions, "labels": labels,
        "canary": canary.map(|c| json!({ "cosine": c.cosine, "least": c.least, "good": c.is_good() })),
    });
    let told = match canary {
        Some(canary) => format!("the canary's cosine is {:.5}", canary.cosine),
        None => "the manifest has no canary".to_owned(),
    };
    out.summary(
        object,
        &format!(
            "{} text(s); {told}; {} ciphertexts opened with this key so far",
            opened.embeddings.len(),
            opened.decryptions
        ),
    )
}
