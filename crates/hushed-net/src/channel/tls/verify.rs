//! Identifies a server by the SHA-256 of its certificate.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, PeerIncompatible, RootCertStore, SignatureScheme};
use subtle::ConstantTimeEq;

use super::fingerprint;

/// Checks the pin, then that the certificate is valid now and meant for a server, then (through the handshake's
/// signature) that the peer holds its key. The name in it is ignored: the pin says more than a name.
#[derive(Debug)]
pub(super) struct PinVerifier {
    pin: [u8; 32],
    algorithms: WebPkiSupportedAlgorithms,
    no_authorities: RootCertStore,
}

impl PinVerifier {
    pub(super) fn new(pin: [u8; 32], provider: &Arc<CryptoProvider>) -> Self {
        Self { pin, algorithms: provider.signature_verification_algorithms, no_authorities: RootCertStore::empty() }
    }
}

impl ServerCertVerifier for PinVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !bool::from(fingerprint(end_entity).ct_eq(&self.pin)) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        // The pin replaces the issuer but not the dates. The path builder checks the certificate itself completely
        // before it looks for an issuer, so with no authorities "unknown issuer" means that all else is fine.
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let anchors = &self.no_authorities;
        match verify_server_cert_signed_by_trust_anchor(&parsed, anchors, &[], now, self.algorithms.all) {
            Ok(()) | Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                Ok(ServerCertVerified::assertion())
            }
            Err(reason) => Err(reason),
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
