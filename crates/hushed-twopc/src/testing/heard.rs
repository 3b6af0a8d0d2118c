//! What the client receives, byte by byte: for tests of what a transcript shows.

use super::end::{End, Events, Payloads};
use crate::ctx::Ctx;
use crate::ot::ideal::IdealPair;
use hushed_math::rng::SecretRng;
use hushed_net::channel::memory;
use hushed_net::{Party, Session};
use std::sync::PoisonError;

/// The payloads that the client has received.
pub struct Heard(Payloads);

impl Heard {
    /// What has come since this was last called.
    pub fn take(&self) -> Vec<u8> {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *heard)
    }
}

/// Runs both parties on connected contexts, all of whose randomness follows from `seed`; the client is given what it hears.
pub fn run_heard<A: Send>(
    seed: u64,
    client: impl FnOnce(&mut Ctx, &Heard) -> A + Send,
    server: impl FnOnce(&mut Ctx) + Send,
) -> A {
    let (near, far) = memory::pair();
    let (near_ot, far_ot) = IdealPair::from_seed(seed);
    let heard = Heard(Payloads::default());
    let near = End::new(near, &Events::default(), u64::MAX).hearing(&heard.0);
    let far = End::new(far, &Events::default(), u64::MAX);
    let rng = |end: u64| SecretRng::insecure_from_seed(2 * seed + end);
    let near = Session::new(Party::Client, Box::new(near));
    let far = Session::new(Party::Server, Box::new(far));
    let mut near = Ctx::new(near, rng(0), Box::new(near_ot));
    let mut far = Ctx::new(far, rng(1), Box::new(far_ot));
    std::thread::scope(|scope| {
        // Each thread owns its context: one that fails drops its end and so wakes the other.
        let server = scope.spawn(move || server(&mut far));
        let client = scope.spawn(move || client(&mut near, &heard));
        match (client.join(), server.join()) {
            (Ok(seen), Ok(())) => seen,
            (Err(why), _) | (_, Err(why)) => std::panic::resume_unwind(why),
        }
    })
}
