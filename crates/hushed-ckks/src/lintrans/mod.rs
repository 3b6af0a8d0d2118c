//! Linear maps on slots: matrices as diagonals, the transforms of bootstrapping, and their products with ciphertexts.

mod apply;
mod common;
mod compact;
mod dft;
mod diagonals;
mod error;
mod memory;
mod pass;
mod split;
mod store;
mod stored;
mod transform;

pub(crate) use common::Common;
pub use compact::{CompactEncoder, CompactPlain};
pub use dft::{DftFactors, Direction};
pub use diagonals::Diagonals;
pub use error::LinTransError;
pub(crate) use memory::Pair;
pub(crate) use split::stride;
pub use split::{CostModel, Giant, Split};
pub use transform::{LinearTransform, Method, Options, Parts};

#[cfg(test)]
mod stored_tests;
#[cfg(test)]
mod tests;
