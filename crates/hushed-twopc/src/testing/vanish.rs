//! A party that vanishes before one of its frames without a goodbye, as when its process is killed.

use hushed_net::channel::memory;
use hushed_net::{Party, Session};

use super::end::{End, Events};

/// Two sessions connected in memory, (client, server), where `victim` sends `frames` frames and no more. Everything it
/// tries after that fails; its peer notices when the victim's session is dropped.
pub fn vanishing_pair(victim: Party, frames: u64) -> (Session, Session) {
    let (near, far) = memory::pair();
    let session = |party, channel| {
        let left = if party == victim { frames } else { u64::MAX };
        Session::new(party, Box::new(End::new(channel, &Events::default(), left)))
    };
    (session(Party::Client, near), session(Party::Server, far))
}
