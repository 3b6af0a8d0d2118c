//! A model: its public part and its layers.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::arch::Architecture;
use crate::blocks::{Embedding, NormReach, Pool, Tolerance};
use crate::body::Body;
use crate::decoder::DecoderNetwork;
use crate::error::{FolderError, ModelError, Problem};
use crate::folder::config::NetworkConfig;
use crate::folder::public::Public;
use crate::folder::report;
use crate::folder::stored::Files;
use crate::folder::weights::Weights;
use crate::images::Item;
use crate::layers::{self, Checking, Leaving, Random, ShapesOnly, Source};
use crate::network::Network;
use crate::plain;
use crate::program::Program;
use crate::tokens::{TokenIds, TooLong};
use crate::vit::VisionNetwork;

/// An encoder or a generator of text, or a classifier of images, with its weights or as shapes only.
#[derive(Clone)]
pub struct Model {
    /// The public part.
    pub public: Public,
    /// The layers.
    pub body: Body,
}

impl Model {
    /// Reads a folder with its weights. If anything in it is unsupported, the error lists all of it.
    pub fn load(folder: &Path) -> Result<Model, ModelError> {
        let (public, weights) = report::open(folder)?;
        Model::of(folder, public, &mut &weights)
    }

    /// The same with matrices that stay in the folder's files: each is read when a step needs it, and not kept. What is
    /// wrong with their numbers shows only then.
    pub fn open(folder: &Path) -> Result<Model, ModelError> {
        let (public, weights) = report::open(folder)?;
        let files = Files::new(folder, weights)?;
        Model::of(folder, public, &mut Leaving(&files))
    }

    fn of(
        folder: &Path,
        public: Public,
        source: &mut impl Source<Error = Problem>,
    ) -> Result<Model, ModelError> {
        let body = layers::body(&public.config, public.pool, source);
        let body = body.map_err(|problem| FolderError {
            folder: folder.to_owned(),
            problems: vec![problem],
        })?;
        Ok(Model { public, body })
    }

    /// The same layers without numbers: what a client runs, which has only the public part.
    pub fn shapes_only(public: &Public) -> Model {
        let Ok(body) = layers::body(&public.config, public.pool, &mut ShapesOnly);
        Model {
            public: public.clone(),
            body,
        }
    }

    /// The same model with this declared of its activation.
    #[must_use]
    pub fn declaring(mut self, tolerance: Tolerance) -> Model {
        self.public.config.tolerance = Some(tolerance);
        self.body.declare(tolerance);
        self
    }

    /// The token ids of a text.
    pub fn tokens(&self, text: &str, too_long: TooLong) -> Result<TokenIds, ModelError> {
        self.public.tokens(text, too_long)
    }

    /// The answers to a batch of texts or images, in the clear and in f64: embeddings, a number a class, or the logits
    /// of the next token.
    pub fn embed<T: Into<Item>>(&self, items: Vec<T>) -> Result<Vec<Vec<f64>>, ModelError> {
        let pooled = plain::run(&self.program(), items, |_, _| ())?;
        Ok(pooled
            .each_text()
            .map(|rows| self.public.finish(rows.to_vec()))
            .collect())
    }

    /// The same model with this declared of its norms, by the names of their steps.
    #[must_use]
    pub fn reaching(mut self, norms: BTreeMap<String, NormReach>) -> Model {
        self.public.config.norms = norms;
        self
    }

    /// Its steps.
    pub fn program(&self) -> Program {
        self.declared(self.body.program())
    }

    /// The same where all rows of a decoder go through its last layer, which otherwise computes the last row alone.
    pub fn program_of_all_rows(&self) -> Program {
        self.declared(self.body.program_of_all_rows())
    }

    /// The same where every row of a decoder gives the logits of the token after it.
    pub fn program_of_all_logits(&self) -> Program {
        self.declared(self.body.program_of_all_logits())
    }

    fn declared(&self, program: Program) -> Program {
        match self.public.config.norms.is_empty() {
            true => program,
            false => program.reaching(&self.public.config.norms),
        }
    }

    /// Token vectors and positions, where it reads texts.
    pub fn embedding(&self) -> Option<&Embedding> {
        self.body.embedding()
    }

    /// The encoder's layers, for what runs nothing else.
    ///
    /// # Errors
    /// [`ModelError::NotAnEncoder`].
    pub fn encoder(&self) -> Result<&Network, ModelError> {
        match &self.body {
            Body::Encoder(network) => Ok(network),
            Body::Decoder(_) | Body::Vision(_) => {
                Err(not_an_encoder(self.public.config.architecture))
            }
        }
    }

    /// The encoder's layers, to be changed.
    ///
    /// # Errors
    /// As [`Model::encoder`].
    pub fn encoder_mut(&mut self) -> Result<&mut Network, ModelError> {
        match &mut self.body {
            Body::Encoder(network) => Ok(network),
            Body::Decoder(_) | Body::Vision(_) => {
                Err(not_an_encoder(self.public.config.architecture))
            }
        }
    }
}

fn not_an_encoder(architecture: Architecture) -> ModelError {
    ModelError::NotAnEncoder {
        architecture: architecture.model_type(),
    }
}

/// A model with random numbers of realistic ranges: for plans of folders that have no weights.
pub fn random_model(public: &Public) -> Model {
    let Ok(body) = layers::body(&public.config, public.pool, &mut Random::new(1));
    Model {
        public: public.clone(),
        body,
    }
}

/// The layers of an encoder's configuration without numbers, for plans and for clients.
pub fn network_shapes(config: &NetworkConfig, pool: Pool) -> Network {
    let Ok(network) = layers::encoder(config, pool, &mut ShapesOnly);
    network
}

/// The layers of an encoder's configuration with random numbers of realistic ranges, for benchmarks: the same seed
/// gives the same layers.
pub fn random_network(config: &NetworkConfig, pool: Pool, seed: u64) -> Network {
    let Ok(network) = layers::encoder(config, pool, &mut Random::new(seed));
    network
}

/// The layers of a configuration of GPT-2 without numbers.
pub fn gpt2_shapes(config: &NetworkConfig) -> DecoderNetwork {
    let Ok(gpt2) = layers::gpt2(config, &mut ShapesOnly);
    gpt2
}

/// The layers of a configuration of GPT-2 with random numbers of realistic ranges, as [`random_network`].
pub fn random_gpt2(config: &NetworkConfig, seed: u64) -> DecoderNetwork {
    let Ok(gpt2) = layers::gpt2(config, &mut Random::new(seed));
    gpt2
}

/// The layers of a configuration of a vision transformer without numbers.
pub fn vit_shapes(config: &NetworkConfig) -> VisionNetwork {
    let Ok(vit) = layers::vit(config, &mut ShapesOnly);
    vit
}

/// The layers of a configuration of a vision transformer with random numbers of realistic ranges, as
/// [`random_network`].
pub fn random_vit(config: &NetworkConfig, seed: u64) -> VisionNetwork {
    let Ok(vit) = layers::vit(config, &mut Random::new(seed));
    vit
}

/// The layers of a configuration of LLaMA without numbers.
pub fn llama_shapes(config: &NetworkConfig) -> DecoderNetwork {
    let Ok(llama) = layers::llama(config, &mut ShapesOnly);
    llama
}

/// The layers of a configuration of LLaMA with random numbers of realistic ranges, as [`random_network`].
pub fn random_llama(config: &NetworkConfig, seed: u64) -> DecoderNetwork {
    let Ok(llama) = layers::llama(config, &mut Random::new(seed));
    llama
}

/// Writes the numbers of [`random_llama`], rounded to bf16, to `model.safetensors` in a folder.
///
/// # Errors
/// Those of writing files.
pub fn write_random_llama(config: &NetworkConfig, seed: u64, folder: &Path) -> io::Result<()> {
    layers::write_llama(config, seed, folder)
}

/// The layers of a configuration of LLaMA whose matrices stay in a folder of weights, as [`Model::open`] has them.
///
/// # Errors
/// [`FolderError`] for files that cannot be read or belong to another configuration.
pub fn stored_llama(config: &NetworkConfig, folder: &Path) -> Result<DecoderNetwork, ModelError> {
    let mut problems = Vec::new();
    let weights = Weights::open(folder, &mut problems);
    if let Some(weights) = &weights {
        let mut checking = Checking {
            weights,
            problems: &mut problems,
        };
        let Ok(_) = layers::llama(config, &mut checking);
    }
    let refused = |problems| FolderError {
        folder: folder.to_owned(),
        problems,
    };
    match weights {
        Some(weights) if problems.is_empty() => {
            let files = Files::new(folder, weights)?;
            let read = layers::llama(config, &mut Leaving(&files));
            Ok(read.map_err(|problem| refused(vec![problem]))?)
        }
        _ => Err(refused(problems).into()),
    }
}
