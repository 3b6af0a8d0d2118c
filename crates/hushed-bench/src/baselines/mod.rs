//! What the libraries are compared with, as the papers have it. No library uses these.

pub mod bole;
pub mod lintrans;
pub mod naive;
