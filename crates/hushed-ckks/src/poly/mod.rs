//! Polynomials of ciphertexts: Paterson–Stockmeyer in both bases, and functions built from it.
//!
//! Everything is generic over [`Arithmetic`], a handful of operations that both the evaluator and a plaintext simulator
//! ([`Clear`]) implement. The same code runs encrypted and, for tests, reports and plans, on plain numbers with exact
//! levels and scales and with the errors of rescaling.
//!
//! * [`evaluate`], [`evaluate_many`], [`compose`]: depth ⌈log2(degree + 1)⌉, few products, and a result at the
//!   requested scale;
//! * [`Inverse`], [`InverseSqrt`]: Goldschmidt and Newton with relaxation, on a stated range;
//! * [`EvalMod`]: the modular reduction of bootstrapping.
//!
//! Scales are exact: no step assigns one. Where a factor is free (a coefficient, an integer multiple), it is chosen so
//! that the terms of a sum have the same scale, and the last one so that the result has the requested scale.

mod arithmetic;
mod chebyshev;
mod clear;
mod encrypted;
mod error;
mod eval_mod;
mod inverse;
mod paterson;
mod per_slot;
mod report;
mod schedule;
#[cfg(test)]
mod testing;

pub use arithmetic::{Arithmetic, SlotArithmetic, Weight};
pub use chebyshev::{Basis, Parity, Polynomial};
pub use clear::{Clear, ClearSum, ClearValue, Tally};
pub use encrypted::EncryptedSum;
pub use error::PolyError;
pub use eval_mod::{EvalMod, EvalModLiteral, EvalModReport, Gain};
pub use inverse::{Inverse, InverseSqrt};
pub use paterson::{compose, evaluate, evaluate_many, evaluate_slots, to_unit_interval};
pub use per_slot::SlotPolynomial;
pub use report::Approximation;
pub use schedule::{Cost, Ladder, Schedule};
