//! Linear maps on slots: matrices by diagonals, the transforms of bootstrapping, and their products with ciphertexts.

mod dft;
mod diagonals;
mod error;

pub use dft::{DftFactors, Direction};
pub use diagonals::Diagonals;
pub use error::LinTransError;
