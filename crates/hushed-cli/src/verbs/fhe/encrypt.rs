//! `hushed encrypt`: a batch of private texts, encrypted for a run.

use std::path::{Path, PathBuf};

use hushed_fhe::network::AnyManifest;
use hushed_model::counted;
use hushed_serve::fhe::{self, Item, Warning};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::graphs;
use crate::input::{Given, Scorable, Truncate};
use crate::lengths::Learns;
use crate::output::Output;
use crate::running::Counting;

/// Encrypt private texts for a run
#[derive(clap::Args)]
#[command(
    after_help = "Tokens are looked up here, in the public model that belongs to the manifest, and only ciphertexts are written. \
What the server learns of lengths is in the manifest; --lengths refuses a manifest that says otherwise.

Examples:
  hushed encrypt --manifest manifest.json --public model.public --keys keys --input texts.txt \\
    --out request
  hushed encrypt --manifest manifest.json --public model.public --keys keys --out request \\
    --lengths private \"a private question\"
  hushed encrypt --manifest manifest.json --public model.public --keys keys --choices items.jsonl \\
    --out request
  hushed encrypt --manifest manifest.json --keys keys --input numbers.npy --out request   a network"
)]
pub struct Args {
    #[command(flatten)]
    texts: Scorable,

    #[command(flatten)]
    files: Files,

    /// Where the encrypted texts go
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    #[command(flatten)]
    too_long: Truncate,

    /// What the server may learn of lengths; a manifest that says otherwise is refused
    #[arg(long, value_enum, env = "HUSHED_LENGTHS")]
    lengths: Option<Learns>,
}

/// A client's files that belong together.
#[derive(clap::Args)]
pub struct Files {
    /// The run manifest
    #[arg(long = "manifest", alias = "plan", value_name = "FILE", env = "HUSHED_MANIFEST")]
    pub plan: PathBuf,

    /// The public model that belongs to it; a network (docs/networks.md) has none
    #[arg(long, value_name = "FILE", env = "HUSHED_PUBLIC")]
    public: Option<PathBuf>,

    /// The folder of keys that `hushed keygen` made
    #[arg(long, value_name = "DIR", env = "HUSHED_KEYS")]
    pub keys: PathBuf,
}

impl Files {
    /// The public model, for a manifest that is of a model.
    pub fn public(&self) -> Result<&Path, CliError> {
        self.public.as_deref().ok_or(CliError::NoPublic)
    }

    /// Whether the manifest is of a network. One that cannot be read is not: whoever reads it next says why.
    pub fn of_network(&self) -> bool {
        matches!(fhe::read_manifest(&self.plan), Ok((AnyManifest::Network(_), _)))
    }
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        if self.files.of_network() {
            let numbers = self.texts.numbers()?.filter(|_| self.lengths.is_none());
            let (given, instead) = ("choices and lengths", "numbers: --input with JSON Lines or a .npy file");
            let numbers = numbers.ok_or(CliError::OtherTask { given, instead })?;
            return graphs::encrypt(&self.files.plan, &self.files.keys, &numbers, &self.out, out);
        }
        let texts = match self.texts.read()? {
            Given::Texts(texts) => texts,
            Given::Items(items) => {
                fhe::check_items(&self.files.plan, self.files.public()?, &items)?;
                Item::texts(&items)
            }
        };
        let shown = Counting::new(out, "encrypting");
        let sent = fhe::encrypt(
            &fhe::EncryptOptions {
                plan: &self.files.plan,
                public: self.files.public()?,
                keys: &self.files.keys,
                texts: &texts,
                too_long: self.too_long.choice(),
                lengths: self.lengths.map(Learns::name),
                out: &self.out,
            },
            &mut |done, of| shown.at("encrypting", done as u64, of as u64),
        )?;
        shown.end();
        for line in Warning::lines(&sent.warnings, Warning::NAMED) {
            out.warn(&line);
        }
        let warnings: Vec<Value> = sent.warnings.iter().map(object).collect();
        let object = json!({
            "request": sent.id, "bytes": sent.bytes, "tokens": sent.tokens, "warnings": warnings,
        });
        out.result(object, || {
            let lengths = match (sent.declared.iter().min(), sent.declared.iter().max()) {
                (Some(least), Some(&most)) if most > 0 => {
                    format!("the length of each, from {least} to {most} tokens")
                }
                _ => "no lengths".to_owned(),
            };
            format!(
                "request {} of {} in {} ({:.1} MiB); the server learns {lengths}",
                sent.id,
                counted(sent.tokens.len(), "text"),
                self.out.display(),
                sent.bytes as f64 / f64::from(1 << 20)
            )
        })
    }
}

fn object(warning: &Warning) -> Value {
    match warning {
        Warning::Repetitive { text } => json!({ "text_index": text, "warning": "repetitive" }),
        Warning::Cut { text } => json!({ "text_index": text, "warning": "cut" }),
    }
}
