//! Vision transformers (Dosovitskiy et al. 2021). The map of patches is stored as a convolution with non-overlapping
//! windows: channels × rows × columns of a patch, in the order of [`Pixels`](crate::images::Pixels). The positions
//! follow from the image and patch sizes.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::arch::common::{self, BLOCK_FIELDS, Epsilon, Hidden, Layers, Width};
use crate::arch::config::{Biases, NetworkConfig};
use crate::blocks::{Activation, Attention, FeedForward, Linear, Mask, Patches, Queries, Weigh};
use crate::decoder::{Layer, NormOrder};
use crate::folder::config::labels;
use crate::folder::fields::{
    COMMON, Entry, Table,
    Use::{Nothing, Only},
    read_by, unused,
};
use crate::folder::json::Fields;
use crate::folder::json::typed::{self, Size};
use crate::images::CHANNELS;
use crate::layers::{LayerReader, Source};
use crate::matrix::Matrix;
use crate::program::Block;
use crate::vit::VisionNetwork;

const CLASSIFIER: &str = "ViTForImageClassification";
/// ε if a configuration does not specify it.
const EPSILON: f64 = 1e-12;

#[derive(Deserialize)]
struct Config {
    num_hidden_layers: Layers,
    hidden_size: Width,
    num_attention_heads: Width,
    intermediate_size: Hidden,
    hidden_act: Activation,
    layer_norm_eps: Option<Epsilon>,
    image_size: Side,
    patch_size: Side,
    qkv_bias: Option<bool>,
}

/// A side in pixels, at most far above published models.
type Side = Size<1, { 1 << 10 }>;

const FIELDS: &[Entry] = &[
    ("num_channels", Only(&["3"], "3")),
    // Of models for masked patches, and of a pooler that classifiers do not have.
    ("encoder_stride", Nothing),
    ("pooler_output_size", Nothing),
    ("pooler_act", Nothing),
    // Of texts.
    ("pad_token_id", Nothing),
    ("eos_token_id", Nothing),
    ("tie_word_embeddings", Nothing),
    ("is_decoder", Nothing),
];

pub(crate) fn fields() -> Vec<Table> {
    vec![read_by::<Config>(), FIELDS.into(), BLOCK_FIELDS.into(), COMMON.into(), unused()]
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    let before = f.problem_count();
    let config = typed::read::<Config>(f);
    let patches = config.as_ref().and_then(|config| patches(f, config.image_size.0, config.patch_size.0));
    let named = f.get("architectures").and_then(Value::as_array);
    if !named.is_some_and(|names| names.iter().any(|name| name == CLASSIFIER)) {
        f.unsupported("architectures", CLASSIFIER);
    }
    let labels = labels::parse(f, &[CLASSIFIER]);
    let exclusive = labels.is_none() || labels::exclusive(f);
    common::heads_divide(f, "hidden_size", "num_attention_heads");
    let merged = common::merged(f, config.as_ref().map(|c| c.num_hidden_layers.0));
    if f.problem_count() > before {
        return None;
    }
    let config = config?;
    Some(NetworkConfig {
        layers: config.num_hidden_layers.0,
        width: config.hidden_size.0,
        heads: config.num_attention_heads.0,
        hidden: config.intermediate_size.0,
        merged,
        positions: patches? + 1,
        patch_side: config.patch_size.0,
        activation: config.hidden_act,
        epsilon: config.layer_norm_eps.map_or(EPSILON, |epsilon| epsilon.0),
        labels,
        exclusive,
        biases: Biases { attention: config.qkv_bias.unwrap_or(true), feed_forward: true },
        ..NetworkConfig::vit_base()
    })
}

/// Patches per image.
fn patches(f: &mut Fields<'_>, side: usize, patch: usize) -> Option<usize> {
    let count = (side / patch).pow(2);
    if !side.is_multiple_of(patch) || count < 2 {
        f.unsupported("patch_size", "a divisor of image_size, and at least 4 patches");
        return None;
    }
    Some(count)
}

/// The name of the last linear layer of a feed-forward block.
pub(crate) fn down(i: usize) -> String {
    format!("encoder.layer.{i}.output.dense")
}

/// The layers of a configuration that [`read`] made.
pub(crate) fn network<S: Source>(from: &mut LayerReader<'_, S>) -> Result<VisionNetwork, S::Error> {
    let c = from.config;
    let classes = c.labels.as_ref().map_or(0, Vec::len);
    Ok(VisionNetwork {
        patches: from.patches()?,
        layers: (0..c.layers).map(|i| from.vision_layer(i)).collect::<Result<_, _>>()?,
        norm: from.norm("layernorm")?,
        classes: from.linear("classifier", c.width, classes)?,
    })
}

impl<S: Source> LayerReader<'_, S> {
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
            order: NormOrder::Before,
            attention_norm: self.norm(&name("layernorm_before"))?,
            attention: Attention {
                query_norm: None,
                key_norm: None,
                sub_norm: None,
                query,
                key,
                value,
                output: self.linear(&name("attention.output.dense"), d, d)?,
                heads: self.config.split(),
                rope: None,
                distances: None,
                weigh: Weigh::Softmax,
                mask: Mask::Full,
                queries: Queries::All,
            },
            feed_forward_norm: self.norm(&name("layernorm_after"))?,
            feed_forward: match self.config.merged.contains(&i) {
                true => Block::Linear(self.linear(&down(i), d, d)?),
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
