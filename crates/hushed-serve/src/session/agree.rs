//! The identity of a session, which both ends compute from this TLS connection and this handshake.
//!
//! id = SHA-256("hushed session 1" ‖ TLS exporter (RFC 8446, §7.5) ‖ transcript up to the welcome). Each party sends
//! its own tag derived from id. A man in the middle has two TLS connections with two exporters, so the tags differ.

use hushed_net::{Party, Session};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use crate::digest::Digest;
use crate::error::ServeError;

const EXPORTER: &[u8] = b"EXPORTER-hushed-session-1";

/// A session's identity, once hello and welcome have crossed.
pub(crate) struct Identity(Digest);

impl Identity {
    pub(crate) fn of(session: &Session) -> Result<Self, ServeError> {
        let exporter = session.exporter(EXPORTER).ok_or(ServeError::NotSecure)?;
        let hash = Sha256::new()
            .chain_update(b"hushed session 1")
            .chain_update(exporter)
            .chain_update(session.transcript_hash());
        Ok(Self(Digest(hash.finalize().into())))
    }

    /// The tag that `party` sends.
    pub(crate) fn tag(&self, party: Party) -> [u8; 32] {
        let name: &[u8] = match party {
            Party::Client => b"client",
            Party::Server => b"server",
        };
        let hash = Sha256::new().chain_update(b"hushed confirmation 1 ").chain_update(name).chain_update(self.0.0);
        hash.finalize().into()
    }

    /// Checks the tag received from `party`.
    pub(crate) fn check(&self, party: Party, shown: &[u8; 32]) -> Result<(), ServeError> {
        if bool::from(self.tag(party).ct_eq(shown)) { Ok(()) } else { Err(ServeError::WrongConfirmation) }
    }
}

/// 32 fresh bytes.
pub(crate) fn nonce() -> Result<[u8; 32], ServeError> {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).map_err(|_| ServeError::NoRandomness)?;
    Ok(nonce)
}
