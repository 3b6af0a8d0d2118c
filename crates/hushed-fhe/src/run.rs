//! A run on ciphertexts: what a client sends, what a server computes from it layer by layer, and what goes back.

#[cfg(any(feature = "client", test))]
pub mod client;
pub mod clock;
pub mod encrypted;
pub mod job;
pub mod reply;
