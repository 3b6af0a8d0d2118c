//! GPT-2's tensors. Its linear layers are stored as `inputs × outputs` (`Conv1D`), with those of Q, K and V side by
//! side in one matrix.

use std::sync::Arc;

use super::source::{From, Source, merged_name};
use crate::blocks::{Attention, Embedding, FeedForward, Linear, Mask, Queries, Weigh};
use crate::decoder::{DecoderNetwork, Layer};
use crate::folder::config::NetworkConfig;
use crate::program::Block;

/// The decoder of this configuration, with numbers from the source.
pub(crate) fn gpt2<S: Source>(config: &NetworkConfig, source: &mut S) -> Result<DecoderNetwork, S::Error> {
    let mut from = From { config, source };
    let embedding = from.tables()?;
    Ok(DecoderNetwork {
        layers: (0..config.layers).map(|i| from.decoder_layer(i)).collect::<Result<_, _>>()?,
        norm: from.norm("ln_f")?,
        head: from.head(&embedding)?,
        embedding,
    })
}

impl<S: Source> From<'_, S> {
    fn tables(&mut self) -> Result<Embedding, S::Error> {
        let c = self.config;
        let (tokens, stored) = self.numbers("wte.weight", c.vocabulary, c.width)?;
        Ok(Embedding {
            vocabulary: c.vocabulary,
            positions: c.positions,
            placed: true,
            width: c.width,
            tokens,
            stored,
            offsets: self.matrix("wpe.weight", c.positions, c.width)?.map(Arc::new),
        })
    }

    fn decoder_layer(&mut self, i: usize) -> Result<Layer, S::Error> {
        let (d, hidden) = (self.config.width, self.config.hidden);
        let name = |part: &str| format!("h.{i}.{part}");
        let attention_norm = self.norm(&name("ln_1"))?;
        let [query, key, value] = self.side_by_side(&name("attn.c_attn"), d, d)?;
        Ok(Layer {
            attention_norm,
            attention: Attention {
                query,
                key,
                value,
                sub_norm: None,
                output: self.stored_transposed(&name("attn.c_proj"), d, d)?,
                heads: self.config.split(),
                rope: None,
                weigh: Weigh::Softmax,
                mask: Mask::Causal,
                queries: Queries::All,
            },
            feed_forward_norm: self.norm(&name("ln_2"))?,
            feed_forward: match self.config.merged.contains(&i) {
                true => Block::Linear(self.stored_transposed(&merged_name(self.config, i).0, d, d)?),
                false => Block::FeedForward(FeedForward {
                    up: self.stored_transposed(&name("mlp.c_fc"), d, hidden)?,
                    gate: None,
                    activation: self.config.activation,
                    tolerance: self.config.tolerance,
                    sub_norm: None,
                    down: self.stored_transposed(&name("mlp.c_proj"), hidden, d)?,
                }),
            },
        })
    }

    /// A linear layer whose matrix is stored as `inputs × outputs`.
    fn stored_transposed(&mut self, name: &str, inputs: usize, outputs: usize) -> Result<Linear, S::Error> {
        let [linear] = self.side_by_side(name, inputs, outputs)?;
        Ok(linear)
    }

    /// `N` linear layers of the same input, stored as one of shape `inputs × N·outputs`.
    fn side_by_side<const N: usize>(
        &mut self,
        name: &str,
        inputs: usize,
        outputs: usize,
    ) -> Result<[Linear; N], S::Error> {
        let (held, stored) = self.numbers(&format!("{name}.weight"), inputs, N * outputs)?;
        let bias = self.vector(&format!("{name}.bias"), N * outputs)?;
        Ok(std::array::from_fn(|n| {
            let own = n * outputs..(n + 1) * outputs;
            Linear {
                inputs,
                outputs,
                weights: held.as_ref().map(|all| Arc::new(all.columns(own.clone()))),
                stored: stored.as_ref().map(|all| all.columns(own.clone())),
                bias: bias.as_ref().map(|bias| bias[own].into()),
                ternary: false,
            }
        }))
    }
}
