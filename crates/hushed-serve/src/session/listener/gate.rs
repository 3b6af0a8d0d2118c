//! What a listener shows its clients, and whom it accepts: read at the start, and again when the operator says so.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::PathBuf;

use hushed_net::channel::tls::{self, CertificateError};
use hushed_net::{Identity, TlsFault, TlsServer, Validity};

use crate::digest::Digest;
use crate::error::ServeError;
use crate::session::config::{ClientAccess, Entrance, ServerIdentity};
use crate::session::token::list::Accepted;

/// With fewer days left, a certificate is warned about.
const SOON: u64 = 30;

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
        let (identity, path): (Identity, &PathBuf) = match &entrance.identity {
            ServerIdentity::Development(dir) => (tls::load_or_create_dev_certificate(dir)?, dir),
            ServerIdentity::Files { chain, key } => (Identity::from_files(chain, key)?, chain),
        };
        let refused = |fault: TlsFault| CertificateError::Refused { path: path.clone(), fault };
        let validity = identity.check().map_err(refused)?;
        let fingerprint = Digest(identity.fingerprint());
        Ok(Gate { tls: TlsServer::new(identity, authorities)?, accepted, fingerprint, validity })
    }

    /// Says how long the certificate is valid.
    pub(super) fn tell(&self) {
        let days_left = self.validity.days_left();
        let certificate = self.fingerprint;
        match days_left < SOON {
            true => tracing::warn!(%certificate, days_left, "the certificate expires soon"),
            false => tracing::info!(%certificate, days_left, "the certificate is valid"),
        }
        if !self.validity.names {
            tracing::warn!(
                "the certificate names no host (subjectAltName): clients with --ca refuse it, only --pin accepts it"
            );
        }
    }
}
