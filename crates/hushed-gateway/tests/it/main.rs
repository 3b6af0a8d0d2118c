//! Tests of the gateway from outside: a server of the tiny model, a gateway in front of it, HTTP by hand.

#[path = "../common/mod.rs"]
mod common;

mod completions;
mod door;
mod embeddings;
mod harmless;
mod keys;
mod later;
mod not_ready;
mod queue;
mod search;
mod sockets;
