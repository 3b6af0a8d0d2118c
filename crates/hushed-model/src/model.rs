//! A model: its public part and its layers.

use std::path::Path;

use crate::blocks::{Pool, Tolerance};
use crate::error::{FolderError, ModelError};
use crate::folder::config::NetworkConfig;
use crate::folder::public::Public;
use crate::folder::report;
use crate::layers::{self, ShapesOnly};
use crate::network::Network;
use crate::plain;
use crate::program::Program;
use crate::synthetic::Random;
use crate::tokens::{TokenIds, TooLong};

/// A sentence encoder, with its weights or as shapes only.
#[derive(Clone)]
pub struct Model {
    /// The public part.
    pub public: Public,
    /// The layers.
    pub network: Network,
}

impl Model {
    /// Reads a folder with its weights. If anything in it is unsupported, the error lists all of it.
    pub fn load(folder: &Path) -> Result<Model, ModelError> {
        let (public, weights) = report::open(folder)?;
        let network =
            layers::network(&public.config, public.pool, &mut &weights).map_err(|problem| {
                FolderError {
                    folder: folder.to_owned(),
                    problems: vec![problem],
                }
            })?;
        Ok(Model { public, network })
    }

    /// The same layers without numbers: what a client runs, which has only the public part.
    pub fn shapes_only(public: &Public) -> Model {
        Model {
            public: public.clone(),
            network: network_shapes(&public.config, public.pool),
        }
    }

    /// The same model with this declared of its activation.
    #[must_use]
    pub fn declaring(mut self, tolerance: Tolerance) -> Model {
        self.public.config.tolerance = Some(tolerance);
        for layer in &mut self.network.layers {
            layer.feed_forward.tolerance = Some(tolerance);
        }
        self
    }

    /// The token ids of a text.
    pub fn tokens(&self, text: &str, too_long: TooLong) -> Result<TokenIds, ModelError> {
        self.public.tokens(text, too_long)
    }

    /// The embeddings of a batch of texts, in the clear and in f64.
    pub fn embed(&self, texts: Vec<TokenIds>) -> Result<Vec<Vec<f64>>, ModelError> {
        let pooled = plain::run(&self.program(), texts, |_, _| ())?;
        Ok(pooled
            .each_text()
            .map(|rows| self.public.finish(rows.to_vec()))
            .collect())
    }

    /// Its steps.
    pub fn program(&self) -> Program {
        self.network.program()
    }
}

/// The layers of a configuration without numbers, for plans and for clients.
pub fn network_shapes(config: &NetworkConfig, pool: Pool) -> Network {
    let Ok(network) = layers::network(config, pool, &mut ShapesOnly);
    network
}

/// The layers of a configuration with random numbers of realistic ranges, for benchmarks: the same seed gives the same
/// layers.
pub fn random_network(config: &NetworkConfig, pool: Pool, seed: u64) -> Network {
    let Ok(network) = layers::network(config, pool, &mut Random::new(seed));
    network
}
