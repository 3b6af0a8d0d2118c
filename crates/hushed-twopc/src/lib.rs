//! Shares modulo a power of two, and the two-party protocols over them. Every protocol can fail as its session does;
//! the errors documented for it come on top of that.

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
pub mod link;
pub mod ot;
pub mod share;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod wire;

pub use cost::Cost;
pub use ctx::Ctx;
pub use error::TwopcError;
pub use link::Link;
pub use share::{BitShare, Ring, Share};
