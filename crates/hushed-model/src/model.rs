//! A model: its public part and its layers.

mod written;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::arch::config::NetworkConfig;
use crate::arch::{self, Architecture};
use crate::blocks::{Embedding, NormReach, Pool, Tolerance};
use crate::body::Body;
use crate::decoder::DecoderNetwork;
use crate::error::{FolderError, ModelError, Problem};
use crate::folder::public::Public;
use crate::folder::report;
use crate::folder::stored::Files;
use crate::folder::weights::Weights;
use crate::images::Item;
use crate::layers::{Checking, Leaving, Random, ShapesOnly, Source};
use crate::network::Network;
use crate::plain;
use crate::program::Program;
use crate::tokens::{TokenIds, TooLong};
use crate::vit::VisionNetwork;

/// An encoder or classifier of texts or images, or a text generator, with its weights or as shapes only.
#[derive(Clone)]
pub struct Model {
    /// The public part.
    pub public: Public,
    /// The layers.
    pub body: Body,
}

impl Model {
    /// Reads a folder with its weights. If anything in it is unsupported, the error lists everything that is.
    pub fn load(folder: &Path) -> Result<Model, ModelError> {
        let (public, weights) = report::open(folder)?;
        Model::of(folder, public, &mut &weights)
    }

    /// The same, but matrices stay in the folder's files: each is read when a step needs it, and not kept. Faults in
    /// their numbers show only then.
    pub fn open(folder: &Path) -> Result<Model, ModelError> {
        let (public, weights) = report::open(folder)?;
        let files = Files::new(folder, weights)?;
        Model::of(folder, public, &mut Leaving(&files))
    }

    fn of(folder: &Path, public: Public, source: &mut impl Source<Error = Problem>) -> Result<Model, ModelError> {
        let body = arch::body(&public.config, public.pool, source);
        let body = body.map_err(|problem| FolderError { folder: folder.to_owned(), problems: vec![problem] })?;
        Ok(Model { public, body })
    }

    /// The same layers without numbers, for a client, which has only the public part.
    pub fn shapes_only(public: &Public) -> Model {
        let Ok(body) = arch::body(&public.config, public.pool, &mut ShapesOnly);
        Model { public: public.clone(), body }
    }

    /// The same model with this tolerance declared for its activation.
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

    /// The answers to a batch of texts or images, computed in the clear in f64: embeddings, one number per class, or
    /// the logits of the next token.
    pub fn embed<T: Into<Item>>(&self, items: Vec<T>) -> Result<Vec<Vec<f64>>, ModelError> {
        let pooled = plain::run(&self.program(), items, |_, _| ())?;
        Ok(pooled.each_text().map(|rows| self.public.finish(rows.to_vec())).collect())
    }

    /// The same model with these reaches declared for its norms, by step name.
    #[must_use]
    pub fn reaching(mut self, norms: BTreeMap<String, NormReach>) -> Model {
        self.public.config.norms = norms;
        self
    }

    /// The program of its layers.
    pub fn program(&self) -> Program {
        self.declared(self.body.program())
    }

    /// The same with all rows of a decoder going through its last layer, which otherwise computes the last row alone.
    pub fn program_of_all_rows(&self) -> Program {
        self.declared(self.body.program_of_all_rows())
    }

    /// The same with every row of a decoder giving the logits of the token after it.
    pub fn program_of_all_logits(&self) -> Program {
        self.declared(self.body.program_of_all_logits())
    }

    fn declared(&self, program: Program) -> Program {
        match self.public.config.norms.is_empty() {
            true => program,
            false => program.reaching(&self.public.config.norms),
        }
    }

    /// Token vectors and positions, if it reads texts.
    pub fn embedding(&self) -> Option<&Embedding> {
        self.body.embedding()
    }

    /// The layers of an encoder, for code that runs nothing else.
    ///
    /// # Errors
    /// [`ModelError::NotAnEncoder`].
    pub fn encoder(&self) -> Result<&Network, ModelError> {
        match &self.body {
            Body::Encoder(network) => Ok(network),
            Body::Decoder(_) | Body::Embedder(_) | Body::Vision(_) => {
                Err(not_an_encoder(self.public.config.architecture))
            }
        }
    }

    /// The layers of an encoder, mutable.
    ///
    /// # Errors
    /// Those of [`Model::encoder`].
    pub fn encoder_mut(&mut self) -> Result<&mut Network, ModelError> {
        match &mut self.body {
            Body::Encoder(network) => Ok(network),
            Body::Decoder(_) | Body::Embedder(_) | Body::Vision(_) => {
                Err(not_an_encoder(self.public.config.architecture))
            }
        }
    }
}

fn not_an_encoder(architecture: Architecture) -> ModelError {
    ModelError::NotAnEncoder { architecture: architecture.model_type() }
}

/// A model with random numbers in realistic ranges, for plans of folders that have no weights.
pub fn random_model(public: &Public) -> Model {
    let Ok(body) = arch::body(&public.config, public.pool, &mut Random::new(1));
    Model { public: public.clone(), body }
}

/// The layers of an encoder configuration without numbers, for plans and for clients.
pub fn network_shapes(config: &NetworkConfig, pool: Pool) -> Network {
    let Ok(network) = arch::encoder(config, pool, &mut ShapesOnly);
    network
}

/// The layers of an encoder configuration with random numbers in realistic ranges, for benchmarks. The same seed gives
/// the same layers.
pub fn random_network(config: &NetworkConfig, pool: Pool, seed: u64) -> Network {
    let Ok(network) = arch::encoder(config, pool, &mut Random::new(seed));
    network
}

/// The layers of a GPT-2 configuration without numbers.
pub fn gpt2_shapes(config: &NetworkConfig) -> DecoderNetwork {
    let Ok(gpt2) = arch::decoder(config, &mut ShapesOnly);
    gpt2
}

/// The layers of a GPT-2 configuration with random numbers in realistic ranges, as [`random_network`].
pub fn random_gpt2(config: &NetworkConfig, seed: u64) -> DecoderNetwork {
    let Ok(gpt2) = arch::decoder(config, &mut Random::new(seed));
    gpt2
}

/// The layers of a vision transformer configuration without numbers.
pub fn vit_shapes(config: &NetworkConfig) -> VisionNetwork {
    let Ok(vit) = arch::vision(config, &mut ShapesOnly);
    vit
}

/// The layers of a vision transformer configuration with random numbers in realistic ranges, as [`random_network`].
pub fn random_vit(config: &NetworkConfig, seed: u64) -> VisionNetwork {
    let Ok(vit) = arch::vision(config, &mut Random::new(seed));
    vit
}

/// The layers of a LLaMA configuration without numbers.
pub fn llama_shapes(config: &NetworkConfig) -> DecoderNetwork {
    let Ok(llama) = arch::decoder(config, &mut ShapesOnly);
    llama
}

/// The layers of a LLaMA configuration with random numbers in realistic ranges, as [`random_network`].
pub fn random_llama(config: &NetworkConfig, seed: u64) -> DecoderNetwork {
    let Ok(llama) = arch::decoder(config, &mut Random::new(seed));
    llama
}

/// Writes the numbers of [`random_llama`], rounded to bf16, to `model.safetensors` in a folder.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn write_random_llama(config: &NetworkConfig, seed: u64, folder: &Path) -> io::Result<()> {
    written::write(config, seed, folder)
}

/// The layers of a LLaMA configuration whose matrices stay in a folder of weights, as with [`Model::open`].
///
/// # Errors
/// [`FolderError`] if files cannot be read or belong to another configuration.
pub fn stored_llama(config: &NetworkConfig, folder: &Path) -> Result<DecoderNetwork, ModelError> {
    let mut problems = Vec::new();
    let weights = Weights::open(folder, &mut problems);
    if let Some(weights) = &weights {
        let mut checking = Checking { weights, problems: &mut problems };
        let Ok(_) = arch::decoder(config, &mut checking);
    }
    let refused = |problems| FolderError { folder: folder.to_owned(), problems };
    match weights {
        Some(weights) if problems.is_empty() => {
            let files = Files::new(folder, weights)?;
            let read = arch::decoder(config, &mut Leaving(&files));
            Ok(read.map_err(|problem| refused(vec![problem]))?)
        }
        _ => Err(refused(problems).into()),
    }
}
