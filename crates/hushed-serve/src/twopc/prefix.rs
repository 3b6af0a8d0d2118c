//! The public prefix of a server: its text, known to clients by length and hash.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::Path;
use std::sync::Arc;

use hushed_model::tokens::MAX_TEXT_BYTES;
use hushed_model::{Program, Public, TokenIds, without_mark};
use hushed_mpc::Prefix;

use crate::bundle;
use crate::error::ServeError;
use crate::files;
use crate::session::wire::PrefixFacts;

/// Reads the text of a file as it is, without a byte order mark.
///
/// # Errors
/// [`ServeError::File`]; [`ServeError::NotText`].
pub fn read_prefix(path: &Path) -> Result<String, ServeError> {
    let bytes = files::read(path, MAX_TEXT_BYTES as u64)?;
    String::from_utf8(without_mark(&bytes).to_vec()).map_err(|_| ServeError::NotText { path: path.to_owned() })
}

/// A prefix before it is run.
pub(super) struct Text {
    tokens: TokenIds,
    facts: PrefixFacts,
}

/// A prefix as a server holds it.
pub(super) struct Offered {
    pub(super) prefix: Arc<Prefix>,
    pub(super) facts: PrefixFacts,
}

impl Text {
    /// Reads the text of a file.
    pub(super) fn read(path: &Path, public: &Public) -> Result<Self, ServeError> {
        let text = read_prefix(path)?;
        let tokens = Prefix::tokens(public, &text)?;
        Ok(Self {
            facts: PrefixFacts {
                tokens: u32::try_from(tokens.rows().total).unwrap_or(u32::MAX),
                text: bundle::hash(text.as_bytes()),
            },
            tokens,
        })
    }

    /// The number of its tokens.
    pub(super) fn rows(&self) -> usize {
        self.tokens.rows().total
    }

    /// Runs the model on it.
    pub(super) fn run(self, program: &Program) -> Result<Offered, ServeError> {
        Ok(Offered { prefix: Arc::new(Prefix::run(program, self.tokens)?), facts: self.facts })
    }
}
