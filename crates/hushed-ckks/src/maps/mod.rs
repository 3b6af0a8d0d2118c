//! Linear maps between several vectors of slots: one set of rotated inputs for all outputs.
//!
//! [`MapGrid`] is a grid of matrices by diagonals, outputs × inputs; [`GridSplit`] cuts it into rotations of inputs and
//! of sums; [`PreparedGrid`] is the grid encoded for ciphertexts of one length, and multiplies them:
//!
//! ```text
//! Y_o = Σ_G Rot_G( Σ_(i, b) Rot_(−G)(d_(o, i, G + b)) ⊙ Rot_b(X_i) )
//! ```
//!
//! Double-hoisted as [`crate::lintrans`] (one vector in, one out), after Bossuat, Mouchet, Troncoso-Pastoriza and
//! Hubaux, EUROCRYPT 2021, Algorithm 6. Here diagonals repeat, the same small matrices acting on every run of `period`
//! slots, and their sums are matrix products.

mod apply;
mod grid;
mod prepared;
mod split;
#[cfg(test)]
mod tests;

pub use grid::MapGrid;
pub use prepared::{GridOptions, PreparedGrid};
pub use split::GridSplit;
