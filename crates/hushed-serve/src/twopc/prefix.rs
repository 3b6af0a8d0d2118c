//! What precedes every text that is continued: a text of the operator's, known to clients by length and hash, or the
//! public head of the model's own folder, which a text begins with or not.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::Path;
use std::sync::Arc;

use hushed_model::tokens::MAX_TEXT_BYTES;
use hushed_model::{Program, Public, TokenIds, without_mark};
use hushed_mpc::{MAX_PREFIX, Prefix, TextCache};

use crate::bundle;
use crate::error::ServeError;
use crate::files;
use crate::session::wire::{PrefixFacts, PrefixKind};

/// Reads the text of a file as it is, without a byte order mark.
///
/// # Errors
/// [`ServeError::File`]; [`ServeError::NotText`].
pub fn read_prefix(path: &Path) -> Result<String, ServeError> {
    let bytes = files::read(path, MAX_TEXT_BYTES as u64)?;
    String::from_utf8(without_mark(&bytes).to_vec()).map_err(|_| ServeError::NotText { path: path.to_owned() })
}

impl PrefixFacts {
    /// What a client knows of a public head, from the same folder.
    pub(crate) fn of_head(head: &[u32]) -> Self {
        let bytes: Vec<u8> = head.iter().flat_map(|id| id.to_le_bytes()).collect();
        Self {
            tokens: u32::try_from(head.len()).unwrap_or(u32::MAX),
            text: bundle::hash(&bytes),
            kind: PrefixKind::Head,
        }
    }

    /// Whether a text may begin with this many of its tokens: a text of the operator's is before every other one as a
    /// whole.
    fn takes(&self, rows: u32) -> bool {
        match self.kind {
            PrefixKind::Text => rows == self.tokens,
            PrefixKind::Head | PrefixKind::NeededHead => rows <= self.tokens,
        }
    }
}

impl Offered {
    /// The cache of a text that begins with this many of its tokens; `None` for a number that is not possible.
    pub(super) fn cache(&self, rows: u32) -> Option<TextCache> {
        self.facts.takes(rows).then(|| match rows == self.facts.tokens {
            true => TextCache::after(Arc::clone(&self.prefix)),
            false => TextCache::after(Arc::new(self.prefix.first(rows as usize))),
        })
    }
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
                kind: PrefixKind::Text,
            },
            tokens,
        })
    }

    /// The public head of a folder, if it has one.
    pub(super) fn head(public: &Public) -> Option<Self> {
        let head = public.head();
        let head = head.get(..head.len().min(MAX_PREFIX)).filter(|head| !head.is_empty())?;
        Some(Self { facts: PrefixFacts::of_head(head), tokens: TokenIds::new(head.to_vec()) })
    }

    /// Its tokens.
    pub(super) fn ids(&self) -> &[u32] {
        self.tokens.ids()
    }

    /// Says whether the model takes only texts that begin with it.
    pub(super) fn needed(&mut self, needed: bool) {
        if self.facts.kind != PrefixKind::Text && needed {
            self.facts.kind = PrefixKind::NeededHead;
        }
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
