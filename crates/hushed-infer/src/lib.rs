//! The secure backends of a model, and the plan of their cost.
//!
//! [`twopc`] runs a model between two parties: a client with token ids and a server with weights. Both execute the same forward pass
//! of `hushed-model`; what crosses between them is in `hushed-twopc`. [`ckks`] runs it under encryption, at a server alone. [`plan`] adds up what that will cost before it runs,
//! [`approx`] computes the protocols' functions in the clear, and [`verify`] compares the three.
#![forbid(unsafe_code)]

pub mod approx;
pub mod calibrate;
pub mod ckks;
pub mod memory;
pub mod packing;
pub mod plan;
mod splitmix;
pub mod twopc;
pub mod verify;
