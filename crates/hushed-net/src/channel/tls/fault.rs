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
    #[error("the certificate is refused: {}", of_certificate(reason))]
    BadCertificate {
        /// The reason as `rustls` states it.
        reason: rustls::CertificateError,
    },
    /// The peer showed no certificate where one is required.
    #[error("the peer showed no certificate")]
    NoCertificate,
    /// The peer sent a TLS alert.
    #[error("the peer refused the connection: {}", alert.as_str().map_or_else(|| "an unknown alert".to_owned(), spelled))]
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
    #[error("TLS failed: {}", of_tls(reason))]
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

/// Why a certificate is refused, in words.
fn of_certificate(reason: &rustls::CertificateError) -> String {
    use rustls::CertificateError as C;
    let known = match reason {
        C::BadEncoding => "it is not a well-formed certificate",
        C::Revoked => "it is revoked",
        C::BadSignature => "its signature is not by the authority that it names",
        C::InvalidPurpose | C::InvalidPurposeContext { .. } => {
            "it is not for this use (a server's certificate must allow serverAuth, a client's clientAuth)"
        }
        C::UnhandledCriticalExtension => "it has a critical extension that is not known here",
        C::Other(other) => return of_webpki(&other.0.to_string()),
        other => {
            let name = other.to_string();
            let name: String = name.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == ' ').collect();
            return match name.starts_with("UnsupportedSignatureAlgorithm") {
                true => "it is signed by a key of another kind than its authority's: is the authority the right one?"
                    .to_owned(),
                false => spelled(name.trim()),
            };
        }
    };
    known.to_owned()
}

/// The same for what the certificate library names by itself.
fn of_webpki(name: &str) -> String {
    match name {
        "CaUsedAsEndEntity" => {
            "it says that it is an authority's own (CA:TRUE), as `openssl req -x509` writes by itself; \
                                make one with basicConstraints=critical,CA:FALSE"
                .to_owned()
        }
        "EndEntityUsedAsCa" => "it is signed by a certificate that is no authority's".to_owned(),
        other => spelled(other.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default()),
    }
}

fn of_tls(reason: &rustls::Error) -> String {
    match reason {
        rustls::Error::PeerMisbehaved(_) => "the peer broke the rules of TLS".to_owned(),
        other => other.to_string(),
    }
}

/// A name such as `HandshakeFailure` as words.
fn spelled(name: &str) -> String {
    let mut words = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.push(c.to_ascii_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{AlertDescription, CertificateError as C, Error as E, InconsistentKeys, OtherError};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Named(&'static str);

    /// No message has the names of a library's types.
    #[test]
    fn reasons_are_in_words() {
        let other = |name| E::InvalidCertificate(C::Other(OtherError(Arc::new(Named(name)))));
        for (error, says) in [
            (other("CaUsedAsEndEntity"), "CA:FALSE"),
            (other("EndEntityUsedAsCa"), "no authority's"),
            (other("MaximumPathDepthExceeded"), "maximum path depth exceeded"),
            (E::InvalidCertificate(C::Revoked), "it is revoked"),
            (E::InvalidCertificate(C::InvalidPurpose), "serverAuth"),
            (E::AlertReceived(AlertDescription::HandshakeFailure), "handshake failure"),
            (E::InconsistentKeys(InconsistentKeys::KeyMismatch), "for another key"),
        ] {
            let message = TlsFault::from(error).to_string();
            assert!(message.contains(says), "{message}");
            for foreign in ["Other(", "Error(", "Error {", "KeyMismatch", "CaUsed"] {
                assert!(!message.contains(foreign), "{message}");
            }
        }
    }
}
