//! Why a peer is not trusted, or not understood.

/// Why there is no secure channel.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFault {
    /// The certificate shown is not the pinned one.
    #[error("the server's certificate is not the pinned one; compare the pin with the SHA-256 that the server prints")]
    WrongPin,
    /// The certificate is not signed by a trusted authority.
    #[error("the certificate is not signed by a trusted authority")]
    UnknownIssuer,
    /// The certificate is for another host.
    #[error("the server's certificate is for another host name")]
    WrongName,
    /// The certificate has expired (or this machine's clock is wrong).
    #[error("the certificate has expired, or this machine's clock is wrong")]
    Expired,
    /// The certificate is not valid yet (or this machine's clock is wrong).
    #[error("the certificate is not valid yet, or this machine's clock is wrong")]
    NotYetValid,
    /// The certificate is that of an authority.
    #[error(
        "the certificate is that of an authority: a server needs one that says basicConstraints CA:FALSE (see \
         docs/operations.md)"
    )]
    Authority,
    /// The certificate is for another key.
    #[error("the certificate is for another key than the one given")]
    OtherKey,
    /// The certificate is refused for another reason.
    #[error("the certificate is refused: {reason:?}")]
    BadCertificate {
        /// The reason as `rustls` states it.
        reason: rustls::CertificateError,
    },
    /// The peer showed no certificate where one is required.
    #[error("the peer showed no certificate")]
    NoCertificate,
    /// The peer sent a TLS alert.
    #[error("the peer refused the connection: {alert:?}")]
    Refused {
        /// The alert.
        alert: rustls::AlertDescription,
    },
    /// The received bytes are not TLS.
    #[error("the peer does not speak TLS")]
    NotTls,
    /// The ends share no version, cipher suite, key exchange or protocol name.
    #[error("the peer's TLS is incompatible (TLS 1.3 with X25519MLKEM768 is required)")]
    Incompatible,
    /// Anything else that `rustls` refuses.
    #[error("TLS failed: {reason}")]
    Other {
        /// The reason as `rustls` states it.
        reason: rustls::Error,
    },
}

impl From<rustls::Error> for TlsFault {
    fn from(reason: rustls::Error) -> Self {
        use rustls::{CertificateError as C, Error as E};
        match reason {
            E::InvalidCertificate(reason) => match reason {
                C::Expired | C::ExpiredContext { .. } => Self::Expired,
                C::NotValidYet | C::NotValidYetContext { .. } => Self::NotYetValid,
                C::UnknownIssuer => Self::UnknownIssuer,
                C::NotValidForName | C::NotValidForNameContext { .. } => Self::WrongName,
                C::ApplicationVerificationFailure => Self::WrongPin,
                // The only words for it that come through.
                C::Other(reason) if reason.to_string().contains("CaUsedAsEndEntity") => Self::Authority,
                reason => Self::BadCertificate { reason },
            },
            E::InconsistentKeys(_) => Self::OtherKey,
            E::NoCertificatesPresented => Self::NoCertificate,
            E::AlertReceived(alert) => Self::Refused { alert },
            E::InvalidMessage(_) => Self::NotTls,
            E::PeerIncompatible(_) | E::NoApplicationProtocol => Self::Incompatible,
            reason => Self::Other { reason },
        }
    }
}
