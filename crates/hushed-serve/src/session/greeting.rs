//! The handshake on a server: hello, answer, confirmation.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::time::Duration;

use hushed_mpc::Link;
use hushed_net::{Expect, Party, Session};

use super::listener::Listener;
use super::outcome::Stop;
use super::owner::Owner;
use super::registry::Entry;
use crate::digest::Digest;
use crate::error::ServeError;
use crate::session::agree;
use crate::session::allowance::Charge;
use crate::session::wire::{
    self, ABORT, CONFIRM, CONFIRM_BYTES, Confirm, HELLO, Hello, MAX_GREETING, REPLY, Refusal, Reply, WireFault,
};

/// Ends a session. After a refusal the client already knows why; after a failure it is told that there was one.
pub(crate) fn closed(mut session: Session, done: Result<(), Stop>) -> Result<(), Stop> {
    match done {
        Ok(()) => Ok(session.close()?),
        Err(stop) => {
            if let Stop::Fail(_) = stop {
                session.abort(ABORT);
            }
            Err(stop)
        }
    }
}

/// What a server and its clients agree on before a session.
pub(crate) struct Agreed {
    /// The hash of what they agree on outside a model.
    pub(crate) agreement: Digest,
    /// The same of servers of the other protocol.
    pub(crate) other: Digest,
    /// Whether this one is for encrypted runs.
    pub(crate) fhe: bool,
    /// The bundle that it offers, if it offers one.
    pub(crate) bundle: Option<Digest>,
    /// The least that a session is for: a client that may not have it now is refused.
    pub(crate) least: Charge,
}

/// A client whose hello was accepted.
pub(crate) struct Guest {
    /// Who it is.
    pub(crate) owner: Owner,
    /// Whether it only looks, and has no session.
    pub(crate) looks: bool,
    /// The link that it proposes.
    pub(crate) link: Link,
}

/// Receives a hello and decides on it; a client that is refused is told why. One that only looks gets no session.
pub(crate) fn admitted(
    session: &mut Session,
    listener: &Listener,
    entry: &Entry<'_>,
    key: Option<Digest>,
    agreed: &Agreed,
) -> Result<Guest, Stop> {
    let hello = session.recv(HELLO, Expect::AtMost(MAX_GREETING))?;
    let admitted = known(&hello, listener, agreed).and_then(|(hello, link)| {
        let owner = listener.owner(hello.token.as_ref(), key);
        let looks = hello.looks && !agreed.fhe;
        if !looks {
            // Before any set-up is paid for, and before it waits for a session.
            listener.ask(&owner, agreed.least).map_err(Stop::Refuse)?;
            listener.admit(entry, session, &owner, Duration::from_secs(hello.patience.into()))?;
        }
        Ok(Guest { owner, looks, link })
    });
    if let Err(Stop::Refuse(refusal)) = admitted {
        session.send_vec(REPLY, Reply::Refused(refusal).encode())?;
    }
    admitted
}

/// Decodes a hello of this version and checks its token, what it agrees on and its link. The version comes first: a
/// client of another version can be told so and nothing else.
fn known(hello: &[u8], listener: &Listener, agreed: &Agreed) -> Result<(Hello, Link), Stop> {
    let refuse = |refusal| Err(Stop::Refuse(refusal));
    let hello = match Hello::decode(hello) {
        Ok(hello) => hello,
        Err(WireFault::Version { .. }) => {
            return refuse(Refusal::OtherVersion { server: wire::VERSION });
        }
        Err(fault) => return Err(ServeError::malformed("hello")(fault).into()),
    };
    listener.check_token(hello.token.as_ref()).map_err(Stop::Refuse)?;
    if hello.agreement == agreed.other {
        return refuse(Refusal::OtherProtocol { fhe: agreed.fhe });
    }
    if hello.agreement != agreed.agreement {
        return refuse(Refusal::OtherAgreement { server: agreed.agreement });
    }
    let [microseconds, kilobits] = hello.link;
    let Ok(link) = Link::new(microseconds, kilobits) else {
        return refuse(Refusal::NoLink);
    };
    match agreed.bundle {
        Some(server) if hello.pinned.is_some_and(|pinned| pinned != server) => refuse(Refusal::OtherBundle { server }),
        _ => Ok((hello, link)),
    }
}

/// Sends a welcome and checks the client's confirmation, so both sides know that they saw the same session. Returns the
/// confirmation and the identity from which this side's tag is derived.
pub(crate) fn confirmed(session: &mut Session, welcome: &Reply) -> Result<(Confirm, agree::Identity), Stop> {
    session.send_vec(REPLY, welcome.encode())?;
    session.flush()?;
    let identity = agree::Identity::of(session)?;
    let confirm = session.recv(CONFIRM, Expect::Exactly(CONFIRM_BYTES))?;
    let confirm = Confirm::decode(&confirm).map_err(ServeError::malformed("confirmation"))?;
    identity.check(Party::Client, &confirm.tag)?;
    Ok((confirm, identity))
}
