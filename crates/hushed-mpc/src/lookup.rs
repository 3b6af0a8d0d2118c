//! What a lookup reads.

use hushed_model::Embedding;

use crate::formats::MAX_TOKENS;

/// Which table of an embedding a lookup reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Token vectors.
    Tokens,
    /// Token vectors, which the client has.
    PublicTokens,
    /// Position vectors, as many as a text may have tokens.
    Positions,
}

impl Table {
    /// Its rows.
    pub(crate) fn rows(self, e: &Embedding) -> usize {
        match self {
            Table::Tokens | Table::PublicTokens => e.vocabulary,
            Table::Positions => e.positions.min(MAX_TOKENS),
        }
    }
}
