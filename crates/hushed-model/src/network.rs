//! BERT as a sentence encoder or a classifier (Devlin et al. 2019; Reimers and Gurevych 2019), written once.
//!
//! It embeds and normalises. Each layer is attention and feed-forward, each followed by a residual sum and a norm
//! (post-norm). Finally it pools the rows of a text into one vector, or maps the first row to one number per class.

use crate::blocks::{Attention, Classifier, Embedding, Linear, Norm, Pool};
use crate::program::{Block, Builder, Program};

/// The layers of a BERT encoder, with their numbers or as shapes only.
#[derive(Clone)]
pub struct Network {
    /// Token vectors and positions.
    pub embedding: Embedding,
    /// After the embedding.
    pub embedding_norm: Norm,
    /// From the columns of the embedding to those of the layers, where there are fewer.
    pub projection: Option<Box<Linear>>,
    /// In order.
    pub layers: Vec<Layer>,
    /// Pooling to one row per text, if there is no classifier.
    pub pool: Pool,
    /// The classifier's head, instead of pooling.
    pub classifier: Option<Classifier>,
}

/// One encoder layer.
#[derive(Clone)]
pub struct Layer {
    /// Attention over the text.
    pub attention: Attention,
    /// After its residual sum.
    pub attention_norm: Norm,
    /// The two wide linear layers, or one in their place: [`Block::FeedForward`] or [`Block::Linear`].
    pub feed_forward: Block,
    /// After its residual sum.
    pub feed_forward_norm: Norm,
}

impl Network {
    /// The program of these layers.
    pub fn program(&self) -> Program {
        let (mut p, x) = Builder::new("embed", Block::Embed(self.embedding.clone()));
        let mut x = p.step("embed.norm", Block::Norm(self.embedding_norm.clone()), &[x]);
        if let Some(projection) = &self.projection {
            x = p.step("embed.project", Block::Linear(Linear::clone(projection)), &[x]);
        }
        for (i, layer) in self.layers.iter().enumerate() {
            p.layer(Some(i));
            let y = p.step("attention", Block::Attention(layer.attention.clone()), &[x]);
            let sum = p.step("attention.add", Block::Add, &[x, y]);
            let norm = Block::Norm(layer.attention_norm.clone());
            x = p.step("attention.norm", norm, &[sum]);

            let y = p.step("feed_forward", layer.feed_forward.clone(), &[x]);
            let sum = p.step("feed_forward.add", Block::Add, &[x, y]);
            let norm = Block::Norm(layer.feed_forward_norm.clone());
            x = p.step("feed_forward.norm", norm, &[sum]);
        }
        p.layer(None);
        match &self.classifier {
            Some(classifier) => p.step("head", Block::Head(classifier.clone()), &[x]),
            None => p.step("pool", Block::Pool(self.pool), &[x]),
        };
        p.finish()
    }

    /// Columns of the answer.
    pub fn outputs(&self) -> usize {
        let classes = self.classifier.as_ref().map(|c| c.classes.outputs);
        let projected = self.projection.as_ref().map(|p| p.outputs);
        classes.or(projected).unwrap_or(self.embedding.width)
    }
}
