//! `hushed decrypt`: decrypts the reply to a batch.

use std::path::PathBuf;

use hushed_serve::fhe::{self, Answer};
use serde_json::json;

use super::encrypt::Files;
use crate::error::CliError;
use crate::output::{Output, answer, answer_text};

/// Decrypt the answers of a run
#[derive(clap::Args)]
#[command(
    after_help = "Numbers are rounded to what the manifest certifies. If it has a canary, the canary's answer is compared with the published one, here
and nowhere else. If it differs, the batch cannot be trusted: nothing is printed without --anyway, and the keys are retired, so that nothing
more is encrypted for them. A right canary proves nothing about a server that cheats on single texts.

Do not publish the numbers, or report them with an error: each decryption reveals a little about the secret key. Decryptions are counted.

Examples:
  hushed decrypt --manifest manifest.json --public model.public --keys keys --reply reply
  hushed decrypt --manifest manifest.json --public model.public --keys keys --reply reply --json"
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
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let files = &self.files;
        let opened = fhe::decrypt(&files.plan, &files.public, &files.keys, &self.reply)?;
        show(out, &opened, self.anyway)
    }
}

/// Prints the answers, unless the canary's is wrong and they are not wanted `anyway`.
pub fn show(out: &Output, opened: &Answer, anyway: bool) -> Result<(), CliError> {
    if let Some(canary) = opened.canary.filter(|canary| !canary.is_good()) {
        if !anyway {
            let (found, least) = (canary.cosine, canary.least);
            return Err(CliError::Canary { found, least });
        }
        out.note(
            "the canary's answer is not the published one: these numbers are not to be trusted",
        );
    }
    let labels = opened.labels.as_deref();
    let texts = opened.embeddings.iter().zip(&opened.tokens);
    for (index, (numbers, &tokens)) in texts.enumerate() {
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
