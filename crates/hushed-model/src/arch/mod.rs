//! The architectures, one file each: its fields of `config.json`, the names of its tensors, and its layers.
//!
//! A new architecture is a file, a variant of [`Architecture`] and a line in each `match` below.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub(crate) mod common;
pub(crate) mod config;
pub(crate) mod decoders;
pub(crate) mod encoders;
pub(crate) mod kind;
pub(crate) mod vision;

use std::convert::Infallible;

use crate::blocks::Pool;
use crate::body::Body;
use crate::decoder::DecoderNetwork;
use crate::folder::fields::Table;
use crate::folder::json::Fields;
use crate::layers::{LayerReader, Source};
use crate::network::Network;
use crate::vit::VisionNetwork;

use config::NetworkConfig;
use decoders::{bitnet, gemma, gpt2, granite, llama, mistral, olmo, phi, qwen, smollm};
use encoders::{Encoder, albert, bert, clip_text, distilbert, electra, modernbert, mpnet, nomic, roberta};
pub use kind::{Architecture, Task};
use vision::{Vision, clip, dinov2, vit};

impl Architecture {
    /// Reads the fields of its `config.json`; `None` if and only if a problem was added.
    pub(crate) fn read(self, f: &mut Fields<'_>) -> Option<NetworkConfig> {
        match self {
            Architecture::Bert => bert::read(f),
            Architecture::Roberta => roberta::read(f),
            Architecture::DistilBert => distilbert::read(f),
            Architecture::Electra => electra::read(f),
            Architecture::Albert => albert::read(f),
            Architecture::MpNet => mpnet::read(f),
            Architecture::ModernBert => modernbert::read(f),
            Architecture::ClipText => clip_text::read(f),
            Architecture::Nomic => nomic::read(f),
            Architecture::Gpt2 => gpt2::read(f),
            Architecture::Llama => llama::read(f),
            Architecture::Mistral => mistral::read(f),
            Architecture::Qwen2 => qwen::read_2(f),
            Architecture::Qwen3 => qwen::read_3(f),
            Architecture::Phi3 => phi::read(f),
            Architecture::Gemma => gemma::read_1(f),
            Architecture::Gemma3 => gemma::read_3(f),
            Architecture::Granite => granite::read(f),
            Architecture::Olmo2 => olmo::read(f),
            Architecture::SmolLm3 => smollm::read(f),
            Architecture::BitNet => bitnet::read(f),
            Architecture::Vit => vit::read(f),
            Architecture::Dinov2 => dinov2::read(f),
            Architecture::ClipVision => clip::read(f),
        }
    }

    /// What becomes of the fields of its `config.json`; of two entries for a field, the first holds.
    pub(crate) fn fields(self) -> Vec<Table> {
        match self {
            Architecture::Bert => bert::fields(),
            Architecture::Roberta => roberta::fields(),
            Architecture::DistilBert => distilbert::fields(),
            Architecture::Electra => electra::fields(),
            Architecture::Albert => albert::fields(),
            Architecture::MpNet => mpnet::fields(),
            Architecture::ModernBert => modernbert::fields(),
            Architecture::ClipText => clip_text::fields(),
            Architecture::Nomic => nomic::fields(),
            Architecture::Gpt2 => gpt2::fields(),
            Architecture::Llama => llama::fields(),
            Architecture::Mistral => mistral::fields(),
            Architecture::Qwen2 | Architecture::Qwen3 => qwen::fields(self),
            Architecture::Phi3 => phi::fields(),
            Architecture::Gemma | Architecture::Gemma3 => gemma::fields(self),
            Architecture::Granite => granite::fields(),
            Architecture::Olmo2 => olmo::fields(),
            Architecture::SmolLm3 => smollm::fields(),
            Architecture::BitNet => bitnet::fields(),
            Architecture::Vit => vit::fields(),
            Architecture::Dinov2 => dinov2::fields(),
            Architecture::ClipVision => clip::fields(),
        }
    }

    /// The names of its parts, if it is an encoder of text.
    pub(crate) fn encoder(self) -> Option<&'static Encoder> {
        match self {
            Architecture::Bert => Some(&bert::ENCODER),
            Architecture::Roberta => Some(&roberta::ENCODER),
            Architecture::DistilBert => Some(&distilbert::ENCODER),
            Architecture::Electra => Some(&electra::ENCODER),
            Architecture::Albert => Some(&albert::ENCODER),
            Architecture::MpNet => Some(&mpnet::ENCODER),
            _ => None,
        }
    }

    /// The names of its parts, if it reads images.
    pub(crate) fn vision(self) -> Option<&'static Vision> {
        match self {
            Architecture::Vit => Some(&vit::VISION),
            Architecture::Dinov2 => Some(&dinov2::VISION),
            Architecture::ClipVision => Some(&clip::VISION),
            _ => None,
        }
    }

    /// The name of the linear layer that replaces the feed-forward block of layer `i`, if one does: that of the block's
    /// last layer. And whether its matrix is stored as inputs × outputs.
    pub(crate) fn merged_name(self, i: usize) -> (String, bool) {
        match (self.encoder(), self.vision(), self) {
            (Some(encoder), ..) => (encoder.down(i), false),
            (_, Some(vision), _) => (vision.down(i), false),
            (.., Architecture::ClipText) => (clip::VISION.down(i), false),
            (.., Architecture::Gpt2) => (gpt2::down(i), true),
            _ => (decoders::down(i), false),
        }
    }
}

/// The layers of this configuration, with numbers from the source.
pub(crate) fn body<S: Source>(config: &NetworkConfig, pool: Pool, source: &mut S) -> Result<Body, S::Error> {
    Ok(match config.architecture {
        sees if sees.sees() => Body::Vision(vision(config, source)?),
        Architecture::ModernBert => Body::Embedder(modernbert::network(&mut LayerReader { config, source }, pool)?),
        Architecture::ClipText => Body::Embedder(clip_text::network(&mut LayerReader { config, source }, pool)?),
        decoder if decoder.decodes() && config.pooled => {
            Body::Embedder(decoders::embedder(&mut LayerReader { config, source }, pool)?)
        }
        decoder if decoder.decodes() => Body::Decoder(self::decoder(config, source)?),
        _ => Body::Encoder(encoder(config, pool, source)?),
    })
}

/// The layers of an encoder, by the names of BERT if the architecture is none.
pub(crate) fn encoder<S: Source>(config: &NetworkConfig, pool: Pool, source: &mut S) -> Result<Network, S::Error> {
    let mut from = LayerReader { config, source };
    match config.architecture {
        Architecture::Nomic => nomic::network(&mut from, pool),
        other => other.encoder().unwrap_or(&bert::ENCODER).network(&mut from, pool),
    }
}

/// The layers of a decoder.
pub(crate) fn decoder<S: Source>(config: &NetworkConfig, source: &mut S) -> Result<DecoderNetwork, S::Error> {
    let mut from = LayerReader { config, source };
    match config.architecture {
        Architecture::Gpt2 => gpt2::network(&mut from),
        _ => decoders::network(&mut from),
    }
}

/// The layers of a model of images, by the names of ViT if the architecture is none.
pub(crate) fn vision<S: Source>(config: &NetworkConfig, source: &mut S) -> Result<VisionNetwork, S::Error> {
    let names = config.architecture.vision().unwrap_or(&vit::VISION);
    names.network(&mut LayerReader { config, source })
}

impl NetworkConfig {
    /// Numbers in all tensors in use.
    pub fn parameters(&self) -> usize {
        struct Counting(usize);

        impl Source for Counting {
            type Error = Infallible;
            fn tensor(&mut self, _: &str, shape: &[usize]) -> Result<Option<Vec<f32>>, Infallible> {
                self.0 += shape.iter().product::<usize>();
                Ok(None)
            }
        }

        let mut counting = Counting(0);
        let Ok(_) = body(self, Pool::Mean, &mut counting);
        counting.0
    }
}
