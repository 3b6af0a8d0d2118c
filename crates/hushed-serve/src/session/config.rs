//! An operator's choices for any server: address, identity, who may connect.

use std::path::PathBuf;

use super::allowance::rate::ClientTexts;
use super::deadlines::Deadlines;

/// Most sessions at once, where nothing else is said.
pub const MAX_SESSIONS: usize = 4;

/// A server's address, identity and accepted clients.
#[derive(Clone, Debug)]
pub struct Entrance {
    /// `HOST:PORT`; port 0 takes any free one.
    pub listen: String,
    /// Its identity.
    pub identity: ServerIdentity,
    /// Whom it accepts.
    pub access: ClientAccess,
    /// Most sessions at once; more are refused.
    pub max_sessions: usize,
    /// Most texts of a client in a window of time, over all its sessions.
    pub texts_per_client: Option<ClientTexts>,
    /// How long to wait for what.
    pub deadlines: Deadlines,
    /// `HOST:PORT` of `/healthz`, `/readyz` and `/metrics`, over plain HTTP: for a loopback or an inner network.
    pub metrics_listen: Option<String>,
}

impl Entrance {
    /// For this machine alone: any free port of loopback, a development certificate, 4 sessions.
    #[must_use]
    pub fn local(certificates: impl Into<PathBuf>) -> Self {
        Self {
            listen: "127.0.0.1:0".to_owned(),
            identity: ServerIdentity::Development(certificates.into()),
            access: ClientAccess::Anyone,
            max_sessions: MAX_SESSIONS,
            texts_per_client: None,
            deadlines: Deadlines::default(),
            metrics_listen: None,
        }
    }
}

/// Whom a server accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAccess {
    /// Anyone; only on a loopback address.
    Anyone,
    /// Those with a token of this file: a line each, `sha256:` and its hexadecimal digest or the token itself.
    Tokens(PathBuf),
    /// Those with a certificate that an authority of this PEM file has signed.
    Certificates(PathBuf),
    /// Those with both.
    TokensAndCertificates {
        /// The file of tokens.
        tokens: PathBuf,
        /// The PEM file of authorities.
        authorities: PathBuf,
    },
}

impl ClientAccess {
    /// From two optional files, as arguments give them.
    #[must_use]
    pub fn new(tokens: Option<PathBuf>, authorities: Option<PathBuf>) -> Self {
        match (tokens, authorities) {
            (None, None) => Self::Anyone,
            (Some(tokens), None) => Self::Tokens(tokens),
            (None, Some(authorities)) => Self::Certificates(authorities),
            (Some(tokens), Some(authorities)) => Self::TokensAndCertificates {
                tokens,
                authorities,
            },
        }
    }
}

/// A server's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerIdentity {
    /// The self-signed certificate in this folder, made there on first use.
    Development(PathBuf),
    /// A chain and its key, PEM.
    Files {
        /// The certificate chain.
        chain: PathBuf,
        /// The key of its first certificate.
        key: PathBuf,
    },
}
