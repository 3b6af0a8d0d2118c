//! Two-party runs: client and server both take part in each text.
//!
//! * [`Server`]: holds a model's weights, accepts clients and runs its half of each text.
//! * `Client` (feature `client`): turns texts into embeddings with a server that sees neither.
//! * `Encoder` (feature `client`): many texts, from many threads, over as many sessions as they need.
//! * `Kept` (feature `client`): one session, kept between calls.
//! * [`wire`]: messages between the handshake and the protocols themselves.

#[cfg(feature = "client")]
pub(crate) mod client;
#[cfg(feature = "client")]
pub(crate) mod encoder;
pub(crate) mod index;
#[cfg(feature = "client")]
pub(crate) mod kept;
pub(crate) mod prefix;
pub(crate) mod server;
pub(crate) mod table;
pub mod wire;

#[cfg(feature = "client")]
pub use client::{
    Answered, Class, Client, Cost, Drafted, Embedding, Finish, Found, GenerateOptions, Generated, Generation, Greeted,
    Made, Offer, OnProgress, Options, Pass, Progress, Score, Sent, Work,
};
#[cfg(feature = "client")]
pub use encoder::{Encoded, Encoder, Facts, Spent, Watch};
pub use index::{Document, IndexFault, IndexFile, Record};
#[cfg(feature = "client")]
pub use kept::Kept;
pub use prefix::read_prefix;
pub use server::{MAX_PASS_TOKENS, Server, ServerConfig};
