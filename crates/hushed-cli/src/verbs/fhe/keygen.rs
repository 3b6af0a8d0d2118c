//! `hushed keygen`: a client's keys for runs under encryption.

use std::path::PathBuf;

use hushed_fhe::network::AnyManifest;
use hushed_fhe::plan::public_plan::Lengths;
use hushed_model::counted;
use hushed_serve::fhe::{self, KeyOrder, KeygenOptions};
use serde_json::json;

use crate::error::CliError;
use crate::output::{Output, gib};
use crate::running::Counting;

/// Make keys for encrypted runs
#[derive(clap::Args)]
#[command(
    after_help = "The folder gets secret.key, which stays here and decrypts every answer, and evaluation.keys, gigabytes that the \
server needs and that decrypt nothing. Keys are for one run manifest, and expire. Their number and size follow \
from the manifest; both are printed first, and refused above --max-keys and --max-key-bytes. Each key is checked \
against the security table before it is written.

Examples:
  hushed keygen --manifest manifest.json --out keys
  hushed keygen --manifest manifest.json --out keys --days 7"
)]
pub struct Args {
    /// The run manifest, from the server's operator
    #[arg(long = "manifest", alias = "plan", value_name = "FILE", env = "HUSHED_MANIFEST")]
    plan: PathBuf,

    /// The folder for the keys; existing keys are never overwritten
    #[arg(long, value_name = "DIR")]
    out: PathBuf,

    /// Days until they expire
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=3650), env = "HUSHED_KEY_DAYS")]
    days: u32,

    #[command(flatten)]
    most: MostKeys,
}

/// Limits on what a manifest may ask for.
#[derive(clap::Args)]
pub struct MostKeys {
    /// Maximum number of evaluation keys that the manifest may ask for
    #[arg(long, value_name = "N", default_value_t = KeygenOptions::MOST_KEYS, env = "HUSHED_MAX_KEYS")]
    max_keys: usize,

    /// Maximum size of the file of evaluation keys, such as 16GiB
    #[arg(long, value_name = "SIZE", default_value = "16GiB", value_parser = hushed_serve::size, env = "HUSHED_MAX_KEY_BYTES")]
    max_key_bytes: u64,
}

impl MostKeys {
    pub fn options(&self, days: u32) -> KeygenOptions {
        KeygenOptions { most_keys: self.max_keys, most_bytes: self.max_key_bytes, ..KeygenOptions::days(days) }
    }
}

/// A line that says what is about to be made.
pub fn told(order: KeyOrder) -> String {
    format!("the manifest asks for {}, {:.2} GiB", counted(order.keys, "key"), gib(order.bytes))
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        out.note(&told(KeyOrder::read(&self.plan)?));
        let shown = Counting::new(out, "keys");
        let options = self.most.options(self.days);
        let record = fhe::keygen(&self.plan, &self.out, options, &mut |done, of| {
            shown.at("keys", done as u64, of as u64);
        })?;
        shown.end();
        // A client compares the hash with its server's operator, and the lengths are what the server will learn.
        let lengths = match fhe::read_manifest(&self.plan)? {
            (AnyManifest::Model(plan), _) => plan.lengths,
            // All inputs have one length, which the manifest states.
            (AnyManifest::Network(_), _) => Lengths::Private,
        };
        let learns = match lengths {
            Lengths::Public => "the length of each text".to_owned(),
            Lengths::Bucket(multiple) => {
                format!("the length of each text, rounded up to a multiple of {multiple}")
            }
            Lengths::Private => "no lengths".to_owned(),
        };
        let object = json!({
            "id": record.id, "plan": record.plan, "parameters": record.parameters, "lengths": lengths,
            "created": record.created, "expires": record.expires, "bytes": record.bytes,
        });
        out.result(object, || {
            format!(
                "keys {} in {} ({:.2} GiB for the server; secret.key stays here)\nfor the manifest {}: the server learns {learns}",
                record.id,
                self.out.display(),
                gib(record.bytes),
                record.plan
            )
        })
    }
}
