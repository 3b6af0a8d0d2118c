//! Baselines from the papers, with which the libraries are compared. No library uses them.

pub mod bole;
pub mod ensi;
pub mod lintrans;
pub mod matmul;
pub mod naive;
pub mod packing;
