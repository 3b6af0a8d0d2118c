//! Products over RLWE: oblivious linear transformation and what it needs.

pub mod encode;
mod error;
pub mod interleave;
pub mod window;

pub use error::HeError;
