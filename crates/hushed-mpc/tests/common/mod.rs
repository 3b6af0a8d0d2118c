//! The tiny model with another activation, and parties that are ready for a pass over it.

use std::path::Path;
use std::sync::Arc;

use hushed_math::rng::SecretRng;
use hushed_model::Model;
use hushed_model::testing::tiny_model_with;
use hushed_mpc::{Layers, Link, Protocol};
use hushed_net::{Session, memory_pair};
use hushed_twopc::he::HeContext;
use hushed_twopc::ot::Correlations;
use hushed_twopc::ot::ideal::IdealPair;
use hushed_twopc::{Ctx, TwopcError};

pub fn backend(session: Session, ot: Box<dyn Correlations>, layers: Arc<Layers>) -> Result<Protocol, TwopcError> {
    backend_over(Link::LAN, session, ot, layers)
}

/// A party over a link.
pub fn backend_over(
    link: Link,
    session: Session,
    ot: Box<dyn Correlations>,
    layers: Arc<Layers>,
) -> Result<Protocol, TwopcError> {
    let mut ctx = Ctx::new(session, SecretRng::from_os("test"), ot).on(link);
    let he = HeContext::exchange(&mut ctx)?;
    Ok(Protocol::new(ctx, he, layers))
}

/// Runs both parties in two threads, with ideal correlations: (client's, server's) result.
pub fn run_pair<A, B: Send>(
    client: impl FnOnce(&mut Protocol) -> A,
    server: impl FnOnce(&mut Protocol) -> B + Send,
) -> (A, B) {
    let (near, far) = memory_pair();
    let (near_ot, far_ot) = IdealPair::new();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let mut on = backend(far, Box::new(far_ot), Arc::default()).unwrap();
            server(&mut on)
        });
        let mut on = backend(near, Box::new(near_ot), Arc::default()).unwrap();
        let client = client(&mut on);
        (client, server.join().unwrap())
    })
}

/// The tiny model with another activation, after `change` was applied to its folder.
pub fn tiny_of(activation: &str, change: impl FnOnce(&Path)) -> Model {
    tiny_model_with(|folder| {
        let path = folder.join("config.json");
        let config = std::fs::read_to_string(&path).unwrap();
        let other = config.replace("\"gelu\"", &format!("\"{activation}\""));
        std::fs::write(&path, other).unwrap();
        change(folder);
    })
}
