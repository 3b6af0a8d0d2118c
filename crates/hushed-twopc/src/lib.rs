//! Shares modulo a power of two and the two-party protocols over them. A protocol fails as its session does; what is
//! said of errors comes on top.

#![forbid(unsafe_code)]

pub mod cost;
pub mod ctx;
pub mod error;
pub mod func;
#[doc(hidden)]
#[cfg(any(test, feature = "testing"))]
pub mod fuzz;
pub mod gadget;
pub mod he;
pub mod ot;
pub mod share;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod wire;

pub use cost::Cost;
pub use ctx::Ctx;
pub use error::TwopcError;
pub use share::{BitShare, Ring, Share};
