//! Where the server is, and what a client insists on.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::PathBuf;

use hushed_net::Shape;

use crate::bundle::Digest;
use crate::deadlines::Deadlines;
use crate::token::Token;

/// How the server's certificate is known. There is no third way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTrust {
    /// A PEM file of authorities, or of the certificate itself.
    CaFile(PathBuf),
    /// The certificate's SHA-256 in hexadecimal, as the server prints it.
    Pin(String),
}

/// The only model that a client accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BundlePin {
    /// This file, made by `hushed bundle`; it need not be fetched.
    File(PathBuf),
    /// One of this hash.
    Hash(Digest),
}

/// How to reach a server, and what to insist on. No `Debug`: it holds the token.
#[derive(Clone)]
pub struct ClientConfig {
    /// `HOST:PORT`. With [`ServerTrust::CaFile`] the certificate must carry the host.
    pub server: String,
    /// How its certificate is known.
    pub trust: ServerTrust,
    /// This client's certificate chain and key (PEM files), for servers that ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The bearer token, for servers that ask for one.
    pub token: Option<Token>,
    /// The only model to accept; `None` accepts what the server offers, and [`Client::bundle_hash`](super::Client::bundle_hash) says what that was.
    pub bundle: Option<BundlePin>,
    /// Where bundles are kept from one session to the next; `None` fetches anew each time.
    pub cache_dir: Option<PathBuf>,
    /// How long to wait for what.
    pub deadlines: Deadlines,
    /// A slower network to imitate, for measurements.
    pub shape: Option<Shape>,
}

impl ClientConfig {
    /// A client without token, pinned model or cache.
    #[must_use]
    pub fn new(server: impl Into<String>, trust: ServerTrust) -> Self {
        Self {
            server: server.into(),
            trust,
            identity: None,
            token: None,
            bundle: None,
            cache_dir: None,
            deadlines: Deadlines::default(),
            shape: None,
        }
    }
}
