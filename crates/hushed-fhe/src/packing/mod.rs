//! How the matrices of a batch of texts lie in the slots of ciphertexts (MOAI, §3, §5 and appendix D).
//!
//! A vector of slots holds one column, or one diagonal, of *every* matrix of a batch, row by row, and text by text
//! within a row ([`Interleave`]). Columns times columns give diagonals, diagonals times columns give columns, and
//! nothing is repacked. [`Columns`], [`Pairs`] of them and [`Diagonals`] are types, so a product of wrongly packed
//! operands does not compile. The products ([`products`]) are written over [`crate::Slots`], which ciphertexts and a
//! simulation both implement.

#[cfg(test)]
mod clear;
mod column;
mod diagonal;
pub mod heads;
#[cfg(test)]
pub(crate) mod heads_tests;
mod interleave;
mod layout;
mod pairs;
pub mod products;
pub mod sequences;
#[cfg(test)]
mod tests;

pub use column::Columns;
pub use diagonal::Diagonals;
pub use interleave::Interleave;
pub use layout::{Layout, Spread, Weight};
pub use pairs::Pairs;
pub(crate) use pairs::in_twos;
pub use sequences::SequencePacking;

/// Why matrices cannot be packed together; the messages name the fields.
#[allow(missing_docs)]
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackingError {
    #[error("{rows} rows per text do not divide {slots} slots; both are powers of two")]
    Rows { rows: usize, slots: usize },
    #[error("{texts} texts were given, and only {room} fit in {slots} slots at {rows} rows per text")]
    TooMany { texts: usize, room: usize, slots: usize, rows: usize },
    #[error("text {text} has {found} rows, and the packing {rows}")]
    RowCount { text: usize, found: usize, rows: usize },
    #[error("the texts take {found} places of {rows} rows, and a batch has {room} for them")]
    Places { found: usize, room: usize, rows: usize },
    #[error("the operands of a product are packed differently")]
    Mismatch,
}
