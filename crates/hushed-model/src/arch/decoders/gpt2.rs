//! GPT-2 (Radford et al. 2019). Its linear layers are stored as `inputs × outputs` (`Conv1D`), with those of Q, K and V
//! side by side in one matrix.

use std::sync::Arc;

use serde::Deserialize;

use super::DECODER_FIELDS;
use crate::arch::common::{self, Epsilon, Hidden, Layers, Positions, Vocabulary, Width, models};
use crate::arch::config::NetworkConfig;
use crate::blocks::{Activation, Attention, Embedding, FeedForward, Linear, Mask, Queries, Weigh};
use crate::decoder::{DecoderNetwork, Layer, NormOrder};
use crate::folder::config::ends;
use crate::folder::fields::{
    COMMON, Entry, GENERATION, OFF, Table,
    Use::{Nothing, Only},
    read_by,
};
use crate::folder::json::Fields;
use crate::folder::json::typed;
use crate::layers::{LayerReader, Source};
use crate::program::Block;

#[derive(Deserialize)]
struct Config {
    n_layer: Layers,
    n_embd: Width,
    n_head: Width,
    n_inner: Option<Hidden>,
    n_positions: Option<Positions>,
    activation_function: Option<Activation>,
    layer_norm_epsilon: Option<Epsilon>,
    vocab_size: Vocabulary,
    tie_word_embeddings: Option<bool>,
}

/// Older configurations call the positions differently.
#[derive(Deserialize)]
struct Older {
    n_ctx: Positions,
}

const FIELDS: &[Entry] = &[
    ("scale_attn_weights", Only(&["true"], "scores divided by √dh (true)")),
    ("scale_attn_by_inverse_layer_idx", Only(OFF, "the same scale in every layer (false)")),
    ("reorder_and_upcast_attn", Only(OFF, "attention as published (false)")),
    // Read if `n_positions` is absent.
    ("n_ctx", Nothing),
    ("resid_pdrop", Nothing),
    ("embd_pdrop", Nothing),
    ("attn_pdrop", Nothing),
    // Of heads that are refused by `architectures`.
    ("summary_type", Nothing),
    ("summary_use_proj", Nothing),
    ("summary_activation", Nothing),
    ("summary_first_dropout", Nothing),
    ("summary_proj_to_labels", Nothing),
];

pub(crate) fn fields() -> Vec<Table> {
    vec![read_by::<Config>(), FIELDS.into(), DECODER_FIELDS.into(), COMMON.into(), GENERATION.into()]
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    let before = f.problem_count();
    models(f, &["GPT2LMHeadModel", "GPT2Model"]);
    let config = typed::read::<Config>(f);
    let positions = match f.get("n_positions") {
        None => typed::read::<Older>(f).map(|older| older.n_ctx),
        Some(_) => config.as_ref().and_then(|c| c.n_positions),
    };
    let end_tokens = ends::read(f, common::vocabulary(f)).unwrap_or_default();
    common::heads_divide(f, "n_embd", "n_head");
    let merged = common::merged(f, config.as_ref().map(|c| c.n_layer.0));
    if f.problem_count() > before {
        return None;
    }
    let config = config?;
    let width = config.n_embd.0;
    let vocabulary = config.vocab_size.0;
    // Padding is masked, so an id that is no token counts as none.
    let padding_id = f.get("pad_token_id").and_then(|id| u32::try_from(id.as_u64()?).ok());
    Some(NetworkConfig {
        layers: config.n_layer.0,
        width,
        heads: config.n_head.0,
        hidden: config.n_inner.map_or(4 * width, |hidden| hidden.0),
        merged,
        vocabulary,
        positions: positions?.0,
        activation: config.activation_function.unwrap_or(Activation::GeluTanh),
        epsilon: config.layer_norm_epsilon.map_or(1e-5, |epsilon| epsilon.0),
        padding_id: padding_id.filter(|&id| (id as usize) < vocabulary),
        tied: config.tie_word_embeddings.unwrap_or(true),
        end_tokens,
        ..NetworkConfig::gpt2()
    })
}

/// The name of the last linear layer of a feed-forward block.
pub(crate) fn down(i: usize) -> String {
    format!("h.{i}.mlp.c_proj")
}

/// The layers of a configuration that [`read`] made.
pub(crate) fn network<S: Source>(from: &mut LayerReader<'_, S>) -> Result<DecoderNetwork, S::Error> {
    let embedding = from.tables()?;
    Ok(DecoderNetwork {
        layers: (0..from.config.layers).map(|i| from.decoder_layer(i)).collect::<Result<_, _>>()?,
        norm: from.norm("ln_f")?,
        head: from.head(&embedding)?,
        embedding,
    })
}

impl<S: Source> LayerReader<'_, S> {
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
            typed: false,
            second: None,
        })
    }

    fn decoder_layer(&mut self, i: usize) -> Result<Layer, S::Error> {
        let (d, hidden) = (self.config.width, self.config.hidden);
        let name = |part: &str| format!("h.{i}.{part}");
        let attention_norm = self.norm(&name("ln_1"))?;
        let [query, key, value] = self.side_by_side(&name("attn.c_attn"), d, d)?;
        Ok(Layer {
            order: NormOrder::Before,
            attention_norm,
            attention: Attention {
                query,
                key,
                value,
                query_norm: None,
                key_norm: None,
                sub_norm: None,
                output: self.stored_transposed(&name("attn.c_proj"), d, d)?,
                heads: self.config.split(),
                rope: None,
                distances: None,
                weigh: Weigh::Softmax,
                mask: Mask::Causal,
                queries: Queries::All,
            },
            feed_forward_norm: self.norm(&name("ln_2"))?,
            feed_forward: match self.config.merged.contains(&i) {
                true => Block::Linear(self.stored_transposed(&down(i), d, d)?),
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
                bias: bias.as_ref().and_then(|bias| Some(bias.get(own)?.into())),
                ternary: false,
            }
        }))
    }
}
