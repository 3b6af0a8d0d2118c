//! TLS 1.3 with `rustls`: a secure channel whose server is always verified.
//!
//! * Key exchange: only X25519MLKEM768, so that recorded traffic stays secret from a later quantum computer. Both ends
//!   are this program, so there is no older peer to support.
//! * No resumption and no early data: every session is fresh.
//! * The client trusts a certificate authority or one pinned certificate ([`Trust`]); there is no third option.
//! * The server may ask for client certificates.

mod certificate;
mod halves;
mod verify;

use std::net::TcpStream;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

pub use certificate::{
    CertificateError, Identity, fingerprint, load_or_create_dev_certificate, read_authorities,
};

use super::Limits;
use super::stream::StreamChannel;
use crate::NetError;
use verify::PinVerifier;

/// The protocol name that both ends require; a web browser is refused in the handshake.
const PROTOCOL: &[u8] = b"hushed/1";

/// Why there is no secure channel.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsFault {
    /// The certificate shown is not the pinned one.
    #[error(
        "the server's certificate is not the pinned one; compare the pin with the SHA-256 that the server prints"
    )]
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
                reason => Self::BadCertificate { reason },
            },
            E::NoCertificatesPresented => Self::NoCertificate,
            E::AlertReceived(alert) => Self::Refused { alert },
            E::InvalidMessage(_) => Self::NotTls,
            E::PeerIncompatible(_) | E::NoApplicationProtocol => Self::Incompatible,
            reason => Self::Other { reason },
        }
    }
}

impl From<rustls::Error> for NetError {
    fn from(reason: rustls::Error) -> Self {
        Self::Tls(reason.into())
    }
}

/// How a client verifies its server.
#[derive(Clone)]
pub enum Trust {
    /// The certificate must chain to one of these authorities, name the server, and be within its dates.
    Authorities(Vec<CertificateDer<'static>>),
    /// The certificate must have this SHA-256 and be within its dates.
    Pin([u8; 32]),
}

/// Creates secure channels to servers.
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
}

impl TlsClient {
    /// A client with this trust that shows `identity` to servers that ask for one.
    ///
    /// # Errors
    /// [`NetError::Tls`] if an authority or the identity is unusable.
    pub fn new(trust: Trust, identity: Option<Identity>) -> Result<Self, NetError> {
        let provider = provider();
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(VERSIONS)?;
        let builder = match trust {
            Trust::Authorities(authorities) => builder.with_root_certificates(roots(authorities)?),
            Trust::Pin(pin) => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(PinVerifier::new(pin, &provider))),
        };
        let mut config = match identity {
            Some(identity) => builder.with_client_auth_cert(identity.chain, identity.key)?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// Secures a connected socket. `host` is the server's name or address, which a certificate from an authority must
    /// carry. Both the handshake and the channel run under `limits`.
    ///
    /// # Errors
    /// [`NetError::Tls`] with the reason; [`NetError::Timeout`]; [`NetError::PeerGone`].
    pub fn connect(
        &self,
        socket: TcpStream,
        host: &str,
        limits: Limits,
    ) -> Result<StreamChannel, NetError> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| NetError::Tls(TlsFault::WrongName))?;
        let connection = ClientConnection::new(Arc::clone(&self.config), name)?;
        halves::establish(connection.into(), socket, limits)
    }
}

/// Creates secure channels to clients.
#[derive(Clone)]
pub struct TlsServer {
    config: Arc<ServerConfig>,
}

impl TlsServer {
    /// A server with this identity. With `client_authorities`, only clients with a certificate signed by one of them
    /// are admitted.
    ///
    /// # Errors
    /// [`NetError::Tls`] if an authority or the identity is unusable.
    pub fn new(
        identity: Identity,
        client_authorities: Option<Vec<CertificateDer<'static>>>,
    ) -> Result<Self, NetError> {
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(VERSIONS)?;
        let builder = match client_authorities {
            Some(authorities) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(
                    Arc::new(roots(authorities)?),
                    provider,
                )
                .build()
                .map_err(|e| rustls::Error::General(e.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_single_cert(identity.chain, identity.key)?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// Secures an accepted socket. Both the handshake and the channel run under `limits`.
    ///
    /// # Errors
    /// As [`TlsClient::connect`].
    pub fn accept(&self, socket: TcpStream, limits: Limits) -> Result<StreamChannel, NetError> {
        let connection = ServerConnection::new(Arc::clone(&self.config))?;
        halves::establish(connection.into(), socket, limits)
    }
}

const VERSIONS: &[&rustls::SupportedProtocolVersion] = &[&rustls::version::TLS13];

fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519MLKEM768];
    Arc::new(provider)
}

fn roots(authorities: Vec<CertificateDer<'static>>) -> Result<RootCertStore, NetError> {
    let mut store = RootCertStore::empty();
    for authority in authorities {
        store.add(authority)?;
    }
    Ok(store)
}
