//! Server and client processes and the messages between them.
//!
//! * [`session`]: what the sessions of both protocols share, from the accepted socket to the end of the handshake.
//! * [`twopc`]: a [`Server`] that holds a model's weights, and a [`Client`](twopc) (feature `client`) that takes part
//!   in running each text.
//! * [`fhe`]: runs under encryption, through files or a connection, with messages of its own after the handshake.
//! * [`bundle`]: the public part of a model, identified by its hash; a client needs it and a server offers it.
//!
//! A two-party session, one message per line:
//!
//! ```text
//! client → server  hello     versions, agreement hash, the bundle insisted on, the bearer token, how long it waits
//! server → client  waiting   its place in the queue, while all sessions are taken
//! server → client  welcome   (or a refusal) bundle, agreement hash, limits
//! client → server  confirm   H(TLS exporter ‖ transcript), whether the bundle is wanted
//! server → client  bundle    if wanted
//! server → client  ready     its own confirmation
//!        ⇄         keys and correlations, once
//!        ⇄         the table of token vectors, where it is public and asked for
//! client → server  request   the number of rows (tokens and padding) of each text of a pass
//! server → client  answer    acceptance or a refusal
//!        ⇄         the protocols of the pass; then the next request, until the client ends the session
//! ```
//!
//! Nothing that depends on a text or a weight is sent before both sides have checked the other's confirmation.
#![forbid(unsafe_code)]

// Code shared by unit and integration tests refers to this crate by its name.
#[cfg(test)]
extern crate self as hushed_serve;

#[cfg(feature = "arguments")]
mod arguments;
pub mod bundle;
mod category;
#[cfg(feature = "arguments")]
pub mod command_line;
pub mod core_dumps;
mod digest;
pub mod error;
pub mod fhe;
mod files;
pub mod folders;
#[doc(hidden)]
pub mod fuzz;
mod identity;
#[cfg(feature = "logging")]
pub mod logging;
pub mod session;
pub mod signals;
pub mod twopc;

#[cfg(feature = "arguments")]
pub use arguments::{Protocol, ServeArguments, ServeConfig, size};
pub use bundle::Bundle;
pub use digest::{Digest, NotADigest};
pub use error::{Category, ServeError};
pub use files::read_secrets;
pub use identity::ServingIdentity;
pub use session::allowance::rate::{ClientLimits, CountsFault, Rate};
pub use session::config::{ClientAccess, Entrance, MAX_SESSIONS, MAX_WAITING, ServerIdentity, host};
#[cfg(feature = "client")]
pub use session::connect::{BundlePin, ClientConfig, FilePins, Net, OnWait, ServerTrust, Unpinned};
pub use session::deadlines::Deadlines;
pub use session::listener::Listener;
pub use session::metrics::LATENCIES;
pub use session::token::Token;
pub use session::wire::{Refusal, Waiting};
pub use twopc::wire::{MAX_AHEAD, MAX_DRAFTS};
#[cfg(feature = "client")]
pub use twopc::{
    Answered, Class, Client, Cost, Drafted, Embedding, Encoded, Encoder, Facts, Finish, Found, GenerateOptions,
    Generated, Generation, Greeted, Kept, Made, Offer, OnProgress, Options, Pass, Progress, Score, Sent, Spent, Watch,
    Work,
};
pub use twopc::{Document, IndexFault, IndexFile, MAX_PASS_TOKENS, Record, Server, ServerConfig, read_prefix};

pub use hushed_model::{ChatError, Kind, Message, Prompt, Public, Role, ScoreFn, Task, TooLong};
pub use hushed_mpc::{Hit, Later, Penalties, StepCost, Terms, Wanted};
pub use hushed_net::{Shape, Stats};
