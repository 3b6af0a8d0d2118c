//! Shares modulo a power of two and the two-party protocols over them.

#![forbid(unsafe_code)]

pub mod error;
pub mod he;
pub mod ot;

pub use error::TwopcError;
