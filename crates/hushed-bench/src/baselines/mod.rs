//! Baselines from the papers that the libraries are compared with. No library uses them.

pub mod bole;
pub mod lintrans;
pub mod matmul;
pub mod naive;
pub mod packing;
