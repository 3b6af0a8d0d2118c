//! A vision transformer's tensors. Its map of patches is stored as a convolution with non-overlapping windows: channels
//! × rows × columns of a patch, in the order of [`Pixels`](crate::images::Pixels).

use std::sync::Arc;

use super::source::{From, Source, merged_name};
use crate::blocks::{Attention, FeedForward, Linear, Mask, Patches, Queries, Weigh};
use crate::decoder::Layer;
use crate::folder::config::NetworkConfig;
use crate::images::CHANNELS;
use crate::matrix::Matrix;
use crate::program::Block;
use crate::vit::VisionNetwork;

/// The vision transformer of this configuration, with numbers from the source.
pub(crate) fn vit<S: Source>(config: &NetworkConfig, source: &mut S) -> Result<VisionNetwork, S::Error> {
    let mut from = From { config, source };
    let classes = config.labels.as_ref().map_or(0, Vec::len);
    Ok(VisionNetwork {
        patches: from.patches()?,
        layers: (0..config.layers).map(|i| from.vision_layer(i)).collect::<Result<_, _>>()?,
        norm: from.norm("layernorm")?,
        classes: from.linear("classifier", config.width, classes)?,
    })
}

impl<S: Source> From<'_, S> {
    fn patches(&mut self) -> Result<Patches, S::Error> {
        let (rows, d, side) = (self.config.positions, self.config.width, self.config.patch_side);
        let inputs = CHANNELS * side * side;
        let class = self.source.tensor("embeddings.cls_token", &[1, 1, d])?.map(Arc::from);
        let name = "embeddings.position_embeddings";
        let offsets = self.source.tensor(name, &[1, rows, d])?;
        let name = "embeddings.patch_embeddings.projection";
        let stored = self.source.tensor(&format!("{name}.weight"), &[d, CHANNELS, side, side])?;
        let weights = stored.and_then(|data| Matrix::new(d, inputs, data));
        Ok(Patches {
            count: rows - 1,
            linear: Linear {
                ternary: false,
                inputs,
                outputs: d,
                weights: weights.map(Arc::new),
                stored: None,
                bias: self.vector(&format!("{name}.bias"), d)?,
            },
            class,
            offsets: offsets.and_then(|data| Matrix::new(rows, d, data)).map(Arc::new),
        })
    }

    fn vision_layer(&mut self, i: usize) -> Result<Layer, S::Error> {
        let (d, hidden) = (self.config.width, self.config.hidden);
        let name = |part: &str| format!("encoder.layer.{i}.{part}");
        let biased = self.config.biases.attention;
        let mut into = |part: &str| {
            let name = name(&format!("attention.attention.{part}"));
            self.linear_if(&name, d, d, biased)
        };
        let [query, key, value] = [into("query")?, into("key")?, into("value")?];
        Ok(Layer {
            attention_norm: self.norm(&name("layernorm_before"))?,
            attention: Attention {
                sub_norm: None,
                query,
                key,
                value,
                output: self.linear(&name("attention.output.dense"), d, d)?,
                heads: self.config.split(),
                rope: None,
                weigh: Weigh::Softmax,
                mask: Mask::Full,
                queries: Queries::All,
            },
            feed_forward_norm: self.norm(&name("layernorm_after"))?,
            feed_forward: match self.config.merged.contains(&i) {
                true => Block::Linear(self.linear(&merged_name(self.config, i).0, d, d)?),
                false => Block::FeedForward(FeedForward {
                    sub_norm: None,
                    up: self.linear(&name("intermediate.dense"), d, hidden)?,
                    gate: None,
                    activation: self.config.activation,
                    tolerance: self.config.tolerance,
                    down: self.linear(&name("output.dense"), hidden, d)?,
                }),
            },
        })
    }
}
