//! Code shared by the sessions of both protocols: TLS connections, the handshake, tokens, per-client limits, deadlines
//! and counters.
//!
//! On a server, [`listener`] accepts connections and `greeting` performs the handshake; a client starts in `connect`
//! and `hello`.

pub(crate) mod agree;
pub(crate) mod allowance;
pub(crate) mod codec;
pub(crate) mod config;
#[cfg(feature = "client")]
pub(crate) mod connect;
pub(crate) mod deadlines;
pub(crate) mod greeting;
#[cfg(feature = "client")]
pub(crate) mod hello;
pub mod listener;
pub(crate) mod metrics;
pub(crate) mod outcome;
pub(crate) mod owner;
pub(crate) mod registry;
pub(crate) mod token;
pub mod wire;
