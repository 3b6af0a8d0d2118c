//! What a lookup reads.

use hushed_model::Embedding;
use hushed_twopc::he::{LinearShape, OltShape};

use crate::formats::{MAX_KEYS, TABLE_BITS};

/// Which table of an embedding a lookup reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    /// Token vectors, and in the last row what token type 1 adds, if the embedding has types.
    Tokens,
    /// The same if the client has them.
    PublicTokens,
    /// Position vectors, as many as a text after a public prefix may have.
    Positions,
}

impl Table {
    /// The number of rows of the table.
    pub(crate) fn rows(self, e: &Embedding) -> usize {
        match self {
            Table::Tokens | Table::PublicTokens => e.table_rows(),
            Table::Positions => e.positions.min(MAX_KEYS),
        }
    }

    /// The shape of the product of this many one-hot rows with the table.
    pub(crate) fn shape(self, e: &Embedding, places: usize) -> LinearShape {
        LinearShape { shape: OltShape { k: places, m: self.rows(e), n: e.width }, weight_bits: TABLE_BITS }
    }
}
