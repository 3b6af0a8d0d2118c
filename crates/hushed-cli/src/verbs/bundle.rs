//! `hushed bundle`: the public part of a model, which a client may pin.

use std::path::PathBuf;

use hushed_serve::Bundle;
use serde_json::json;

use crate::error::CliError;
use crate::output::Output;
use crate::overwrite::Overwrite;

/// Print the hashes of a model's public part, which clients may pin, and write it to a file
#[derive(clap::Args)]
#[command(
    after_help = "The bundle holds configuration, tokenizer, chat template, pooling and agreement hash, and no weights. A client \
that has it, or its SHA-256, accepts that model only; its hash is another one after an update of Hushed that \
changes the protocol.

The hash of the tokenizer is that of the published tokenizer.json (sha256sum). That of the chat template is of a \
JSON object that holds it and the special tokens that it may name, as the bundle has it: docs/who-sees-what.md. \
Both stay the same for as long as the model is not changed, and anyone can compute them from the published \
folder.

Examples:
  hushed bundle DIR
  hushed bundle DIR model.bundle
  hushed embed --server HOST:PORT --pin SHA256 --bundle model.bundle \"a text\"
  hushed embed --server HOST:PORT --pin SHA256 --tokenizer-sha256 be50c362… \"a text\""
)]
pub struct Args {
    /// The model folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// The file to write [default: none, only the hashes are printed]
    #[arg(value_name = "OUT")]
    out: Option<PathBuf>,

    #[command(flatten)]
    overwrite: Overwrite,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        self.out.as_ref().map_or(Ok(()), |path| self.overwrite.check(path))?;
        let bundle = Bundle::from_folder(&self.dir)?;
        if let Some(path) = &self.out {
            bundle.write(path)?;
        }
        let (hash, bytes) = (bundle.hash().to_string(), bundle.bytes().len());
        let tokenizer = bundle.tokenizer_hash().map(|hash| hash.to_string());
        let template = bundle.template_hash().map(|hash| hash.to_string());
        let object = json!({
            "bundle": hash,
            "bytes": bytes,
            "tokenizer": tokenizer,
            "template": template,
            "written": self.out,
        });
        out.result(object, || {
            let written = self.out.as_ref().map(|path| path.display().to_string());
            let name = written.unwrap_or_else(|| "bundle".to_owned());
            let mut lines = vec![format!("{hash}  {name} ({bytes} bytes)")];
            lines.extend(tokenizer.map(|hash| format!("{hash}  tokenizer.json")));
            lines.extend(template.map(|hash| format!("{hash}  chat template")));
            lines.join("\n")
        })
    }
}
