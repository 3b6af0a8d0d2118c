//! Tests of the crate from outside, in one binary: linking it costs more than most of them.

#[path = "../common/mod.rs"]
mod common;

mod ahead;
mod architectures;
mod decode;
mod drafts;
mod golden;
mod images;
mod links;
mod minilm;
mod pairs;
mod prefix;
mod search;
mod stress;
mod ternary;
mod tiny;
mod vanish;
mod verify;
