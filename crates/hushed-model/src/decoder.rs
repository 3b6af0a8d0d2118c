//! Text decoders, GPT-2 (Radford et al. 2019) and LLaMA (Touvron et al. 2023), written once.
//!
//! They embed. Each half of a layer is a norm, causal attention or feed-forward, and a residual sum (pre-norm). The
//! last row of a text is normalised and gives one number per token of the vocabulary: the logits of the next token.
//!
//! The differences are in the blocks. GPT-2 has positions in its embedding, LayerNorm and biases. LLaMA embeds without
//! positions and normalises by RMSNorm; its queries and keys are rotated by their positions ([`Rope`](crate::Rope)),
//! several heads may share keys and values, and the activation of one wide layer gates another. Of its successors, some
//! have norms after each block too, or only there ([`NormOrder`]), and norms of queries and keys.

use crate::blocks::{Attention, Embedding, Linear, Mask, Norm, Pool, Queries};
use crate::program::{Block, Builder, Program, Value};

/// The layers of a decoder, with their numbers or as shapes only.
#[derive(Clone)]
pub struct DecoderNetwork {
    /// Token vectors, and positions if the model has a table of them.
    pub embedding: Embedding,
    /// In order.
    pub layers: Vec<Layer>,
    /// Applied to the last row.
    pub norm: Norm,
    /// `d → vocabulary`, with a zero bias. A tied head uses the embedding's token vectors as its weights.
    pub head: Linear,
}

/// One layer, of a decoder or of an encoder, with norms before its blocks unless `order` says otherwise.
#[derive(Clone)]
pub struct Layer {
    /// Which norms there are besides, or in their place.
    pub order: NormOrder,
    /// Before attention.
    pub attention_norm: Norm,
    /// Attention over the text, causal in a decoder.
    pub attention: Attention,
    /// Before feed-forward.
    pub feed_forward_norm: Norm,
    /// The two or three wide linear layers, or one in their place: [`Block::FeedForward`] or [`Block::Linear`].
    pub feed_forward: Block,
}

/// Where the norms of a layer are.
#[derive(Clone)]
pub enum NormOrder {
    /// Before each block.
    Before,
    /// After each block, before the residual sum, instead.
    After,
    /// Before each block; what the first one makes is also what attention's result is added to: the norm after the
    /// embedding, in the first layer of a model that has it in the place of a norm before attention.
    First,
    /// Before each block, and these after it.
    Around(Box<[Norm; 2]>),
}

impl DecoderNetwork {
    /// The program of these layers. In the last layer only the last row of each text goes through query, output and
    /// feed-forward, then through the final norm and the head.
    pub fn program(&self) -> Program {
        // Without a norm before it, the last attention reads the rows that the residual sum reads.
        let after = self.layers.last().is_some_and(|layer| matches!(layer.order, NormOrder::After));
        self.program_by(if after { Queries::All } else { Queries::Last }, Some(Pool::Last))
    }

    /// The same with all rows going through the last layer: for runs where a single row is no cheaper, and for
    /// statements about all rows.
    pub fn program_of_all_rows(&self) -> Program {
        self.program_by(Queries::All, Some(Pool::Last))
    }

    /// The same with every row giving the logits of the token after it: for statements about a text's own tokens.
    pub fn program_of_all_logits(&self) -> Program {
        self.program_by(Queries::All, None)
    }

    fn program_by(&self, read: Queries, pool: Option<Pool>) -> Program {
        let (mut p, x) = Builder::new("embed", Block::Embed(self.embedding.clone()));
        let mut last = layers(&mut p, x, &self.layers, read);
        if let Some(pool) = pool.filter(|_| read == Queries::All) {
            last = p.step("last", Block::Pool(pool), &[last]);
        }
        let last = p.step("norm", Block::Norm(self.norm.clone()), &[last]);
        p.step("head", Block::Vocabulary(self.head.clone()), &[last]);
        p.finish()
    }
}

/// Encoders of text made of these layers, with their numbers or as shapes only: decoders whose rows are pooled in the
/// place of a head (Qwen3-Embedding), ModernBERT, and the texts' tower of CLIP. The rows are normalised and pooled into
/// one. Where one row is all that is pooled, the last layer gives that row alone.
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
    /// From the pooled row to the columns of the embedding, where there is such a layer.
    pub projection: Option<Linear>,
}

impl EmbedderNetwork {
    /// The program of these layers.
    pub fn program(&self) -> Program {
        let (mut p, x) = Builder::new("embed", Block::Embed(self.embedding.clone()));
        let read = self.read();
        let x = layers(&mut p, x, &self.layers, read);
        let x = p.step("norm", Block::Norm(self.norm.clone()), &[x]);
        let x = p.step("pool", Block::Pool(self.pool), &[x]);
        if let Some(projection) = &self.projection {
            p.step("project", Block::Linear(projection.clone()), &[x]);
        }
        p.finish()
    }

    /// Columns of the answer.
    pub fn outputs(&self) -> usize {
        self.projection.as_ref().map_or(self.norm.width, |linear| linear.outputs)
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

/// Pre-norm layers over `x`, of whose results only the rows `read` are used: for other rows the last layer computes
/// only keys and values.
pub(crate) fn layers(p: &mut Builder, mut x: Value, layers: &[Layer], read: Queries) -> Value {
    for (i, layer) in layers.iter().enumerate() {
        p.layer(Some(i));
        let after = match &layer.order {
            NormOrder::Before | NormOrder::First => [None, None],
            NormOrder::After => [Some(&layer.attention_norm), Some(&layer.feed_forward_norm)],
            NormOrder::Around(after) => [Some(&after[0]), Some(&after[1])],
        };
        let before = !matches!(layer.order, NormOrder::After);
        let y = match before {
            true => p.step("attention.norm", Block::Norm(layer.attention_norm.clone()), &[x]),
            false => x,
        };
        if matches!(layer.order, NormOrder::First) {
            x = y;
        }
        let queries = match i + 1 == layers.len() {
            true => read,
            false => Queries::All,
        };
        let attention = Attention { queries, ..layer.attention.clone() };
        let mut y = p.step("attention", Block::Attention(attention), &[y]);
        if let Some(norm) = after[0] {
            y = p.step("attention.after", Block::Norm(norm.clone()), &[y]);
        }
        if let Some(pool) = queries.pool() {
            x = p.step("attention.row", Block::Pool(pool), &[x]);
        }
        x = p.step("attention.add", Block::Add, &[x, y]);

        let y = match before {
            true => p.step("feed_forward.norm", Block::Norm(layer.feed_forward_norm.clone()), &[x]),
            false => x,
        };
        let mut y = p.step("feed_forward", layer.feed_forward.clone(), &[y]);
        if let Some(norm) = after[1] {
            y = p.step("feed_forward.after", Block::Norm(norm.clone()), &[y]);
        }
        x = p.step("feed_forward.add", Block::Add, &[x, y]);
    }
    p.layer(None);
    x
}
