//! Linear maps between several vectors of slots, sharing one set of rotated inputs among all outputs.
//!
//! [`MapGrid`] is a grid of matrices as diagonals, outputs × inputs. [`GridSplit`] splits it into rotations of inputs
//! and of sums. [`PreparedGrid`] is the grid encoded for ciphertexts of one length, and multiplies them:
//!
//! ```text
//! Y_o = Σ_G Rot_G( Σ_(i, b) Rot_(−G)(d_(o, i, G + b)) ⊙ Rot_b(X_i) )
//! ```
//!
//! Double-hoisted like [`crate::lintrans`] (one vector in, one out), after Bossuat, Mouchet, Troncoso-Pastoriza and
//! Hubaux, EUROCRYPT 2021, Algorithm 6. Here diagonals repeat, because the same small matrices act on every run of
//! `period` slots, and the sums are matrix products.

mod apply;
mod grid;
mod prepared;
mod split;
#[cfg(test)]
mod tests;

pub use grid::MapGrid;
pub use prepared::{GridOptions, PreparedGrid};
pub use split::GridSplit;
