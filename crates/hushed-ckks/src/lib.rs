//! CKKS: approximate arithmetic on encrypted vectors of complex numbers, with bootstrapping.
//!
//! In: vectors, ciphertexts. Out: ciphertexts with a level and a scale. Never: matrices of a model, packings, files, sockets.
#![forbid(unsafe_code)]

pub mod lintrans;
