//! `hushed bundle`: the public part of a model, which a client may pin.

use std::path::PathBuf;

use hushed_serve::{Bundle, Digest};
use serde_json::json;

use crate::error::CliError;
use crate::output::Output;

/// Write the public part of a model, which clients may pin
#[derive(clap::Args)]
#[command(
    after_help = "The bundle holds configuration, tokenizer, pooling and agreement hash, and no weights. A client that has it accepts that model only:
  hushed embed --server HOST:PORT --pin SHA256 --bundle model.bundle \"a text\"
So does one that has the printed hash (--bundle-sha256). The hashes of tokenizer.json and of the chat template are those of the published
files: a client that has them (--tokenizer-sha256, --template-sha256) accepts any model with these.

Examples:
  hushed bundle models/all-MiniLM-L6-v2 model.bundle"
)]
pub struct Args {
    /// The model folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// The file to write
    #[arg(value_name = "OUT")]
    out: PathBuf,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let bundle = Bundle::from_folder(&self.dir)?;
        bundle.write(&self.out)?;
        let (hash, bytes) = (bundle.hash().to_string(), bundle.bytes().len());
        let shown = |hash: Option<Digest>| hash.map(|hash| hash.to_string());
        let tokenizer = shown(bundle.tokenizer_hash());
        let template = shown(bundle.template_hash());
        let object = json!({
            "bundle": hash, "bytes": bytes, "written": self.out, "tokenizer": tokenizer, "template": template,
        });
        out.result(object, || {
            let mut text = format!("{hash}  {} ({bytes} bytes)", self.out.display());
            for (name, hash) in [("tokenizer.json", tokenizer), ("chat template", template)] {
                if let Some(hash) = hash {
                    text += &format!("\n{hash}  {name}");
                }
            }
            text
        })
    }
}
