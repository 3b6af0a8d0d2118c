//! An operator's settings for any server: its address, its identity and who may connect.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::allowance::rate::ClientLimits;
use super::deadlines::Deadlines;
use crate::error::ServeError;

/// The default maximum number of concurrent sessions.
pub const MAX_SESSIONS: usize = 4;

/// The default maximum number of clients that wait for a session.
pub const MAX_WAITING: usize = 128;

/// A server's address, identity and accepted clients.
#[derive(Clone, Debug)]
pub struct Entrance {
    /// `HOST:PORT`; port 0 takes any free one.
    pub listen: String,
    /// Its identity.
    pub identity: ServerIdentity,
    /// The clients it accepts.
    pub access: ClientAccess,
    /// Maximum number of concurrent sessions.
    pub max_sessions: usize,
    /// Maximum number of clients that wait for a session; more are refused, as is one that does not wait.
    pub max_waiting: usize,
    /// What a client may have in a time window, over all its sessions.
    pub per_client: Option<ClientLimits>,
    /// The deadlines of a session.
    pub deadlines: Deadlines,
    /// Once raised, tokens, certificate and authorities are read again, and the flag is lowered.
    pub reload: Arc<AtomicBool>,
    /// `HOST:PORT` of `/healthz`, `/readyz` and `/metrics`, over plain HTTP: for loopback or an internal network.
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
            max_waiting: MAX_WAITING,
            per_client: None,
            deadlines: Deadlines::default(),
            reload: Arc::default(),
            metrics_listen: None,
        }
    }

    /// Refuses addresses that are none.
    pub(crate) fn check_addresses(&self) -> Result<(), ServeError> {
        let all = [Some(&self.listen), self.metrics_listen.as_ref()];
        all.into_iter().flatten().try_for_each(|address| host(address).map(drop))
    }
}

/// The clients that a server accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientAccess {
    /// Anyone; only on a loopback address.
    Anyone,
    /// Clients with a token in this file. Each line is a token, or `sha256:` and its hexadecimal digest.
    Tokens(PathBuf),
    /// Clients with a certificate signed by an authority in this PEM file.
    Certificates(PathBuf),
    /// Clients with both.
    TokensAndCertificates {
        /// The file of tokens.
        tokens: PathBuf,
        /// The PEM file of authorities.
        authorities: PathBuf,
    },
}

impl ClientAccess {
    /// The access that two optional files imply, as given on the command line.
    #[must_use]
    pub fn new(tokens: Option<PathBuf>, authorities: Option<PathBuf>) -> Self {
        match (tokens, authorities) {
            (None, None) => Self::Anyone,
            (Some(tokens), None) => Self::Tokens(tokens),
            (None, Some(authorities)) => Self::Certificates(authorities),
            (Some(tokens), Some(authorities)) => Self::TokensAndCertificates { tokens, authorities },
        }
    }
}

/// A server's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerIdentity {
    /// The self-signed certificate in this folder, made there on first use.
    Development(PathBuf),
    /// A certificate chain and its key, in PEM.
    Files {
        /// The certificate chain.
        chain: PathBuf,
        /// The key of its first certificate.
        key: PathBuf,
    },
}

/// The host of `HOST:PORT`, without the brackets of an IPv6 address.
///
/// # Errors
/// [`ServeError::Address`] unless there is a host, and a port from 0 to 65535.
pub fn host(address: &str) -> Result<String, ServeError> {
    let wrong = || ServeError::Address { address: address.to_owned() };
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let host = host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host);
    if host.is_empty() || port.parse::<u16>().is_err() {
        return Err(wrong());
    }
    Ok(host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn hosts_of_addresses() {
        assert_eq!(host("localhost:80").unwrap(), "localhost");
        assert_eq!(host("127.0.0.1:1").unwrap(), "127.0.0.1");
        assert_eq!(host("[::1]:443").unwrap(), "::1");
        for wrong in ["", ":1", "a", "a:", "a:b", "a:65536", "a:-1"] {
            assert!(host(wrong).is_err(), "{wrong}");
        }
    }
}
