//! Two parties in two threads, with ideal correlations.

use std::sync::Arc;

use hushed_math::rng::SecretRng;
use hushed_net::{Session, memory_pair};
use hushed_twopc::Ctx;
use hushed_twopc::he::HeContext;
use hushed_twopc::ot::Correlations;
use hushed_twopc::ot::ideal::IdealPair;

use super::{Layers, Protocol};

/// Returns both parties' results: (client's, server's).
pub(crate) fn run_pair<A: Send, B: Send>(
    client: impl FnOnce(&mut Protocol) -> A + Send,
    server: impl FnOnce(&mut Protocol) -> B + Send,
) -> (A, B) {
    run_pair_with(&Arc::default(), client, server)
}

/// The same, where the server has these layers.
pub(crate) fn run_pair_with<A: Send, B: Send>(
    layers: &Arc<Layers>,
    client: impl FnOnce(&mut Protocol) -> A + Send,
    server: impl FnOnce(&mut Protocol) -> B + Send,
) -> (A, B) {
    let (near, far) = memory_pair();
    let (near_ot, far_ot) = IdealPair::new();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let mut party = party(far, Box::new(far_ot), Arc::clone(layers));
            server(&mut party)
        });
        let answer = client(&mut party(near, Box::new(near_ot), Arc::default()));
        let server = server.join();
        (answer, server.unwrap_or_else(|why| std::panic::resume_unwind(why)))
    })
}

fn party(session: Session, ot: Box<dyn Correlations>, layers: Arc<Layers>) -> Protocol {
    let mut ctx = Ctx::new(session, SecretRng::from_os("test"), ot);
    let he = HeContext::exchange(&mut ctx).unwrap();
    Protocol::new(ctx, he, layers)
}
