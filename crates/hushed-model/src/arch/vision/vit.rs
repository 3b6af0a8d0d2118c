//! ViT (Dosovitskiy et al. 2021), as a classifier, or as the class token's row after the last norm.

use serde::Deserialize;

use super::{Side, VISION_FIELDS, Vision, named};
use crate::arch::common::{self, BLOCK_FIELDS, Epsilon, Hidden, Layers, Width};
use crate::arch::config::{Biases, NetworkConfig};
use crate::blocks::Activation;
use crate::folder::config::labels;
use crate::folder::fields::{COMMON, Entry, Table, Use::Nothing, read_by, unused};
use crate::folder::json::Fields;
use crate::folder::json::typed;

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

const FIELDS: &[Entry] = &[
    // Of models for masked patches, and of a pooler, which is not read.
    ("encoder_stride", Nothing),
    ("pooler_output_size", Nothing),
    ("pooler_act", Nothing),
    // Of texts.
    ("pad_token_id", Nothing),
    ("eos_token_id", Nothing),
];

pub(crate) const VISION: Vision = Vision {
    class: ("embeddings.cls_token", 2),
    positions: ("embeddings.position_embeddings", 1),
    patches: ("embeddings.patch_embeddings.projection", true),
    first_norm: None,
    layers: "encoder.layer",
    norms: ["layernorm_before", "layernorm_after"],
    reads: ["attention.attention.query", "attention.attention.key", "attention.attention.value"],
    output: "attention.output.dense",
    up: "intermediate.dense",
    down: "output.dense",
    scales: None,
    norm: "layernorm",
    projection: "",
    classes: "classifier",
};

pub(crate) fn fields() -> Vec<Table> {
    vec![read_by::<Config>(), FIELDS.into(), VISION_FIELDS.into(), BLOCK_FIELDS.into(), COMMON.into(), unused()]
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    let before = f.problem_count();
    let config = typed::read::<Config>(f);
    let patches = config.as_ref().and_then(|config| super::patches(f, config.image_size.0, config.patch_size.0));
    named(f, &[(CLASSIFIER, ()), ("ViTModel", ())], "ViTForImageClassification or ViTModel");
    let labels = labels::parse(f, &[CLASSIFIER]);
    let problem = labels.as_ref().map(|_| labels::problem_type(f)).unwrap_or_default();
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
        problem,
        biases: Biases { attention: config.qkv_bias.unwrap_or(true), feed_forward: true },
        ..NetworkConfig::vit_base()
    })
}
