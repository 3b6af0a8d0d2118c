//! What the sessions of both protocols share: connections over TLS, the handshake, tokens, limits of a client,
//! deadlines, counters.
//!
//! At a server [`listener`] accepts connections and `greeting` makes the handshake; a client begins with `connect`.

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
