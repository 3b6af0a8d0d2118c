//! A run on ciphertexts: the client's request, the server's computation layer by layer, and the reply.

#[cfg(any(feature = "client", test))]
pub mod client;
pub mod clock;
pub mod encrypted;
pub mod job;
pub mod prepared;
pub mod reply;
pub mod worker;
