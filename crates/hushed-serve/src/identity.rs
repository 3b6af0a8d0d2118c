//! Certificates with their keys: read from private files, and checked as every client will check them.

use std::path::Path;

use hushed_net::channel::tls::{self, CertificateError};
use hushed_net::{Identity, Validity};

use crate::digest::Digest;
use crate::error::ServeError;
use crate::files;

/// With fewer days left, a certificate is warned about.
const SOON: u64 = 30;

/// Reads a certificate chain and its key, which others must not be able to read.
///
/// # Errors
/// [`ServeError::Certificate`]; `not-private`.
pub(crate) fn read(chain: &Path, key: &Path) -> Result<Identity, ServeError> {
    // The files first: if one is missing, the error is about certificates.
    let identity = Identity::from_files(chain, key)?;
    files::refuse_public(key)?;
    Ok(identity)
}

/// The identity of a server, and what is known of its certificate.
pub struct ServingIdentity {
    /// Chain and key.
    pub identity: Identity,
    /// Until when it is valid, and whether it names a host.
    pub validity: Validity,
}

impl ServingIdentity {
    /// Reads a certificate chain and its key. A certificate that every client would refuse is refused here.
    ///
    /// # Errors
    /// [`ServeError::Certificate`]; `not-private` if others can read the key.
    pub fn from_files(chain: &Path, key: &Path) -> Result<Self, ServeError> {
        Self::checked(read(chain, key)?, chain)
    }

    /// The development identity in this folder, made on first use.
    pub(crate) fn development(dir: &Path) -> Result<Self, ServeError> {
        tls::load_or_create_dev_certificate(dir)?;
        let both = dir.join(tls::DEV_IDENTITY);
        Self::checked(read(&both, &both)?, dir)
    }

    fn checked(identity: Identity, path: &Path) -> Result<Self, ServeError> {
        let validity = identity.check();
        let validity = validity.map_err(|fault| CertificateError::Refused { path: path.to_owned(), fault })?;
        Ok(Self { identity, validity })
    }

    /// Logs how long the certificate is valid.
    pub fn tell(&self) {
        tell(Digest(self.identity.fingerprint()), self.validity);
    }
}

/// Logs how long a certificate with this SHA-256 is valid.
pub(crate) fn tell(certificate: Digest, validity: Validity) {
    let days_left = validity.days_left();
    match days_left < SOON {
        true => tracing::warn!(%certificate, days_left, "the certificate expires soon"),
        false => tracing::info!(%certificate, days_left, "the certificate is valid"),
    }
    if !validity.names {
        tracing::warn!(
            "the certificate names no host (subjectAltName): clients with --ca refuse it, only --pin accepts it"
        );
    }
}
