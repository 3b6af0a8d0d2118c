//! `hushed encrypt`: a batch of private texts, encrypted for a run.

use std::path::PathBuf;

use clap::ValueEnum;
use hushed_serve::fhe::{self, Warning};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::input::{Texts, Truncate};
use crate::output::Output;

/// Encrypt private texts for a run
#[derive(clap::Args)]
#[command(
    after_help = "Tokens are looked up here, in the public model that belongs to the plan, and only ciphertexts are written. What the server learns of
lengths is in the plan; --lengths insists on it.

Examples:
  hushed encrypt --plan plan.json --public model.public --keys keys --input texts.txt --out request
  hushed encrypt --plan plan.json --public model.public --keys keys --out request --lengths private \"a private question\""
)]
pub struct Args {
    #[command(flatten)]
    texts: Texts,

    #[command(flatten)]
    files: Files,

    /// Where the encrypted texts go
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    #[command(flatten)]
    too_long: Truncate,

    /// What the server may learn of lengths; a plan that says otherwise is refused
    #[arg(long, value_enum, env = "HUSHED_LENGTHS")]
    lengths: Option<Learns>,
}

/// What belongs together at a client.
#[derive(clap::Args)]
pub struct Files {
    /// The public plan
    #[arg(long, value_name = "FILE", env = "HUSHED_PLAN")]
    pub plan: PathBuf,

    /// The public model that belongs to it
    #[arg(long, value_name = "FILE", env = "HUSHED_PUBLIC")]
    pub public: PathBuf,

    /// The folder of keys that `hushed keygen` made
    #[arg(long, value_name = "DIR", env = "HUSHED_KEYS")]
    pub keys: PathBuf,
}

/// What the server learns of lengths.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Learns {
    /// The tokens of every text
    Public,
    /// Tokens, rounded up
    Bucket,
    /// Nothing
    Private,
}

impl Learns {
    pub fn name(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Bucket => "bucket",
            Self::Private => "private",
        }
    }
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let texts = self.texts.read()?;
        let bar = out.progress(1, "encrypting");
        let shown = bar.clone();
        let sent = fhe::encrypt(
            &self.files.plan,
            &self.files.public,
            &self.files.keys,
            &texts,
            self.too_long.choice(),
            self.lengths.map(Learns::name),
            &self.out,
            &mut |done, of| {
                shown.set_length(of as u64);
                shown.set_position(done as u64);
            },
        )?;
        bar.finish_and_clear();
        for warning in &sent.warnings {
            out.warn(&told(warning));
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
                "request {} of {} texts in {} ({:.1} MiB); the server learns {lengths}",
                sent.id,
                sent.tokens.len(),
                self.out.display(),
                sent.bytes as f64 / f64::from(1 << 20)
            )
        })
    }
}

pub fn told(warning: &Warning) -> String {
    match warning {
        Warning::Repetitive { text } => format!(
            "text {text} says the same over and over: it may leave the calibrated ranges, and its answer would then mean nothing"
        ),
        Warning::Cut { text } => format!("text {text} was cut"),
    }
}

fn object(warning: &Warning) -> Value {
    match warning {
        Warning::Repetitive { text } => json!({ "text_index": text, "warning": "repetitive" }),
        Warning::Cut { text } => json!({ "text_index": text, "warning": "cut" }),
    }
}
