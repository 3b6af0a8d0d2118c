//! The handshake of a client: hello, answer, confirmation.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_net::{Expect, Party, Session};

use super::connect::ClientConfig;
use crate::digest::Digest;
use crate::error::ServeError;
use crate::session::agree;
use crate::session::wire::{CONFIRM, Confirm, HELLO, Hello, MAX_GREETING, READY, REPLY, Reply};

/// The client's first message, and the server's reply to it.
pub(crate) fn replied(
    session: &mut Session,
    config: &ClientConfig,
    agreement: Digest,
    pinned: Option<Digest>,
) -> Result<Reply, ServeError> {
    let hello = Hello { nonce: agree::nonce()?, agreement, pinned, token: config.token.clone() };
    session.send_vec(HELLO, hello.encode())?;
    let reply = session.recv(REPLY, Expect::AtMost(MAX_GREETING))?;
    Reply::decode(&reply).map_err(ServeError::malformed("welcome"))
}

/// Sends the client's confirmation of a welcome. Returns the identity that the server confirms too.
pub(crate) fn confirm(session: &mut Session, wants_bundle: bool) -> Result<agree::Identity, ServeError> {
    let identity = agree::Identity::of(session)?;
    let confirm = Confirm { tag: identity.tag(Party::Client), wants_bundle };
    session.send_vec(CONFIRM, confirm.encode())?;
    Ok(identity)
}

/// Checks the server's confirmation.
pub(crate) fn ready(session: &mut Session, identity: &agree::Identity) -> Result<(), ServeError> {
    let tag = session.recv(READY, Expect::Exactly(32))?;
    let tag = tag.try_into().map_err(|_| ServeError::WrongConfirmation)?;
    identity.check(Party::Server, &tag)
}
