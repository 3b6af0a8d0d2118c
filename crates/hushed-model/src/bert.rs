//! BERT as an encoder of sentences or a classifier (Devlin et al. 2019; Reimers and Gurevych 2019), written once for every backend.
//!
//! `start` embeds and normalises, each `layer` is attention and feed-forward with a residual sum and a norm after each (post-norm),
//! `finish` pools the rows of a text into one vector, or makes a number a class of its first row. The pieces are apart so that a driver can report, compare or save between them.

use crate::backend::{Attention, Backend, Classifier, Embedding, FeedForward, Norm, Pool};
use crate::error::ModelError;
use crate::program::{Block, Builder, Program};
use crate::site::Site;

/// The layers of a BERT encoder, with their numbers or as shapes only.
#[derive(Clone)]
pub struct Bert {
    /// Token vectors and positions.
    pub embedding: Embedding,
    /// After the embedding.
    pub embedding_norm: Norm,
    /// In order.
    pub layers: Vec<Layer>,
    /// What `finish` does, where there is no classifier.
    pub pool: Pool,
    /// What `finish` does instead of pooling.
    pub classifier: Option<Classifier>,
}

/// One encoder layer.
#[derive(Clone)]
pub struct Layer {
    /// Attention over the text.
    pub attention: Attention,
    /// After its residual sum.
    pub attention_norm: Norm,
    /// The two wide linear layers.
    pub feed_forward: FeedForward,
    /// After its residual sum.
    pub feed_forward_norm: Norm,
}

impl Bert {
    /// Token ids to the first activations: `m × d` a text.
    pub fn start<B: Backend>(&self, backend: &mut B, input: B::Input) -> Result<B::Acts, B::Error> {
        let at = Site::root("embed");
        let x = backend.embed(at.clone(), input, &self.embedding)?; // m × d
        backend.norm(at.then("norm"), x, &self.embedding_norm) // m × d
    }

    /// Layer `i`, from 0: `m × d` to `m × d`.
    pub fn layer<B: Backend>(
        &self,
        backend: &mut B,
        i: usize,
        x: B::Acts,
    ) -> Result<B::Acts, B::Error> {
        let layer = self.layers.get(i).ok_or(ModelError::NoSuchLayer {
            asked: i,
            layers: self.layers.len(),
        })?;

        let at = Site::layer(i).then("attention");
        let y = backend.attention(at.clone(), &x, &layer.attention)?; // m × d
        let sum = backend.add(at.then("add"), &x, &y)?;
        drop((x, y)); // Under encryption they are gigabytes.
        let x = backend.norm(at.then("norm"), sum, &layer.attention_norm)?; // m × d

        let at = Site::layer(i).then("feed_forward");
        let y = backend.feed_forward(at.clone(), &x, &layer.feed_forward)?; // m × d
        let sum = backend.add(at.then("add"), &x, &y)?;
        drop((x, y));
        backend.norm(at.then("norm"), sum, &layer.feed_forward_norm) // m × d
    }

    /// One vector a text: `1 × d`, or `1 × k` of a classifier.
    pub fn finish<B: Backend>(&self, backend: &mut B, x: B::Acts) -> Result<B::Acts, B::Error> {
        match &self.classifier {
            Some(classifier) => backend.classify(Site::root("head"), x, classifier),
            None => backend.pool(Site::root("pool"), x, &self.pool),
        }
    }

    /// The same as a list of steps.
    pub fn program(&self) -> Program {
        let (mut p, x) = Builder::new("embed", self.embedding.clone());
        let mut x = p.step("embed.norm", Block::Norm(self.embedding_norm.clone()), &[x]);
        for (i, layer) in self.layers.iter().enumerate() {
            p.layer(Some(i));
            let y = p.step("attention", Block::Attention(layer.attention.clone()), &[x]);
            let sum = p.step("attention.add", Block::Add, &[x, y]);
            let norm = Block::Norm(layer.attention_norm.clone());
            x = p.step("attention.norm", norm, &[sum]);

            let y = p.step(
                "feed_forward",
                Block::FeedForward(layer.feed_forward.clone()),
                &[x],
            );
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
        classes.unwrap_or(self.embedding.width)
    }

    /// All of it: token ids to one vector a text, not yet scaled to unit length.
    pub fn forward<B: Backend>(
        &self,
        backend: &mut B,
        input: B::Input,
    ) -> Result<B::Acts, B::Error> {
        let mut x = self.start(backend, input)?;
        for i in 0..self.layers.len() {
            x = self.layer(backend, i, x)?;
        }
        self.finish(backend, x)
    }
}
