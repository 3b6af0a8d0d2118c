//! The tensors of LLaMA-like decoders, as named in Hugging Face's `LlamaForCausalLM` and `BitNetForCausalLM`.

use super::source::{From, Source};
use crate::blocks::{Attention, Embedding, FeedForward, Mask, Norm, NormKind, Queries};
use crate::decoder::{DecoderNetwork, Layer};
use crate::folder::config::NetworkConfig;
use crate::program::Block;

/// The decoder of this configuration, with numbers from the source.
pub(crate) fn llama<S: Source>(config: &NetworkConfig, source: &mut S) -> Result<DecoderNetwork, S::Error> {
    let mut from = From { config, source };
    let (tokens, stored) = from.numbers("embed_tokens.weight", config.vocabulary, config.width)?;
    let embedding = Embedding {
        vocabulary: config.vocabulary,
        positions: config.positions,
        placed: false,
        width: config.width,
        tokens,
        stored,
        offsets: None,
    };
    Ok(DecoderNetwork {
        layers: (0..config.layers).map(|i| from.llama_layer(i)).collect::<Result<_, _>>()?,
        norm: from.rms_norm("norm", config.width)?,
        head: from.head(&embedding)?,
        embedding,
    })
}

impl<S: Source> From<'_, S> {
    fn llama_layer(&mut self, i: usize) -> Result<Layer, S::Error> {
        let c = self.config;
        let (d, hidden, heads) = (c.width, c.hidden, c.split());
        let name = |part: &str| format!("layers.{i}.{part}");
        let mut attention = |part: &str, inputs, outputs| {
            let name = name(&format!("self_attn.{part}_proj"));
            self.linear_if(&name, inputs, outputs, c.biases.attention)
        };
        let [query, key, value] = [
            attention("q", d, heads.query_columns())?,
            attention("k", d, heads.key_columns())?,
            attention("v", d, heads.key_columns())?,
        ];
        let output = attention("o", heads.query_columns(), d)?;
        let sub_norm = self.sub_norm(&name("self_attn.attn_sub_norm"), heads.query_columns())?;
        let mut wide = |part: &str, inputs, outputs| {
            let name = name(&format!("mlp.{part}_proj"));
            self.linear_if(&name, inputs, outputs, c.biases.feed_forward)
        };
        let gate = wide("gate", d, hidden)?;
        let (up, down) = (wide("up", d, hidden)?, wide("down", hidden, d)?);
        Ok(Layer {
            attention_norm: self.rms_norm(&name("input_layernorm"), d)?,
            attention: Attention {
                query,
                key,
                value,
                sub_norm,
                output,
                heads,
                rope: c.rope,
                weigh: c.weigh,
                mask: Mask::Causal,
                queries: Queries::All,
            },
            feed_forward_norm: self.rms_norm(&name("post_attention_layernorm"), d)?,
            feed_forward: Block::FeedForward(FeedForward {
                up,
                gate: Some(gate),
                activation: c.activation,
                tolerance: c.tolerance,
                sub_norm: self.sub_norm(&name("mlp.ffn_sub_norm"), hidden)?,
                down,
            }),
        })
    }

    /// The norm inside a block, if the configuration has them.
    fn sub_norm(&mut self, name: &str, width: usize) -> Result<Option<Norm>, S::Error> {
        match self.config.sub_norms {
            true => self.rms_norm(name, width).map(Some),
            false => Ok(None),
        }
    }

    fn rms_norm(&mut self, name: &str, width: usize) -> Result<Norm, S::Error> {
        let gain = self.vector(&format!("{name}.weight"), width)?;
        Ok(Norm {
            kind: NormKind::RmsNorm,
            width,
            epsilon: self.config.epsilon,
            reach: None,
            offset: gain.as_ref().map(|_| vec![0.0; width].into()),
            gain,
        })
    }
}
