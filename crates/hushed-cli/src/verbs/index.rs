//! `hushed index`: documents of an operator, embedded in the clear, for private searches.

mod documents;

use std::path::PathBuf;

use hushed_model::{Model, counted};
use hushed_serve::{IndexFile, ServeError};
use serde_json::json;

use crate::error::CliError;
use crate::output::Output;
use crate::overwrite::Overwrite;

/// Make an index of your documents, in the clear, for clients of `hushed serve --index` to search with private queries
#[derive(clap::Args)]
#[command(
    after_help = "The documents are a file with one a line, or objects with a \"text\" and, if you like, an \"id\" and \
\"metadata\" of any kind: a .jsonl file with one a line, or a .json file with a list of them. A document is \
known by its place, from 0, and by its id. It is embedded by as many of its tokens as the model takes. What a \
search returns of it is its record: the first --record-bytes bytes of its id, metadata and text, of the same \
length for all, so that the server does not see which was fetched.

With --vectors the embeddings are not computed but read: a safetensors file whose tensor \"vectors\" (f32) has a \
row a document, of any length but zero. They must be the server's model's own, which nothing checks.

With --add an existing index gets the documents behind its own, with --remove or --remove-id it loses some; \
later ones then move up, and keep their ids.

Examples:
  hushed index DIR documents.jsonl --out documents.index
  hushed index DIR notes.txt --record-bytes 0 --out notes.index
  hushed index DIR more.jsonl --add documents.index --out documents.index
  hushed index DIR --add documents.index --remove 3,17 --out documents.index
  hushed index DIR documents.jsonl --vectors documents.safetensors --out documents.index"
)]
pub struct Args {
    /// The server's model folder
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// The documents
    #[arg(value_name = "DOCUMENTS", required_unless_present_any = ["remove", "remove_id"])]
    documents: Option<PathBuf>,

    /// The file to write
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Bytes of each document's record, at most 4096: its id, its metadata and the beginning of its text, which a
    /// search returns; 0 returns only places
    #[arg(long, value_name = "N", default_value_t = 512, conflicts_with = "add")]
    record_bytes: usize,

    /// Embeddings of these documents by the same model, computed elsewhere
    #[arg(long, value_name = "FILE", requires = "documents")]
    vectors: Option<PathBuf>,

    /// An index whose documents come before these
    #[arg(long, value_name = "FILE")]
    add: Option<PathBuf>,

    /// Places of documents to remove from that index
    #[arg(long, value_name = "PLACES", value_delimiter = ',', requires = "add")]
    remove: Vec<usize>,

    /// Ids of documents to remove from that index
    #[arg(long, value_name = "IDS", value_delimiter = ',', requires = "add")]
    remove_id: Vec<String>,

    #[command(flatten)]
    overwrite: Overwrite,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let documents = match &self.documents {
            Some(path) => documents::read(path)?,
            None => Vec::new(),
        };
        // An index that is taken further is written in its own place.
        if self.add.as_ref() != Some(&self.out) {
            self.overwrite.check(&self.out)?;
        }
        let model = Model::load(&self.dir)?;
        let mut index = match &self.add {
            Some(path) => IndexFile::read(path)?,
            None => IndexFile::empty(&model, self.record_bytes)?,
        };
        let mut removed = self.remove.clone();
        removed.extend(index.places(&self.remove_id).map_err(ServeError::from)?);
        index.remove(&removed).map_err(ServeError::from)?;
        match &self.vectors {
            Some(path) => index.add_ready(&model, &documents, path)?,
            None => {
                let bar = out.progress(documents.len() as u64, "embedding");
                index.add(&model, &documents, || bar.inc(1))?;
                bar.finish_and_clear();
            }
        }
        index.write(&self.out)?;
        let (documents, bytes) = (index.documents(), index.record_bytes());
        out.summary(
            json!({ "documents": documents, "record_bytes": bytes, "index": self.out }),
            &format!(
                "{}, of which a search returns {} each, in {}\n\
                 serve it:  hushed serve {} --index {}",
                counted(documents, "document"),
                counted(bytes, "byte"),
                self.out.display(),
                self.dir.display(),
                self.out.display()
            ),
        )
    }
}
