//! Server and client processes and the messages between them.
//!
//! * [`server`]: holds a model's weights, lets clients in and runs its half of each text.
//! * `client` (feature `client`): turns texts into embeddings with a server that sees neither.
//! * [`bundle`]: the public part of a model, known by its hash, that a client needs and a server offers.
//! * [`fhe`]: runs under encryption, through files or a connection, with messages of its own once the two have greeted.
//! * [`wire`]: every message of the two outside the protocols themselves, with a total decoder.
//!
//! A session, each line a message:
//!
//! ```text
//! client → server  hello     versions, plan, the bundle insisted on, the bearer token
//! server → client  welcome   (or a refusal) bundle, plan, limits
//! client → server  confirm   H(TLS exporter ‖ transcript), whether the bundle is wanted
//! server → client  bundle    if wanted
//! server → client  ready     its own confirmation
//!        ⇄         keys and correlations, once
//!        ⇄         the table of token vectors, where it is public and asked for
//! client → server  request   the number of rows (tokens and padding) of each text of a pass
//! server → client  answer    go, or a refusal
//!        ⇄         the protocols of the pass; then the next request, until the client ends the session
//! ```
//!
//! Nothing that depends on a text or a weight is sent before both confirmations have been compared.
#![forbid(unsafe_code)]

// What unit tests share with the others names this crate as they do.
#[cfg(test)]
extern crate self as hushed_serve;

mod agree;
mod allowance;
#[cfg(feature = "arguments")]
mod arguments;
pub mod bundle;
#[cfg(feature = "client")]
pub mod client;
pub mod deadlines;
pub mod error;
pub mod fhe;
mod files;
#[doc(hidden)]
pub mod fuzz;
#[cfg(feature = "logging")]
pub mod logging;
mod metrics;
mod owner;
pub mod server;
pub mod signals;
mod table;
pub mod token;
pub mod wire;

pub use allowance::{ClientTexts, CountsFault, TextRate};
#[cfg(feature = "arguments")]
pub use arguments::{Protocol, ServeArguments, ServeConfig, size};
pub use bundle::{Bundle, Digest};
#[cfg(feature = "client")]
pub use client::{
    BundlePin, Client, ClientConfig, Cost, Embedding, Options, Pass, Progress, ServerTrust,
};
pub use deadlines::Deadlines;
pub use error::{Category, ServeError};
pub use server::{ClientAccess, Entrance, Server, ServerConfig, ServerIdentity};
pub use token::Token;
pub use wire::Refusal;

pub use hushed_infer::twopc::StepCost;
pub use hushed_model::{Kind, Public, TooLong};
pub use hushed_net::{Shape, Stats};
