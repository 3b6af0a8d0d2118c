//! The secure ways of running a model, and the plan of their cost.
//!
//! [`twopc`] runs a model between two parties: a client with token ids and a server with weights; what crosses between
//! them is in `hushed-twopc`. [`ckks`] runs it under encryption, at a server alone. [`plan`] says what a run between
//! two parties will cost before it runs, and [`verify`] compares it with the clear. Both protocols use [`fold`] to fold
//! scales, gains and offsets into linear layers.
#![forbid(unsafe_code)]

pub mod calibrate;
pub mod ckks;
pub mod fold;
pub mod memory;
pub mod packing;
pub mod plan;
mod splitmix;
pub mod twopc;
pub mod verify;
