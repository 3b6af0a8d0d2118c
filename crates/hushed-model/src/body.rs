//! The layers of a model, of whichever architecture.

use crate::blocks::{Embedding, Tolerance};
use crate::decoder::DecoderNetwork;
use crate::network::Network;
use crate::program::Program;

/// The layers of a model, with their numbers or as shapes only.
#[derive(Clone)]
pub enum Body {
    /// BERT and its like: a vector a text, or a number a class.
    Encoder(Network),
    /// GPT-2, LLaMA and their like: the logits of the next token.
    Decoder(DecoderNetwork),
}

impl Body {
    /// The steps.
    pub fn program(&self) -> Program {
        match self {
            Body::Encoder(network) => network.program(),
            Body::Decoder(decoder) => decoder.program(),
        }
    }

    /// Token vectors and positions.
    pub fn embedding(&self) -> &Embedding {
        match self {
            Body::Encoder(network) => &network.embedding,
            Body::Decoder(decoder) => &decoder.embedding,
        }
    }

    /// Token vectors and positions, to be changed.
    pub fn embedding_mut(&mut self) -> &mut Embedding {
        match self {
            Body::Encoder(network) => &mut network.embedding,
            Body::Decoder(decoder) => &mut decoder.embedding,
        }
    }

    /// Columns of the answer.
    pub fn outputs(&self) -> usize {
        match self {
            Body::Encoder(network) => network.outputs(),
            Body::Decoder(decoder) => decoder.head.outputs,
        }
    }

    /// Declares this of the activation in every layer.
    pub(crate) fn declare(&mut self, tolerance: Tolerance) {
        let declared = Some(tolerance);
        match self {
            Body::Encoder(network) => {
                let layers = network.layers.iter_mut();
                layers.for_each(|layer| layer.feed_forward.tolerance = declared);
            }
            Body::Decoder(decoder) => {
                let layers = decoder.layers.iter_mut();
                layers.for_each(|layer| layer.feed_forward.tolerance = declared);
            }
        }
    }
}
