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

/// Checks that the certificate has one of the pins, then that the certificate is valid now and meant for a server, then
/// (through the handshake's signature) that the peer holds its key. The name in it is ignored: the pin says more than a
/// name.
#[derive(Debug)]
pub(super) struct PinVerifier {
    pins: Vec<[u8; 32]>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl PinVerifier {
    pub(super) fn new(pins: Vec<[u8; 32]>, provider: &Arc<CryptoProvider>) -> Self {
        Self { pins, algorithms: provider.signature_verification_algorithms }
    }
}

/// Checks that a certificate is valid at this time and meant for a server, whoever signed it.
pub(super) fn serves(
    certificate: &CertificateDer<'_>,
    at: UnixTime,
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    // The path builder checks the certificate itself completely before it looks for an issuer, so with no authorities
    // "unknown issuer" means that all else is fine.
    let nobody = RootCertStore::empty();
    match verify_server_cert_signed_by_trust_anchor(&parsed, &nobody, &[], at, algorithms.all) {
        Ok(()) | Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)) => Ok(()),
        Err(reason) => Err(reason),
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
        let shown = fingerprint(end_entity);
        if !self.pins.iter().any(|pin| bool::from(shown.ct_eq(pin))) {
            return Err(CertificateError::ApplicationVerificationFailure.into());
        }
        // The pin replaces the issuer but not the dates.
        serves(end_entity, now, &self.algorithms).map(|()| ServerCertVerified::assertion())
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
