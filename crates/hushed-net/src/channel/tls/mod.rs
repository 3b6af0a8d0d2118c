//! TLS 1.3 with `rustls`: a secure channel whose server is always verified.
//!
//! * Key exchange: only X25519MLKEM768, so that recorded traffic stays secret from a later quantum computer. Both ends
//!   are this program, so there is no older peer to support.
//! * No resumption and no early data: every session is fresh.
//! * The client trusts a certificate authority or one pinned certificate ([`Trust`]); there is no third option.
//! * The server may ask for client certificates.

mod certificate;
mod fault;
mod halves;
mod provider;
mod validity;
mod verify;

use std::net::TcpStream;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

pub use certificate::{
    CertificateError, DEV_IDENTITY, Identity, Trust, fingerprint, key_fingerprint, load_or_create_dev_certificate,
    read_authorities,
};
pub use fault::TlsFault;
pub use validity::Validity;

use super::Limits;
use super::stream::StreamChannel;
use crate::NetError;
use provider::provider;
use verify::PinVerifier;

/// The protocol name that both ends require; a web browser is refused in the handshake.
const PROTOCOL: &[u8] = b"hushed/1";

impl From<rustls::Error> for NetError {
    fn from(reason: rustls::Error) -> Self {
        Self::Tls(reason.into())
    }
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
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(VERSIONS)?;
        let builder = match trust {
            Trust::Authorities(authorities) => builder.with_root_certificates(roots(authorities)?),
            Trust::Pin(pin) => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(PinVerifier::new(vec![pin], &provider)))
            }
            Trust::Pins(pins) => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(PinVerifier::new(pins, &provider)))
            }
        };
        let mut config = match identity {
            Some(identity) => builder.with_client_auth_cert(identity.chain, identity.key)?,
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.resumption = Resumption::disabled();
        Ok(Self { config: Arc::new(config) })
    }

    /// Secures a connected socket. `host` is the server's name or address, which a certificate from an authority must
    /// carry. Both the handshake and the channel run under `limits`.
    ///
    /// # Errors
    /// [`NetError::Tls`] with the reason; [`NetError::Timeout`]; [`NetError::PeerGone`].
    pub fn connect(&self, socket: TcpStream, host: &str, limits: Limits) -> Result<StreamChannel, NetError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| NetError::Tls(TlsFault::WrongName))?;
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
    pub fn new(identity: Identity, client_authorities: Option<Vec<CertificateDer<'static>>>) -> Result<Self, NetError> {
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(VERSIONS)?;
        let builder = match client_authorities {
            Some(authorities) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authorities)?), provider)
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
        Ok(Self { config: Arc::new(config) })
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

fn roots(authorities: Vec<CertificateDer<'static>>) -> Result<RootCertStore, NetError> {
    let mut store = RootCertStore::empty();
    for authority in authorities {
        store.add(authority)?;
    }
    Ok(store)
}
