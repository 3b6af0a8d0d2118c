//! Decoders of text. Those like LLaMA (Touvron et al. 2023) share this file: rotary positions, RMSNorm, a gate. In what
//! they differ is the [`Form`] of their configuration.

pub(crate) mod bitnet;
pub(crate) mod gemma;
pub(crate) mod gpt2;
pub(crate) mod granite;
pub(crate) mod llama;
pub(crate) mod mistral;
pub(crate) mod olmo;
pub(crate) mod phi;
pub(crate) mod qwen;
pub(crate) mod smollm;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::common::{self, Epsilon, Factor, Hidden, Layers, Vocabulary, Width};
use super::config::{HeadNorms, NetworkConfig, Norms, ROPE};
use super::kind::Architecture;
use crate::blocks::{
    Activation, Attention, Embedding, FeedForward, Linear, Mask, Norm, NormKind, Pool, Queries, Rope, RopeScaling,
};
use crate::decoder::{DecoderNetwork, EmbedderNetwork, Layer, NormOrder};
use crate::folder::config::ends;
use crate::folder::fields::{
    COMMON, Entry, GENERATION, OFF, Table,
    Use::{Nothing, Only, Read},
    read_by,
};
use crate::folder::json::Fields;
use crate::folder::json::typed::{self, Size, real};
use crate::layers::{LayerReader, Source};
use crate::program::Block;

/// Positions that are kept of those that a model has: no text is longer.
const KEPT_POSITIONS: usize = 1 << 16;

/// Of every decoder.
pub(super) const DECODER_FIELDS: &[Entry] = &[
    ("eos_token_id", Read),
    ("pad_token_id", Nothing), // padding is masked
    ("is_decoder", Nothing),
];

/// The fields of every decoder like LLaMA.
#[derive(Deserialize)]
pub(super) struct Config {
    num_hidden_layers: Layers,
    hidden_size: Width,
    num_attention_heads: Width,
    num_key_value_heads: Option<Width>,
    head_dim: Option<Size<2, 1024>>,
    intermediate_size: Hidden,
    hidden_act: Option<Activation>,
    rms_norm_eps: Option<Epsilon>,
    vocab_size: Vocabulary,
    max_position_embeddings: Size<3, { 1 << 30 }>,
    tie_word_embeddings: Option<bool>,
}

/// Their fields beside [`Config`] and [`Rotary`].
pub(super) const FIELDS: &[Entry] = &[
    ("attention_chunk_size", Only(OFF, "attention to the whole text (null)")),
    ("num_local_experts", Only(&["0"], "one feed-forward block for all tokens (absent)")),
    ("num_experts", Only(&["0"], "one feed-forward block for all tokens (absent)")),
    ("n_routed_experts", Only(&["0"], "one feed-forward block for all tokens (absent)")),
    ("attention_dropout", Nothing),
    // Products cut into pieces have the same result.
    ("pretraining_tp", Nothing),
    ("rope_interleaved", Only(OFF, "pairs of columns half a head apart (false)")),
];

/// For decoders in which every row attends to the whole text before it.
pub(super) const NO_WINDOW: &[Entry] =
    &[("sliding_window", Only(OFF, "attention to the whole text (null)")), ("layer_types", Read)];

/// What a decoder's architecture fixes.
pub(super) struct Defaults {
    pub architecture: Architecture,
    pub activation: Activation,
    pub epsilon: f64,
    pub theta: f64,
    pub tied: bool,
    /// Columns of a head; `None`: the width divided by the heads.
    pub head_width: Option<usize>,
}

impl Defaults {
    /// Those of LLaMA under another name.
    pub const fn like_llama(architecture: Architecture) -> Defaults {
        let activation = Activation::Silu;
        Defaults { architecture, activation, epsilon: 1e-6, theta: 10_000.0, tied: false, head_width: None }
    }
}

/// The tables of a decoder like LLaMA that reads these fields besides.
pub(super) fn fields_with(own: Vec<Table>) -> Vec<Table> {
    let shared = vec![
        read_by::<Config>(),
        read_by::<Rotary>(),
        FIELDS.into(),
        DECODER_FIELDS.into(),
        COMMON.into(),
        GENERATION.into(),
    ];
    [own, shared].concat()
}

/// Rotary positions.
#[derive(Deserialize)]
pub(super) struct Rotary {
    rope_theta: Option<Theta>,
    rope_scaling: Option<Scaled>,
    rope_parameters: Option<Angles>,
    partial_rotary_factor: Option<Part>,
}

/// θ.
#[derive(Clone, Copy)]
pub(super) struct Theta(pub f64);

impl<'de> Deserialize<'de> for Theta {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        real(from, 1.0, 1e12).map(Theta)
    }
}

/// A part of the columns of a head.
#[derive(Clone, Copy)]
struct Part(f64);

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        real(from, 0.01, 1.0).map(Part)
    }
}

/// What `rope_scaling`, or `rope_parameters` since version 5 of `transformers`, says.
struct Scaled {
    theta: Option<Theta>,
    part: Option<Part>,
    scaling: RopeScaling,
}

/// `rope_parameters`: the same for all layers, or apart for those that see the whole text and those with windows.
pub(super) struct Angles {
    full: Scaled,
    sliding: Option<Scaled>,
}

impl<'de> Deserialize<'de> for Angles {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let given = Value::deserialize(from)?;
        let scaled = |value: &Value| {
            Scaled::deserialize(value).map_err(|error| typed::unsupported::<D::Error>(&error.to_string()))
        };
        Ok(match [given.get("full_attention"), given.get("sliding_attention")] {
            [Some(full), Some(sliding)] => Angles { full: scaled(full)?, sliding: Some(scaled(sliding)?) },
            _ => Angles { full: scaled(&given)?, sliding: None },
        })
    }
}

impl Angles {
    /// θ of the layers with windows, if it is given apart and nothing else about them; `None` if there is more.
    pub fn of_windows(&self) -> Option<Option<f64>> {
        match &self.sliding {
            Some(Scaled { theta, part: None, scaling: RopeScaling::None }) => Some(theta.map(|theta| theta.0)),
            Some(_) => None,
            None => Some(None),
        }
    }
}

/// The fields of [`Scaled`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Scaling {
    rope_type: Option<ScalingType>,
    #[serde(rename = "type")]
    older: Option<ScalingType>,
    rope_theta: Option<Theta>,
    partial_rotary_factor: Option<Part>,
    factor: Option<Factor>,
    low_freq_factor: Option<Factor>,
    high_freq_factor: Option<Factor>,
    original_max_position_embeddings: Option<Size<1, { 1 << 30 }>>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ScalingType {
    Default,
    Linear,
    Llama3,
}

impl<'de> Deserialize<'de> for Scaled {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        const SUPPORTED: &str = "null, or rope_type default, linear or llama3 with its factors and a rope_theta";
        let refused = |_| typed::unsupported(SUPPORTED);
        let given = Scaling::deserialize(from).map_err(refused)?;
        let scaling = || {
            Some(match given.rope_type.or(given.older)? {
                ScalingType::Default => RopeScaling::None,
                ScalingType::Linear => RopeScaling::Linear(given.factor?.0),
                ScalingType::Llama3 => {
                    let (low, high) = (given.low_freq_factor?.0, given.high_freq_factor?.0);
                    let trained = given.original_max_position_embeddings?.0;
                    (low < high).then_some(RopeScaling::Llama3 { factor: given.factor?.0, low, high, trained })?
                }
            })
        };
        let scaling = scaling().ok_or_else(|| typed::unsupported(SUPPORTED))?;
        Ok(Scaled { theta: given.rope_theta, part: given.partial_rotary_factor, scaling })
    }
}

/// The configuration of a decoder like LLaMA; `None` if and only if a problem was added.
pub(super) fn read(f: &mut Fields<'_>, fixed: &Defaults) -> Option<NetworkConfig> {
    let before = f.problem_count();
    let (config, rotary) = (typed::read::<Config>(f), typed::read::<Rotary>(f));
    let end_tokens = ends::read(f, common::vocabulary(f)).unwrap_or_default();
    split_is_sound(f, fixed.head_width);
    if !common::merged(f, None).is_empty() {
        f.unsupported(common::MERGED, "feed-forward blocks without a gate");
    }
    if f.problem_count() > before {
        return None;
    }
    let (config, rotary) = (config?, rotary?);
    if rotary.rope_parameters.as_ref().is_some_and(|angles| angles.sliding.is_some())
        && fixed.architecture != Architecture::Gemma3
    {
        f.unsupported("rope_parameters", "the same for all layers");
        return None;
    }
    let (width, heads) = (config.hidden_size.0, config.num_attention_heads.0);
    let head_width = config.head_dim.map(|columns| columns.0).or(fixed.head_width);
    Some(NetworkConfig {
        architecture: fixed.architecture,
        layers: config.num_hidden_layers.0,
        width,
        heads,
        head_width: head_width.filter(|&columns| columns * heads != width),
        key_heads: Some(config.num_key_value_heads.map_or(heads, |keys| keys.0)),
        rope: Some(rotary.rope(fixed.theta, head_width.unwrap_or(width / heads))),
        hidden: config.intermediate_size.0,
        vocabulary: config.vocab_size.0,
        positions: config.max_position_embeddings.0.min(KEPT_POSITIONS),
        activation: config.hidden_act.unwrap_or(fixed.activation),
        epsilon: config.rms_norm_eps.map_or(fixed.epsilon, |epsilon| epsilon.0),
        // Padding is masked, so an id that is no token (−1, or beyond the vocabulary) counts as none.
        padding_id: f.get("pad_token_id").and_then(|id| {
            let id = u32::try_from(id.as_u64()?).ok()?;
            (config.vocab_size.0 > id as usize).then_some(id)
        }),
        tied: config.tie_word_embeddings.unwrap_or(fixed.tied),
        end_tokens,
        ..NetworkConfig::llama_7b()
    })
}

/// Checks how columns split into heads, whatever else is wrong.
fn split_is_sound(f: &mut Fields<'_>, default: Option<usize>) {
    let number = |f: &Fields<'_>, field| usize::try_from(f.get(field)?.as_u64()?).ok().filter(|&n| n > 0);
    let (width, heads) = (number(f, "hidden_size"), number(f, "num_attention_heads"));
    if let (Some(heads), Some(keys)) = (heads, number(f, "num_key_value_heads"))
        && !heads.is_multiple_of(keys)
    {
        f.unsupported("num_key_value_heads", "a divisor of num_attention_heads");
    }
    match (number(f, "head_dim").or(default), width, heads) {
        (Some(columns), ..) if !columns.is_multiple_of(2) => f.unsupported("head_dim", "an even number"),
        (Some(_), ..) => {}
        (None, Some(width), Some(heads)) => {
            common::heads_divide(f, "hidden_size", "num_attention_heads");
            if !(width / heads).is_multiple_of(2) {
                f.unsupported("num_attention_heads", "heads of an even number of columns");
            }
        }
        _ => {}
    }
}

/// Attention to the last rows alone, in some layers. No longer text is taken than all of them see whole.
#[derive(Deserialize)]
pub(super) struct Windows {
    sliding_window: Option<Size<16, { 1 << 30 }>>,
    use_sliding_window: Option<bool>,
    pub layer_types: Option<Vec<LayerType>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum LayerType {
    FullAttention,
    SlidingAttention,
}

impl Windows {
    /// The longest text.
    pub fn shortest(&self, positions: usize) -> usize {
        let sliding = |types: &Vec<LayerType>| types.contains(&LayerType::SlidingAttention);
        let used = self.use_sliding_window.unwrap_or(true) && self.layer_types.as_ref().is_none_or(sliding);
        match self.sliding_window.filter(|_| used) {
            Some(window) => positions.min(window.0),
            None => positions,
        }
    }
}

/// Refuses layers of other attention.
pub(super) fn only_full_attention(f: &mut Fields<'_>) {
    let full = |v: &Value| v.as_str() == Some("full_attention");
    if let Some(types) = f.get("layer_types")
        && !types.as_array().is_some_and(|types| types.iter().all(full))
    {
        f.unsupported("layer_types", "full_attention in every layer");
    }
}

impl Rotary {
    /// The rotation of heads of this many columns.
    fn rope(&self, theta: f64, columns: usize) -> Rope {
        let all = self.rope_parameters.as_ref().map(|angles| &angles.full);
        let scaled = [all, self.rope_scaling.as_ref()].into_iter().flatten();
        let given = |of: fn(&Scaled) -> Option<f64>| scaled.clone().find_map(of);
        let part = given(|s| s.part.map(|part| part.0)).or(self.partial_rotary_factor.map(|part| part.0));
        let turned = part.map(|part| (columns as f64 * part) as usize & !1);
        Rope {
            theta: given(|s| s.theta.map(|theta| theta.0)).or(self.rope_theta.map(|t| t.0)).unwrap_or(theta),
            scaling: scaled.clone().map(|s| s.scaling).find(|s| *s != RopeScaling::None).unwrap_or(RopeScaling::None),
            columns: turned.filter(|&turned| turned != columns),
            ..ROPE
        }
    }
}

/// The name of the last linear layer of a feed-forward block.
pub(super) fn down(i: usize) -> String {
    format!("layers.{i}.mlp.down_proj")
}

/// The layers of a configuration that [`read`] made.
pub(super) fn network<S: Source>(from: &mut LayerReader<'_, S>) -> Result<DecoderNetwork, S::Error> {
    let (table, layers, norm) = parts(from)?;
    let head = from.head(&table)?;
    let (weights, stored) = from.scaled(from.config.form.logit_scale, (head.weights.clone(), head.stored.clone()));
    let head = Linear { weights, stored, ..head };
    Ok(DecoderNetwork { embedding: from.enlarged(table), layers, norm, head })
}

/// The same without its head.
pub(super) fn embedder<S: Source>(from: &mut LayerReader<'_, S>, pool: Pool) -> Result<EmbedderNetwork, S::Error> {
    let (table, layers, norm) = parts(from)?;
    Ok(EmbedderNetwork { embedding: from.enlarged(table), layers, norm, pool, projection: None })
}

/// The token vectors as they are stored, the layers, and the norm after them.
fn parts<S: Source>(from: &mut LayerReader<'_, S>) -> Result<(Embedding, Vec<Layer>, Norm), S::Error> {
    let c = from.config;
    let (tokens, stored) = from.numbers("embed_tokens.weight", c.vocabulary, c.width)?;
    let table = Embedding {
        vocabulary: c.vocabulary,
        positions: c.positions,
        placed: false,
        width: c.width,
        tokens,
        stored,
        offsets: None,
        typed: false,
        second: None,
    };
    let layers = (0..c.layers).map(|i| from.llama_layer(i)).collect::<Result<_, _>>()?;
    let norm = from.rms_norm("norm", c.width)?;
    Ok((table, layers, norm))
}

impl<S: Source> LayerReader<'_, S> {
    /// The token vectors with their factor.
    fn enlarged(&self, table: Embedding) -> Embedding {
        let (tokens, stored) = self.scaled(self.config.form.embedding_scale, (table.tokens, table.stored));
        Embedding { tokens, stored, ..table }
    }

    fn llama_layer(&mut self, i: usize) -> Result<Layer, S::Error> {
        let c = self.config;
        let (d, hidden, heads) = (c.width, c.hidden, c.split());
        let name = |part: &str| format!("layers.{i}.{part}");
        let (queries, keys) = (heads.query_columns(), heads.key_columns());
        let [attention_norm, feed_forward_norm] = match c.form.norms {
            Norms::Before => ["input_layernorm", "post_attention_layernorm"],
            Norms::After => ["post_attention_layernorm", "post_feedforward_layernorm"],
            Norms::Around => ["input_layernorm", "pre_feedforward_layernorm"],
        };
        let biased = c.biases.attention;
        let attention = |part: &str| name(&format!("self_attn.{part}_proj"));
        let [query, key, value] = match c.form.fused {
            true => self.above_each_other(&attention("qkv"), d, [queries, keys, keys])?,
            false => [
                self.linear_if(&attention("q"), d, queries, biased)?,
                self.linear_if(&attention("k"), d, keys, biased)?,
                self.linear_if(&attention("v"), d, keys, biased)?,
            ],
        };
        let output = self.linear_if(&attention("o"), queries, d, biased && !c.form.no_output_bias)?;
        let sub_norm = self.sub_norm(&name("self_attn.attn_sub_norm"), queries)?;
        let biased = c.biases.feed_forward;
        let wide = |part: &str| name(&format!("mlp.{part}_proj"));
        let [gate, up] = match c.form.fused {
            true => self.above_each_other(&wide("gate_up"), d, [hidden, hidden])?,
            false => {
                [self.linear_if(&wide("gate"), d, hidden, biased)?, self.linear_if(&wide("up"), d, hidden, biased)?]
            }
        };
        let down = self.linear_if(&down(i), hidden, d, biased)?;
        Ok(Layer {
            attention_norm: self.rms_norm(&name(attention_norm), d)?,
            attention: Attention {
                query,
                key,
                value,
                query_norm: self.head_norm(&name("self_attn.q_norm"), queries)?,
                key_norm: self.head_norm(&name("self_attn.k_norm"), keys)?,
                sub_norm,
                output: self.scaled_layer(c.form.residual_scale, output),
                heads,
                rope: c.form.ropes.get(i).copied().unwrap_or(c.rope),
                distances: None,
                weigh: c.weigh,
                mask: Mask::Causal,
                queries: Queries::All,
            },
            feed_forward_norm: self.rms_norm(&name(feed_forward_norm), d)?,
            feed_forward: Block::FeedForward(FeedForward {
                up,
                gate: Some(gate),
                activation: c.activation,
                tolerance: c.tolerance,
                sub_norm: self.sub_norm(&name("mlp.ffn_sub_norm"), hidden)?,
                down: self.scaled_layer(c.form.residual_scale, down),
            }),
            order: match c.form.norms {
                Norms::Before => NormOrder::Before,
                Norms::After => NormOrder::After,
                Norms::Around => {
                    let mut after = |part| self.rms_norm(&name(part), d);
                    let after = [after("post_attention_layernorm")?, after("post_feedforward_layernorm")?];
                    NormOrder::Around(Box::new(after))
                }
            },
        })
    }

    /// The norm of queries or keys, if the configuration has them.
    fn head_norm(&mut self, name: &str, columns: usize) -> Result<Option<Box<Norm>>, S::Error> {
        let width = match self.config.form.head_norms {
            None => return Ok(None),
            Some(HeadNorms::Each) => self.config.split().width,
            Some(HeadNorms::All) => columns,
        };
        Ok(Some(Box::new(self.rms_norm(name, width)?)))
    }

    /// The norm inside a block, if the configuration has them.
    fn sub_norm(&mut self, name: &str, width: usize) -> Result<Option<Norm>, S::Error> {
        match self.config.sub_norms {
            true => self.rms_norm(name, width).map(Some),
            false => Ok(None),
        }
    }

    fn rms_norm(&mut self, name: &str, width: usize) -> Result<Norm, S::Error> {
        let mut gain = self.vector(&format!("{name}.weight"), width)?;
        if self.config.form.gains_less_one {
            gain = gain.map(|gain| gain.iter().map(|g| 1.0 + g).collect());
        }
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
