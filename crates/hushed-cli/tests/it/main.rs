//! Tests of the crate from outside, in one binary: linking it costs more than most of them.

#[path = "../common/mod.rs"]
mod common;

mod before_keys;
mod decoder_fhe;
mod full_disk;
mod local_verbs;
mod network_fhe;
mod prune;
mod two_processes;
mod usage;
mod verify_fhe;
