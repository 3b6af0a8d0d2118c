//! ModernBERT (Warner et al. 2024): an encoder with norms before its blocks, rotary positions, a gate and no biases.
//! Every third layer sees the whole text, the others a window around each row, with angles of their own.

use serde::Deserialize;

use crate::arch::common::{self, BLOCK_FIELDS, Epsilon, Hidden, Layers, Positions, TokenId, Vocabulary, Width, models};
use crate::arch::config::{Form, NetworkConfig, ROPE};
use crate::arch::decoders::{LayerType, Theta};
use crate::arch::kind::Architecture;
use crate::blocks::{Activation, Attention, Embedding, FeedForward, Mask, Norm, NormKind, Pool, Queries, Rope, Weigh};
use crate::decoder::{EmbedderNetwork, Layer, NormOrder};
use crate::folder::fields::{
    COMMON, Entry, OFF, Table,
    Use::{Nothing, Only},
    read_by, unused,
};
use crate::folder::json::Fields;
use crate::folder::json::typed::{self, Size};
use crate::layers::{LayerReader, Source};
use crate::program::Block;

#[derive(Deserialize)]
struct Config {
    num_hidden_layers: Layers,
    hidden_size: Width,
    num_attention_heads: Width,
    intermediate_size: Hidden,
    hidden_activation: Option<Activation>,
    vocab_size: Vocabulary,
    max_position_embeddings: Positions,
    norm_eps: Option<Epsilon>,
    pad_token_id: Option<TokenId>,
    global_attn_every_n_layers: Option<Size<1, 256>>,
    /// Rows of a window, of which half are to either side.
    local_attention: Option<Size<2, { 1 << 20 }>>,
    global_rope_theta: Option<Theta>,
    local_rope_theta: Option<Theta>,
    layer_types: Option<Vec<LayerType>>,
    rope_parameters: Option<Angles>,
}

/// Since version 5 of `transformers`.
#[derive(Clone, Copy, Deserialize)]
struct Angles {
    full_attention: Unscaled,
    sliding_attention: Unscaled,
}

/// Angles as they are.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Unscaled {
    pub rope_theta: Theta,
    #[expect(dead_code, reason = "it has one value")]
    rope_type: Option<Unchanged>,
}

impl Unscaled {
    pub fn of(rope_theta: Theta) -> Unscaled {
        Unscaled { rope_theta, rope_type: None }
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Unchanged {
    Default,
}

const FIELDS: &[Entry] = &[
    ("norm_bias", Only(OFF, "norms without offsets (false)")),
    ("attention_bias", Only(OFF, "linear layers without biases (false)")),
    ("mlp_bias", Only(OFF, "linear layers without biases (false)")),
    (
        "position_embedding_type",
        Only(&["\"absolute\"", "\"rope\"", "\"sans_pos\""], "rotary positions, whatever its name"),
    ),
    ("hidden_act", Nothing),
    ("embedding_dropout", Nothing),
    ("attention_dropout", Nothing),
    ("mlp_dropout", Nothing),
    ("layer_norm_eps", Nothing),
    ("eos_token_id", Nothing),
    ("cls_token_id", Nothing),
    ("tie_word_embeddings", Nothing),
    // Of heads that are refused by `architectures`, or left out.
    ("classifier_pooling", Nothing),
    ("classifier_bias", Nothing),
    ("classifier_activation", Nothing),
    ("decoder_bias", Nothing),
    ("sparse_prediction", Nothing),
    ("sparse_pred_ignore_index", Nothing),
    // How the library computes the same.
    ("deterministic_flash_attn", Nothing),
    ("reference_compile", Nothing),
    ("repad_logits_with_grad", Nothing),
    ("initializer_cutoff_factor", Nothing),
];

pub(crate) fn fields() -> Vec<Table> {
    vec![read_by::<Config>(), FIELDS.into(), BLOCK_FIELDS.into(), COMMON.into(), unused()]
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    let before = f.problem_count();
    models(f, &["ModernBertModel", "ModernBertForMaskedLM"]);
    let config = typed::read::<Config>(f);
    common::heads_divide(f, "hidden_size", "num_attention_heads");
    if !common::merged(f, None).is_empty() {
        f.unsupported(common::MERGED, "feed-forward blocks without a gate");
    }
    if f.problem_count() > before {
        return None;
    }
    let config = config?;
    let layers = config.num_hidden_layers.0;
    let every = config.global_attn_every_n_layers.map_or(3, |every| every.0);
    let of_pattern = |layer: usize| match layer % every {
        0 => LayerType::FullAttention,
        _ => LayerType::SlidingAttention,
    };
    let types = config.layer_types.unwrap_or_else(|| (0..layers).map(of_pattern).collect());
    if types.len() != layers {
        f.unsupported("layer_types", "full_attention or sliding_attention for every layer");
        return None;
    }
    let theta = |of: fn(&Angles) -> Unscaled, older: Option<Theta>, usual: f64| {
        config.rope_parameters.as_ref().map(of).map(|angles| angles.rope_theta).or(older).map_or(usual, |theta| theta.0)
    };
    let full = theta(|angles| angles.full_attention, config.global_rope_theta, 160_000.0);
    let local = theta(|angles| angles.sliding_attention, config.local_rope_theta, 10_000.0);
    let reach = config.local_attention.map_or(128, |rows| rows.0) / 2;
    let by_type = |kind: &LayerType| match kind {
        LayerType::FullAttention => (Some(Rope { theta: full, ..ROPE }), None),
        LayerType::SlidingAttention => (Some(Rope { theta: local, ..ROPE }), Some(reach)),
    };
    let (ropes, windows) = types.iter().map(by_type).unzip();
    Some(NetworkConfig {
        architecture: Architecture::ModernBert,
        layers,
        width: config.hidden_size.0,
        heads: config.num_attention_heads.0,
        hidden: config.intermediate_size.0,
        vocabulary: config.vocab_size.0,
        positions: config.max_position_embeddings.0,
        token_types: 0,
        activation: config.hidden_activation.unwrap_or(Activation::Gelu),
        epsilon: config.norm_eps.map_or(1e-5, |epsilon| epsilon.0),
        padding_id: config.pad_token_id.map(|id| id.0 as u32),
        form: Form { ropes, windows, ..Form::default() },
        ..NetworkConfig::base()
    })
}

/// The layers of a configuration that [`read`] made.
pub(crate) fn network<S: Source>(from: &mut LayerReader<'_, S>, pool: Pool) -> Result<EmbedderNetwork, S::Error> {
    let c = from.config;
    let (tokens, stored) = from.numbers("embeddings.tok_embeddings.weight", c.vocabulary, c.width)?;
    let (vocabulary, positions, width) = (c.vocabulary, c.positions, c.width);
    Ok(EmbedderNetwork {
        embedding: Embedding {
            vocabulary,
            positions,
            placed: false,
            width,
            tokens,
            stored,
            offsets: None,
            typed: false,
            second: None,
        },
        layers: (0..c.layers).map(|i| from.modern_layer(i)).collect::<Result<_, _>>()?,
        norm: from.norm_without_offset("final_norm")?,
        pool,
        projection: None,
    })
}

impl<S: Source> LayerReader<'_, S> {
    fn modern_layer(&mut self, i: usize) -> Result<Layer, S::Error> {
        let c = self.config;
        let (d, hidden) = (c.width, c.hidden);
        let name = |part: &str| format!("layers.{i}.{part}");
        let [query, key, value] = self.above_each_other(&name("attn.Wqkv"), d, [d; 3])?;
        let [gate, up] = self.above_each_other(&name("mlp.Wi"), d, [hidden; 2])?;
        let window = c.form.windows.get(i).copied().flatten();
        Ok(Layer {
            order: if i == 0 { NormOrder::First } else { NormOrder::Before },
            attention_norm: match i {
                0 => self.norm_without_offset("embeddings.norm")?,
                _ => self.norm_without_offset(&name("attn_norm"))?,
            },
            attention: Attention {
                query,
                key,
                value,
                query_norm: None,
                key_norm: None,
                sub_norm: None,
                output: self.linear_if(&name("attn.Wo"), d, d, false)?,
                heads: c.split(),
                rope: c.form.ropes.get(i).copied().flatten(),
                distances: None,
                weigh: Weigh::Softmax,
                mask: window.map_or(Mask::Full, |reach| Mask::Window { reach }),
                queries: Queries::All,
            },
            feed_forward_norm: self.norm_without_offset(&name("mlp_norm"))?,
            feed_forward: Block::FeedForward(FeedForward {
                up,
                gate: Some(gate),
                activation: c.activation,
                tolerance: c.tolerance,
                sub_norm: None,
                down: self.linear_if(&name("mlp.Wo"), hidden, d, false)?,
            }),
        })
    }

    /// LayerNorm with a gain alone.
    fn norm_without_offset(&mut self, name: &str) -> Result<Norm, S::Error> {
        let width = self.config.width;
        let gain = self.vector(&format!("{name}.weight"), width)?;
        Ok(Norm {
            kind: NormKind::LayerNorm,
            width,
            epsilon: self.config.epsilon,
            reach: None,
            offset: gain.as_ref().map(|_| vec![0.0; width].into()),
            gain,
        })
    }
}
