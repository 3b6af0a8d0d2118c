//! The handshake of a client: hello, answer, confirmation.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::time::{Duration, Instant};

use hushed_mpc::Link;
use hushed_net::{Expect, Party, Session};

use super::connect::{ClientConfig, LOOK};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::session::agree;
use crate::session::wire::{CONFIRM, Confirm, HELLO, Hello, MAX_GREETING, READY, REPLY, Reply, WireFault};

/// What a client says first.
pub(crate) struct Asked {
    /// The hash of what both must agree on outside a model.
    pub(crate) agreement: Digest,
    /// The only bundle it accepts.
    pub(crate) pinned: Option<Digest>,
    /// How long it waits for a session.
    pub(crate) patience: Duration,
    /// Whether it only looks, and wants no session.
    pub(crate) looks: bool,
    /// The link by which it wants forms to be chosen.
    pub(crate) link: Link,
}

/// The client's first message, and the server's reply to it. In between, the client may have waited for a session: for
/// how long is returned too.
pub(crate) fn replied(
    session: &mut Session,
    config: &ClientConfig,
    asked: &Asked,
) -> Result<(Reply, Duration), ServeError> {
    let hello = Hello {
        nonce: agree::nonce()?,
        agreement: asked.agreement,
        pinned: asked.pinned,
        token: config.token.clone(),
        patience: u16::try_from(asked.patience.as_secs()).unwrap_or(u16::MAX),
        looks: asked.looks,
        link: [asked.link.microseconds(), asked.link.kilobits()],
    };
    session.send_vec(HELLO, hello.encode())?;
    let (began, mut waits) = (Instant::now(), false);
    loop {
        while waits && !session.arrived(LOOK)? {
            config.check_stop()?;
        }
        let reply = session.recv(REPLY, Expect::AtMost(MAX_GREETING))?;
        match Reply::decode(&reply).map_err(ServeError::malformed("welcome"))? {
            Reply::Waiting(waiting) if !asked.patience.is_zero() => {
                if !std::mem::replace(&mut waits, true) {
                    session.set_limits(config.deadlines.in_queue(asked.patience));
                }
                if let Some(tell) = &config.on_wait {
                    tell(waiting);
                }
            }
            reply => {
                let waited = if waits { began.elapsed() } else { Duration::ZERO };
                session.set_limits(config.deadlines.before_authentication());
                return Ok((reply, waited));
            }
        }
    }
}

/// The error for a server that keeps a client waiting that does not wait.
pub(crate) fn unasked_wait() -> ServeError {
    ServeError::malformed("reply")(WireFault::Undefined { field: "tag" })
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
