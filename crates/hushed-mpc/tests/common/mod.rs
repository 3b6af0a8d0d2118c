//! The tiny model, and a party that is ready for a pass over it.

use std::sync::Arc;

use hushed_math::rng::SecretRng;
use hushed_model::Model;
use hushed_model::testing::tiny_folder;
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

pub fn tiny_model() -> Model {
    let folder = tempfile::tempdir().unwrap();
    tiny_folder(folder.path()).unwrap();
    Model::load(folder.path()).unwrap()
}
