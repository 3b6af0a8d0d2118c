//! Runs between two parties: a client and a server that both take part in each text.
//!
//! * [`Server`]: holds a model's weights, accepts clients and runs its half of each text.
//! * `Client` (feature `client`): turns texts into embeddings with a server that sees neither.
//! * [`wire`]: messages between the handshake and the protocols themselves.

#[cfg(feature = "client")]
pub(crate) mod client;
pub(crate) mod server;
pub(crate) mod table;
pub mod wire;

#[cfg(feature = "client")]
pub use client::{
    Answered, Client, Cost, Embedding, Finish, GenerateOptions, Generated, Generation, OnProgress,
    Options, Pass, Progress,
};
pub use server::{Server, ServerConfig};
