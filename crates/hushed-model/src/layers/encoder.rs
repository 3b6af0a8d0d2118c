//! The encoder's tensors, by the names of its architecture.

use std::sync::Arc;

use super::source::{From, Source, merged_name};
use crate::blocks::{Attention, Classifier, Embedding, FeedForward, Mask, Pool, Queries, Weigh};
use crate::folder::config::NetworkConfig;
use crate::matrix::Matrix;
use crate::network::{Layer, Network};
use crate::program::Block;

/// The encoder of this configuration, with numbers from the source.
pub(crate) fn encoder<S: Source>(config: &NetworkConfig, pool: Pool, source: &mut S) -> Result<Network, S::Error> {
    let mut from = From { config, source };
    Ok(Network {
        embedding: from.embedding()?,
        embedding_norm: from.norm("embeddings.LayerNorm")?,
        layers: (0..config.layers).map(|i| from.layer(i)).collect::<Result<_, _>>()?,
        pool,
        classifier: from.classifier()?,
    })
}

impl<S: Source> From<'_, S> {
    fn layer(&mut self, i: usize) -> Result<Layer, S::Error> {
        let (d, hidden) = (self.config.width, self.config.hidden);
        let t = &self.config.architecture.encoder().tensors;
        let name = |part: &str| format!("{}.{i}.{part}", t.layers);
        Ok(Layer {
            attention: Attention {
                query: self.linear(&name(t.query), d, d)?,
                key: self.linear(&name(t.key), d, d)?,
                value: self.linear(&name(t.value), d, d)?,
                sub_norm: None,
                output: self.linear(&name(t.output), d, d)?,
                heads: self.config.split(),
                rope: None,
                weigh: Weigh::Softmax,
                mask: Mask::Full,
                queries: Queries::All,
            },
            attention_norm: self.norm(&name(t.attention_norm))?,
            feed_forward: match self.config.merged.contains(&i) {
                true => Block::Linear(self.linear(&merged_name(self.config, i).0, d, d)?),
                false => Block::FeedForward(FeedForward {
                    up: self.linear(&name(t.up), d, hidden)?,
                    gate: None,
                    activation: self.config.activation,
                    tolerance: self.config.tolerance,
                    sub_norm: None,
                    down: self.linear(&name(t.down), hidden, d)?,
                }),
            },
            feed_forward_norm: self.norm(&name(t.feed_forward_norm))?,
        })
    }

    fn classifier(&mut self) -> Result<Option<Classifier>, S::Error> {
        let Some(labels) = &self.config.labels else {
            return Ok(None);
        };
        let (d, classes) = (self.config.width, labels.len());
        let head = &self.config.architecture.encoder().head;
        Ok(Some(Classifier {
            dense: self.linear(head.dense, d, d)?,
            activation: head.activation,
            classes: self.linear(head.classes, d, classes)?,
        }))
    }

    fn embedding(&mut self) -> Result<Embedding, S::Error> {
        let (vocabulary, positions, width) = (self.config.vocabulary, self.config.positions, self.config.width);
        let (tokens, stored) = self.numbers("embeddings.word_embeddings.weight", vocabulary, width)?;
        let types = match self.config.token_types {
            0 => None,
            rows => self.matrix("embeddings.token_type_embeddings.weight", rows, width)?,
        };
        let name = "embeddings.position_embeddings.weight";
        let unused = self.config.first_position;
        let data = self.source.tensor(name, &[unused + positions, width])?;
        let mut offsets = data.and_then(|mut data| {
            data.drain(..unused * width);
            Matrix::new(positions, width, data)
        });
        if let (Some(offsets), Some(types)) = (&mut offsets, &types) {
            // All tokens of a single text have type 0. The sum is rounded to f32, as in torch.
            for i in 0..positions {
                offsets.row_mut(i).iter_mut().zip(types.row(0)).for_each(|(p, t)| *p += t);
            }
        }
        Ok(Embedding { vocabulary, positions, placed: true, width, tokens, stored, offsets: offsets.map(Arc::new) })
    }
}
