//! BERT as a sentence encoder or a classifier (Devlin et al. 2019; Reimers and Gurevych 2019), written once.
//!
//! It embeds and normalises. Each layer is attention and feed-forward, each followed by a residual sum and a norm
//! (post-norm). Finally it pools the rows of a text into one vector, or maps the first row to one number per class.

use crate::blocks::{Attention, Classifier, Embedding, Linear, Mask, Norm, Pool, Queries};
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
    /// The program of these layers. Where only the first row of a text is read, by a pool or a head, the last layer
    /// gives that row alone.
    pub fn program(&self) -> Program {
        let first = self.classifier.is_some() || self.pool == Pool::First;
        let full = self.layers.last().is_some_and(|layer| layer.attention.mask == Mask::Full);
        self.program_by(if first && full { Queries::First } else { Queries::All })
    }

    /// The same with all rows going through the last layer, for runs where a single row is no cheaper.
    pub fn program_of_all_rows(&self) -> Program {
        self.program_by(Queries::All)
    }

    fn program_by(&self, read: Queries) -> Program {
        let (mut p, x) = Builder::new("embed", Block::Embed(self.embedding.clone()));
        let mut x = p.step("embed.norm", Block::Norm(self.embedding_norm.clone()), &[x]);
        if let Some(projection) = &self.projection {
            x = p.step("embed.project", Block::Linear(Linear::clone(projection)), &[x]);
        }
        for (i, layer) in self.layers.iter().enumerate() {
            p.layer(Some(i));
            let queries = if i + 1 == self.layers.len() { read } else { Queries::All };
            let attention = Attention { queries, ..layer.attention.clone() };
            let y = p.step("attention", Block::Attention(attention), &[x]);
            if let Some(pool) = queries.pool() {
                x = p.step("attention.row", Block::Pool(pool), &[x]);
            }
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

#[cfg(test)]
mod tests {
    use crate::{Pool, TokenIds, plain, random_network, testing};

    /// Every value of a program of one row in the last layer is the first row of what all rows give.
    #[test]
    fn the_first_row_alone_goes_through_the_last_layer_where_it_alone_is_read() {
        for pool in [Pool::First, Pool::Mean] {
            let network = random_network(&testing::tiny_config(), pool, 5);
            let texts = || [3, 1, 6].map(|n| crate::Item::from(TokenIds::new((1..=n).collect()))).to_vec();
            let (program, all) = (network.program(), network.program_of_all_rows());
            let rows = |step: &crate::Step| step.id.to_string().ends_with("attention.row");
            assert_eq!(program.steps().iter().filter(|s| rows(s)).count(), usize::from(pool == Pool::First));
            let found = plain::run(&program, texts(), |_, _| ()).unwrap();
            let expected = plain::run(&all, texts(), |_, _| ()).unwrap();
            for (a, b) in found.values.data().iter().zip(expected.values.data()) {
                assert!((a - b).abs() < 1e-9, "{a} {b}");
            }
        }
    }
}
