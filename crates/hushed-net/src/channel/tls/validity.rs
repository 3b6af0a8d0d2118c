//! Whether clients will accept a server's certificate, and until when.

use std::time::Duration;

use rustls::InconsistentKeys;
use rustls::client::verify_server_name;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;

use super::certificate::Identity;
use super::fault::TlsFault;
use super::provider::provider;
use super::verify::serves;

/// What is known of a certificate that clients accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// The last second at which it is valid, since 1970.
    pub until: u64,
    /// Whether it names a host: without one, only clients that pin it accept it.
    pub names: bool,
}

impl Validity {
    /// Whole days left.
    #[must_use]
    pub fn days_left(&self) -> u64 {
        self.until.saturating_sub(UnixTime::now().as_secs()) / 86_400
    }
}

/// The first second of the year 10000, since 1970.
const YEAR_10000: Duration = Duration::from_secs(253_402_300_800);

impl Identity {
    /// Checks, as every client does, that the certificate is valid and meant for a server, and that the key is its own.
    ///
    /// # Errors
    /// The fault for which clients refuse it.
    pub fn check(&self) -> Result<Validity, TlsFault> {
        let provider = provider();
        let signer = provider.key_provider.load_private_key(self.key.clone_key())?;
        let certified = CertifiedKey::new(self.chain.clone(), signer);
        match certified.keys_match() {
            Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(_) => return Err(TlsFault::OtherKey),
        }
        let certificate = certified.end_entity_cert()?;
        let algorithms = provider.signature_verification_algorithms;
        serves(certificate, UnixTime::now(), &algorithms)?;
        // No certificate is valid in the year 10000; the error says until when it is.
        let end = serves(certificate, UnixTime::since_unix_epoch(YEAR_10000), &algorithms);
        let until = match end {
            Err(rustls::Error::InvalidCertificate(rustls::CertificateError::ExpiredContext { not_after, .. })) => {
                not_after.as_secs()
            }
            _ => YEAR_10000.as_secs(),
        };
        let parsed = ParsedCertificate::try_from(certificate)?;
        let nobody = ServerName::try_from("nobody.invalid").map_err(|_| TlsFault::WrongName)?;
        let names = match verify_server_name(&parsed, &nobody) {
            Err(rustls::Error::InvalidCertificate(rustls::CertificateError::NotValidForNameContext {
                presented,
                ..
            })) => !presented.is_empty(),
            _ => true,
        };
        Ok(Validity { until, names })
    }
}
