//! What the sessions of both protocols share: the way in over TLS, greetings, tokens, what a client may have,
//! deadlines, counters.
//!
//! [`listener`] accepts connections and `greeting` begins their sessions at a server; `connect` is a client's way to
//! it.

pub(crate) mod agree;
pub(crate) mod allowance;
pub(crate) mod codec;
pub(crate) mod config;
#[cfg(feature = "client")]
pub(crate) mod connect;
pub(crate) mod deadlines;
pub(crate) mod greeting;
pub mod listener;
pub(crate) mod metrics;
pub(crate) mod outcome;
pub(crate) mod owner;
pub(crate) mod registry;
pub(crate) mod token;
pub mod wire;
