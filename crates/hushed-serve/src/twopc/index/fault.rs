//! Why an index cannot be made or used.

use std::path::PathBuf;

use hushed_model::ModelError;
use hushed_mpc::index::{MAX_DOCUMENTS, MAX_RECORD_BYTES};

/// Maximum size of an index file in bytes.
pub(super) const MAX_INDEX_BYTES: u64 = 1 << 34;

/// Why an index cannot be made or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexFault {
    /// The bytes are not an index.
    #[error("this is not an index of documents: {0}; make one with `hushed index`")]
    NotAnIndex(&'static str),
    /// It was made with another model.
    #[error("this index was made with another model: make it again with `hushed index`")]
    OtherModel,
    /// A file of embeddings, computed elsewhere, that does not fit.
    #[error(
        "{} is not a file of embeddings for these documents: it must be a safetensors file with a tensor `vectors`, f32, {documents} × {width}",
        path.display()
    )]
    NotVectors {
        /// The file.
        path: PathBuf,
        /// The number of rows expected.
        documents: usize,
        /// Their width.
        width: usize,
    },
    /// A model that gives no vectors.
    #[error("only models that embed texts have an index of documents")]
    NoVectors,
    /// No document, or too many.
    #[error("an index has 1 to {MAX_DOCUMENTS} documents, and this one would have {0}")]
    Documents(usize),
    /// Records that are too long.
    #[error("a record has at most {MAX_RECORD_BYTES} bytes")]
    RecordBytes,
    /// A document's id that is none.
    #[error("an id is a string or a whole number")]
    Id,
    /// A document's id and metadata that are longer than a record.
    #[error(
        "the id and metadata of document {place} (the first is 0) take {bytes} bytes, and a record has {limit}: make \
         records longer (--record-bytes, at most {MAX_RECORD_BYTES}), or the metadata shorter"
    )]
    Head {
        /// Its place.
        place: usize,
        /// Bytes that they take.
        bytes: usize,
        /// Bytes of a record.
        limit: usize,
    },
    /// Two documents of one id.
    #[error("two documents have the id {0:?}")]
    SameId(String),
    /// An id that no document has.
    #[error("no document has the id {0:?}")]
    NoSuchId(String),
    /// A document whose embedding a private search could not divide by its length.
    #[error(
        "document {0} (the first is 0) has an embedding whose length is zero, no number, or out of the range of private searches"
    )]
    Length(usize),
    /// A document to remove that does not exist.
    #[error("there is no document {place}: the index has {documents}, and the first is 0")]
    NoSuchPlace {
        /// What was given.
        place: usize,
        /// How many there are.
        documents: usize,
    },
    /// A file that would be too large to read again.
    #[error("an index has at most {MAX_INDEX_BYTES} bytes: make several")]
    TooLarge,
    /// A document's text.
    #[error("document {index} (the first is 0): {source}")]
    Document {
        /// Its place.
        index: usize,
        /// Why.
        source: ModelError,
    },
}
