//! What the parties receive, byte by byte: for tests of what a transcript shows, and of transcripts that must not
//! change.

use super::both;
use super::end::{End, Events, Payloads};
use crate::ctx::Ctx;
use crate::ot::ideal::IdealPair;
use hushed_math::rng::SecretRng;
use hushed_net::channel::memory;
use hushed_net::{Party, Session};
use std::sync::PoisonError;

/// The payloads that one party has received.
pub struct Heard(Payloads);

impl Heard {
    /// The bytes received since the last call.
    pub fn take(&self) -> Vec<u8> {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *heard)
    }
}

/// Two sessions connected in memory, (client's, server's), and what each of them receives.
pub fn heard_pair() -> ([Session; 2], [Heard; 2]) {
    let (near, far) = memory::pair();
    let heard = [(); 2].map(|()| Heard(Payloads::default()));
    let session = |party, channel, heard: &Heard| {
        let end = End::new(channel, &Events::default(), u64::MAX).hearing(&heard.0);
        Session::new(party, Box::new(end))
    };
    let client = session(Party::Client, near, &heard[0]);
    let server = session(Party::Server, far, &heard[1]);
    ([client, server], heard)
}

/// Runs both parties on connected contexts whose randomness all follows from `seed`; the client gets what it hears.
pub fn run_heard<A: Send>(
    seed: u64,
    client: impl FnOnce(&mut Ctx, &Heard) -> A + Send,
    server: impl FnOnce(&mut Ctx) + Send,
) -> A {
    let ([near, far], [heard, _]) = heard_pair();
    let (near_ot, far_ot) = IdealPair::from_seed(seed);
    let rng = |end: u64| SecretRng::insecure_from_seed(2 * seed + end);
    let mut near = Ctx::new(near, rng(0), Box::new(near_ot));
    let mut far = Ctx::new(far, rng(1), Box::new(far_ot));
    let (seen, ()) = both(move || client(&mut near, &heard), move || server(&mut far));
    seen
}
