//! The residual stream while a block of a decoder's layer runs.

use hushed_ckks::poly::Arithmetic;

use crate::error::FheError;
use crate::ops::acts::{Acts, StoredActs};
use crate::ops::paired::BLOCK;
use crate::slots::Slots;

/// The residual stream while a block runs.
pub(super) enum Beside<S: Slots> {
    /// In memory.
    Columns(Acts<S::Value>),
    /// On disk, with the primes that the sum reads.
    Stored(StoredActs<S>),
}

impl<S: Slots> Beside<S> {
    /// The bound of the columns, and their vectors in blocks.
    pub fn blocks(self, on: &S) -> (f64, Blocks<'_, S>) {
        match self {
            Beside::Columns(x) => {
                let gain = x.gain.first().copied().unwrap_or(1.0);
                let mut rest = x.columns.into_iter();
                let next = move || {
                    let block: Vec<S::Value> = rest.by_ref().take(BLOCK).collect();
                    (!block.is_empty()).then_some(Ok(block))
                };
                (gain, Box::new(std::iter::from_fn(next)))
            }
            Beside::Stored(x) => {
                let gain = x.gain().first().copied().unwrap_or(1.0);
                (gain, Box::new(x.blocks(on)))
            }
        }
    }
}

/// Vectors in blocks.
pub(super) type Blocks<'a, S> = Box<dyn Iterator<Item = Result<Vec<<S as Arithmetic>::Value>, FheError>> + 'a>;
