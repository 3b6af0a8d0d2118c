//! What a run under CKKS leaves in files: keys, requests, replies, checkpoints.
//!
//! Every file begins with the header of all artefacts ([`hushed_rlwe::codec`]: magic, kind, version, hash of the
//! parameters, length) and is written under another name, synchronised and renamed, so that it is there whole or not at
//! all. What the reader expects decides every size, and is compared with the header and with the file's length before
//! anything is allocated; every piece has a digest, and nothing that does not match one is used.
//!
//! | file | who writes it | content |
//! |---|---|---|
//! | `secret` | client | the secret key |
//! | [`keys`] | client | public key and evaluation keys, known by their id |
//! | [`exchange`] | client, server | request and reply: lists of ciphertexts |
//! | [`checkpoint`] | server | the columns between two layers |
//!
//! Besides them, and unlike them: [`spill`], what a run puts away for a moment.

pub mod atomic;
pub mod checkpoint;
pub mod chunked;
pub mod exchange;
mod fault;
pub mod keys;
#[cfg(any(feature = "client", test))]
pub mod owner;
#[cfg(any(feature = "client", test))]
pub mod secret;
pub mod spill;
#[cfg(test)]
mod tests;

pub use fault::FileError;
