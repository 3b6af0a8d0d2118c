//! Encoders of text with norms before their blocks, written once: a decoder whose rows are pooled in the place of its
//! head, as Qwen3-Embedding, and ModernBERT.
//!
//! They embed and run the layers of a [decoder](crate::decoder) with the masks of their attention.
//! The rows are normalised and pooled into one. Where one row is all that is pooled, the last layer gives that row
//! alone.

use crate::blocks::{Embedding, Mask, Norm, Pool, Queries};
use crate::decoder::{Layer, NormOrder, layers};
use crate::program::{Block, Builder, Program};

/// The layers of such an encoder, with their numbers or as shapes only.
#[derive(Clone)]
pub struct EmbedderNetwork {
    /// Token vectors.
    pub embedding: Embedding,
    /// In order.
    pub layers: Vec<Layer>,
    /// Applied to the rows before they are pooled.
    pub norm: Norm,
    /// Pooling to one row per text.
    pub pool: Pool,
}

impl EmbedderNetwork {
    /// The program of these layers.
    pub fn program(&self) -> Program {
        let (mut p, x) = Builder::new("embed", Block::Embed(self.embedding.clone()));
        let read = self.read();
        let x = layers(&mut p, x, &self.layers, read);
        let x = p.step("norm", Block::Norm(self.norm.clone()), &[x]);
        p.step("pool", Block::Pool(self.pool), &[x]);
        p.finish()
    }

    /// The rows of which the last layer makes queries: the pooled one, if it sees all keys and a norm alone reads what
    /// its attention reads.
    fn read(&self) -> Queries {
        let Some(last) = self.layers.last() else { return Queries::All };
        match (self.pool, last.attention.mask) {
            _ if matches!(last.order, NormOrder::After | NormOrder::First) => Queries::All,
            (Pool::Last, Mask::Full | Mask::Causal) => Queries::Last,
            (Pool::First, Mask::Full) => Queries::First,
            _ => Queries::All,
        }
    }
}
