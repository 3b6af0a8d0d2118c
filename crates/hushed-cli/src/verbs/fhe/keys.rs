//! `hushed keys`: keys in folders, at a client or a server.

use std::path::PathBuf;

use clap::Subcommand;
use hushed_serve::fhe::{KeyStore, StoredKeys, now};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output::{Output, gib};

/// List, import or delete keys of encrypted runs, on either side
#[derive(clap::Args)]
#[command(after_help = "Examples:
  hushed keys list keys
  hushed keys list store
  hushed keys add store evaluation.keys --manifest manifest.json --owner ann --quota 20
  hushed keys delete store 9f86d081")]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// List the keys: id, owner, dates, size
    List {
        /// A key folder, a folder of key folders, or the store of `hushed serve`
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
    /// Import a client's keys into a store, after a full check
    Add {
        /// The store
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// The client's evaluation.keys
        #[arg(value_name = "KEYS")]
        keys: PathBuf,
        /// The manifest that the keys are for
        #[arg(long = "manifest", alias = "plan", value_name = "FILE", env = "HUSHED_MANIFEST")]
        plan: PathBuf,
        /// Owner of the keys
        #[arg(long, value_name = "NAME")]
        owner: String,
        /// Maximum size of an owner's keys in this store, in GiB
        #[arg(long, value_name = "GIB", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
        quota: u32,
    },
    /// Delete keys; a client cannot decrypt anything that was encrypted for them afterwards
    Delete {
        /// The folder
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Their id, or at least its first eight digits
        #[arg(value_name = "ID")]
        id: String,
    },
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        match &self.verb {
            Verb::List { dir } => {
                for keys in KeyStore::new(dir).list()? {
                    out.result(object(&keys), || line(&keys))?;
                }
                Ok(())
            }
            Verb::Add { dir, keys, plan, owner, quota } => {
                let store = KeyStore::new(dir);
                let keys = store.add(plan, keys, owner, u64::from(*quota) << 30)?;
                out.result(object(&keys), || line(&keys))
            }
            Verb::Delete { dir, id } => {
                let keys = KeyStore::new(dir).delete(id)?;
                out.result(object(&keys), || format!("deleted {}", keys.record.id))
            }
        }
    }
}

fn object(keys: &StoredKeys) -> Value {
    let record = &keys.record;
    json!({
        "id": record.id, "plan": record.plan, "parameters": record.parameters, "owner": record.owner,
        "created": record.created, "expires": record.expires, "bytes": record.bytes,
        "decryptions": record.decryptions, "retired": record.is_retired(), "secret": keys.secret, "folder": keys.folder,
    })
}

fn line(keys: &StoredKeys) -> String {
    let record = &keys.record;
    let now = now();
    let days = |seconds: u64| seconds as f64 / 86_400.0;
    let left = match record.expires.checked_sub(now) {
        Some(left) => format!("expire in {:.1} days", days(left)),
        None => "expired".to_owned(),
    };
    let whose = match (&record.owner, keys.secret) {
        (Some(owner), _) => format!("of {owner}"),
        (None, true) => {
            let retired = if record.is_retired() { ", retired" } else { "" };
            format!("with their secret, {} opened{retired}", record.decryptions)
        }
        (None, false) => "without their secret".to_owned(),
    };
    format!(
        "{}  {}  {:.2} GiB, {:.1} days old, {left}, {whose}",
        record.id,
        record.parameters,
        gib(record.bytes),
        days(now.saturating_sub(record.created)),
    )
}
