//! The tiny model with another activation, and a party that is ready for a pass over it.

use std::path::Path;
use std::sync::Arc;

use hushed_math::rng::SecretRng;
use hushed_model::Model;
use hushed_model::testing::tiny_model_with;
use hushed_mpc::{Layers, Protocol};
use hushed_net::Session;
use hushed_twopc::he::HeContext;
use hushed_twopc::ot::Correlations;
use hushed_twopc::{Ctx, TwopcError};

pub fn backend(
    mut session: Session,
    ot: Box<dyn Correlations>,
    layers: Arc<Layers>,
) -> Result<Protocol, TwopcError> {
    let mut rng = SecretRng::from_os("test");
    let he = HeContext::exchange(&mut session, &mut rng)?;
    Ok(Protocol::new(Ctx::new(session, rng, ot), he, layers))
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
