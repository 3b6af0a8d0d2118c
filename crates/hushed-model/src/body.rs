//! The layers of a model of any architecture.

use crate::blocks::{Embedding, Tolerance};
use crate::decoder::{DecoderNetwork, EmbedderNetwork};
use crate::network::Network;
use crate::program::{Block, Program};
use crate::vit::VisionNetwork;

/// The layers of a model, with their numbers or as shapes only.
#[derive(Clone)]
pub enum Body {
    /// BERT-like encoders: one vector per text, or one number per class.
    Encoder(Network),
    /// Decoders like GPT-2 and LLaMA: the logits of the next token.
    Decoder(DecoderNetwork),
    /// Encoders with norms before their blocks, and decoders whose rows are pooled: one vector per text.
    Embedder(EmbedderNetwork),
    /// Vision transformers: one number per class of an image, or one vector.
    Vision(VisionNetwork),
}

impl Body {
    /// The program of these layers.
    pub fn program(&self) -> Program {
        match self {
            Body::Encoder(network) => network.program(),
            Body::Decoder(decoder) => decoder.program(),
            Body::Embedder(embedder) => embedder.program(),
            Body::Vision(vision) => vision.program(),
        }
    }

    /// The program in which all rows go through the last layer.
    pub fn program_of_all_rows(&self) -> Program {
        match self {
            Body::Decoder(decoder) => decoder.program_of_all_rows(),
            Body::Vision(vision) => vision.program_of_all_rows(),
            Body::Encoder(network) => network.program_of_all_rows(),
            Body::Embedder(_) => self.program(),
        }
    }

    /// The program in which every row of a decoder gives logits.
    pub fn program_of_all_logits(&self) -> Program {
        match self {
            Body::Decoder(decoder) => decoder.program_of_all_logits(),
            Body::Encoder(_) | Body::Embedder(_) | Body::Vision(_) => self.program(),
        }
    }

    /// Token vectors and positions, if it reads texts.
    pub fn embedding(&self) -> Option<&Embedding> {
        match self {
            Body::Encoder(network) => Some(&network.embedding),
            Body::Decoder(decoder) => Some(&decoder.embedding),
            Body::Embedder(embedder) => Some(&embedder.embedding),
            Body::Vision(_) => None,
        }
    }

    /// The same, mutable.
    pub fn embedding_mut(&mut self) -> Option<&mut Embedding> {
        match self {
            Body::Encoder(network) => Some(&mut network.embedding),
            Body::Decoder(decoder) => Some(&mut decoder.embedding),
            Body::Embedder(embedder) => Some(&mut embedder.embedding),
            Body::Vision(_) => None,
        }
    }

    /// Columns of the answer.
    pub fn outputs(&self) -> usize {
        match self {
            Body::Encoder(network) => network.outputs(),
            Body::Decoder(decoder) => decoder.head.outputs,
            Body::Embedder(embedder) => embedder.outputs(),
            Body::Vision(vision) => vision.outputs(),
        }
    }

    /// Declares this tolerance for the activation in every layer.
    pub(crate) fn declare(&mut self, tolerance: Tolerance) {
        match self {
            Body::Encoder(network) => {
                let blocks = network.layers.iter_mut().map(|l| &mut l.feed_forward);
                blocks.for_each(|block| declare(block, tolerance));
            }
            Body::Decoder(DecoderNetwork { layers, .. })
            | Body::Embedder(EmbedderNetwork { layers, .. })
            | Body::Vision(VisionNetwork { layers, .. }) => {
                let blocks = layers.iter_mut().map(|layer| &mut layer.feed_forward);
                blocks.for_each(|block| declare(block, tolerance));
            }
        }
    }
}

fn declare(block: &mut Block, tolerance: Tolerance) {
    if let Some(feed_forward) = block.feed_forward_mut() {
        feed_forward.tolerance = Some(tolerance);
    }
}
