//! The server side of the handshake: hello, answer, confirmation.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_net::{Expect, Party, Session};

use super::listener::Listener;
use super::outcome::Stop;
use crate::error::ServeError;
use crate::session::agree;
use crate::session::wire::{
    self, ABORT, CONFIRM, CONFIRM_BYTES, Confirm, HELLO, Hello, MAX_GREETING, REPLY, Refusal,
    Reply, WireFault,
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

/// Receives a hello and lets `admit` decide on it; a client that is refused is told why.
pub(crate) fn admitted<T>(
    session: &mut Session,
    admit: impl FnOnce(&[u8]) -> Result<T, Stop>,
) -> Result<T, Stop> {
    let hello = session.recv(HELLO, Expect::AtMost(MAX_GREETING))?;
    let admitted = admit(&hello);
    if let Err(Stop::Refuse(refusal)) = admitted {
        session.send_vec(REPLY, Reply::Refused(refusal).encode())?;
    }
    admitted
}

/// Decodes a hello of this version and checks its token. The version comes first: a client of another version can be
/// told so and nothing else.
pub(crate) fn known(listener: &Listener, hello: &[u8]) -> Result<Hello, Stop> {
    let hello = match Hello::decode(hello) {
        Ok(hello) => hello,
        Err(WireFault::Version { .. }) => {
            return Err(Stop::Refuse(Refusal::OtherVersion {
                server: wire::VERSION,
            }));
        }
        Err(fault) => return Err(ServeError::malformed("hello")(fault).into()),
    };
    listener
        .check_token(hello.token.as_ref())
        .map_err(Stop::Refuse)?;
    Ok(hello)
}

/// Sends a welcome and checks the client's confirmation, so both sides know that they saw the same session. Returns the
/// confirmation and the identity from which this side's tag is derived.
pub(crate) fn confirmed(
    session: &mut Session,
    welcome: &Reply,
) -> Result<(Confirm, agree::Identity), Stop> {
    session.send_vec(REPLY, welcome.encode())?;
    session.flush()?;
    let identity = agree::Identity::of(session)?;
    let confirm = session.recv(CONFIRM, Expect::Exactly(CONFIRM_BYTES))?;
    let confirm = Confirm::decode(&confirm).map_err(ServeError::malformed("confirmation"))?;
    identity.check(Party::Client, &confirm.tag)?;
    Ok((confirm, identity))
}
