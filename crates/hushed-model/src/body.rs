//! The layers of a model, of whichever architecture.

use crate::blocks::{Embedding, Tolerance};
use crate::gpt2::Gpt2;
use crate::llama::Llama;
use crate::network::Network;
use crate::program::Program;

/// The layers of a model, with their numbers or as shapes only.
#[derive(Clone)]
pub enum Body {
    /// BERT and its like: a vector a text, or a number a class.
    Encoder(Network),
    /// GPT-2: the logits of the next token.
    Gpt2(Gpt2),
    /// LLaMA and its like: the logits of the next token.
    Llama(Llama),
}

impl Body {
    /// The steps.
    pub fn program(&self) -> Program {
        match self {
            Body::Encoder(network) => network.program(),
            Body::Gpt2(gpt2) => gpt2.program(),
            Body::Llama(llama) => llama.program(),
        }
    }

    /// Token vectors and positions.
    pub fn embedding(&self) -> &Embedding {
        match self {
            Body::Encoder(network) => &network.embedding,
            Body::Gpt2(gpt2) => &gpt2.embedding,
            Body::Llama(llama) => &llama.embedding,
        }
    }

    /// Token vectors and positions, to be changed.
    pub fn embedding_mut(&mut self) -> &mut Embedding {
        match self {
            Body::Encoder(network) => &mut network.embedding,
            Body::Gpt2(gpt2) => &mut gpt2.embedding,
            Body::Llama(llama) => &mut llama.embedding,
        }
    }

    /// Columns of the answer.
    pub fn outputs(&self) -> usize {
        match self {
            Body::Encoder(network) => network.outputs(),
            Body::Gpt2(gpt2) => gpt2.head.outputs,
            Body::Llama(llama) => llama.head.outputs,
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
            Body::Gpt2(gpt2) => {
                let layers = gpt2.layers.iter_mut();
                layers.for_each(|layer| layer.feed_forward.tolerance = declared);
            }
            Body::Llama(llama) => {
                let layers = llama.layers.iter_mut();
                layers.for_each(|layer| layer.feed_forward.tolerance = declared);
            }
        }
    }
}
