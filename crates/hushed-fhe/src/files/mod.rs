//! The files of a run under CKKS: keys, requests, replies, checkpoints.
//!
//! Every file begins with the header common to all artefacts ([`hushed_rlwe::codec`]: magic, kind, version, hash of the
//! parameters, length). It is written under another name, synchronised and renamed, so that it exists whole or not at
//! all. The reader's expectations determine every size, and are compared with the header and the file's length before
//! anything is allocated; every piece has a digest, and nothing that does not match its digest is used.
//!
//! | file | written by | content |
//! |---|---|---|
//! | `secret` | client | the secret key |
//! | [`keys`] | client | public key and evaluation keys, identified by their id |
//! | [`exchange`] | client, server | request and reply: lists of ciphertexts |
//! | [`checkpoint`] | server | the columns between two layers |
//!
//! [`spill`] is different: temporary storage of a run.

pub mod atomic;
pub mod checkpoint;
pub mod chunked;
pub mod exchange;
pub(crate) mod fault;
pub mod keys;
#[cfg(any(feature = "client", test))]
pub mod owner;
#[cfg(any(feature = "client", test))]
pub mod secret;
pub mod spill;
#[cfg(test)]
mod tests;

pub use fault::FileError;
