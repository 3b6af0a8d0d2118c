//! Errors that end a gateway or keep it from starting. Refusals of requests are in `http`.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use hushed_serve::{Category, ServeError};

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The server or the connection to it failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The address cannot be used.
    #[error("could not listen on {address}: {}; choose another port, or 0 for any free one", source.kind())]
    Listen {
        /// The address as given.
        address: String,
        /// The system's error.
        source: io::Error,
    },
    /// Texts would cross a network in the clear, or anyone could send some.
    #[error(
        "{address} can be reached from other machines: give --tls-cert, --tls-key and --api-key-file, or listen on 127.0.0.1 or unix:PATH"
    )]
    OpenToStrangers {
        /// The address.
        address: SocketAddr,
    },
    /// No host name would be accepted.
    #[error("{address} stands for every address of this machine: name those that clients use with --allow-host")]
    NoHost {
        /// The address.
        address: SocketAddr,
    },
    /// A name that no request can carry.
    #[error("{option} {given:?}: {expected} is expected")]
    Name {
        /// The option.
        option: &'static str,
        /// The value given.
        given: String,
        /// What the option accepts.
        expected: &'static str,
    },
    /// Half of what TLS needs, or files that are not a certificate and key.
    #[error("TLS with {path:?}: {reason}")]
    Tls {
        /// The certificate chain's path.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A key file with no keys, or with one that could be guessed.
    #[error(
        "{path:?}, line {line}: not a key (16 to 256 visible ASCII characters, or sha256: and a digest, behind a name of its own if it has one)"
    )]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// The line number, from 1.
        line: usize,
    },
    /// A setting of 0.
    #[error("{name} must be at least 1")]
    Nothing {
        /// The name of the setting.
        name: &'static str,
    },
    /// A model whose answers no route serves.
    #[error("the gateway has no route for this model: use `hushed classify`, or `hushed embed --protocol fhe`")]
    NoRoute,
    /// The system refuses what the event loop needs.
    #[error("the gateway's loop: {0}")]
    Runtime(#[source] io::Error),
}

impl GatewayError {
    /// The category of this error.
    #[must_use]
    pub fn category(&self) -> Category {
        match self {
            Self::Serve(error) => error.category(),
            Self::Listen { .. } => Category::Network,
            Self::OpenToStrangers { .. } | Self::NoHost { .. } | Self::Name { .. } | Self::Nothing { .. } => {
                Category::Usage
            }
            Self::NoRoute => Category::Refused,
            Self::Tls { .. } | Self::KeyFile { .. } | Self::Runtime(_) => Category::Local,
        }
    }

    /// Stable name (docs/errors.md).
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Serve(error) => error.name(),
            Self::Listen { .. } => "address-in-use",
            Self::OpenToStrangers { .. } => "open-to-strangers",
            Self::NoHost { .. } | Self::Name { .. } => "usage",
            Self::Nothing { .. } => "limit",
            Self::Tls { .. } => "certificate",
            Self::KeyFile { .. } => "token-file",
            Self::NoRoute => "other-task",
            Self::Runtime(_) => "system",
        }
    }
}
