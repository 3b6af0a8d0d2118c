//! What a listener shows its clients, and whom it accepts: read at the start, and again when the operator says so.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_net::channel::tls;
use hushed_net::{TlsServer, Validity};

use crate::digest::Digest;
use crate::error::ServeError;
use crate::identity::{self, ServingIdentity};
use crate::session::config::{ClientAccess, Entrance, ServerIdentity};
use crate::session::token::list::Accepted;

/// A certificate, and the clients that are accepted.
pub(super) struct Gate {
    pub(super) tls: TlsServer,
    pub(super) accepted: Option<Accepted>,
    pub(super) fingerprint: Digest,
    pub(super) validity: Validity,
}

impl Gate {
    /// Reads the files. A certificate that every client would refuse is refused here.
    pub(super) fn open(entrance: &Entrance) -> Result<Gate, ServeError> {
        let (accepted, authorities) = match &entrance.access {
            ClientAccess::Anyone => (None, None),
            ClientAccess::Tokens(path) => (Some(Accepted::from_file(path)?), None),
            ClientAccess::Certificates(path) => (None, Some(tls::read_authorities(path)?)),
            ClientAccess::TokensAndCertificates { tokens, authorities } => {
                (Some(Accepted::from_file(tokens)?), Some(tls::read_authorities(authorities)?))
            }
        };
        let ServingIdentity { identity, validity } = match &entrance.identity {
            ServerIdentity::Development(dir) => ServingIdentity::development(dir)?,
            ServerIdentity::Files { chain, key } => ServingIdentity::from_files(chain, key)?,
        };
        let fingerprint = Digest(identity.fingerprint());
        Ok(Gate { tls: TlsServer::new(identity, authorities)?, accepted, fingerprint, validity })
    }

    /// Says how long the certificate is valid.
    pub(super) fn tell(&self) {
        identity::tell(self.fingerprint, self.validity);
    }
}
