//! DINOv2 (Oquab et al. 2023): ViT whose blocks' results have a factor per column, which is multiplied into the layers
//! before it. Its answer is the class token's row after the last norm.

use serde::Deserialize;

use super::{Side, VISION_FIELDS, Vision, named, vit};
use crate::arch::common::{self, BLOCK_FIELDS, Epsilon, Layers, Width};
use crate::arch::config::{Biases, NetworkConfig};
use crate::arch::kind::Architecture;
use crate::blocks::Activation;
use crate::folder::fields::{
    COMMON, Entry, OFF, Table,
    Use::{Nothing, Only},
    read_by, unused,
};
use crate::folder::json::Fields;
use crate::folder::json::typed::{self, Size};

/// ε if a configuration does not specify it.
const EPSILON: f64 = 1e-6;

#[derive(Deserialize)]
struct Config {
    num_hidden_layers: Layers,
    hidden_size: Width,
    num_attention_heads: Width,
    /// Columns inside the feed-forward block, in widths.
    mlp_ratio: Option<Size<1, 64>>,
    hidden_act: Option<Activation>,
    layer_norm_eps: Option<Epsilon>,
    image_size: Side,
    patch_size: Side,
    qkv_bias: Option<bool>,
}

const FIELDS: &[Entry] = &[
    ("use_swiglu_ffn", Only(OFF, "feed-forward blocks without a gate (false)")),
    // Where factors began, before training.
    ("layerscale_value", Nothing),
    ("drop_path_rate", Nothing),
    ("use_mask_token", Nothing),
    // Of a backbone for other models.
    ("apply_layernorm", Nothing),
    ("reshape_hidden_states", Nothing),
    ("stage_names", Nothing),
    ("out_features", Nothing),
    ("out_indices", Nothing),
    ("_out_features", Nothing),
    ("_out_indices", Nothing),
];

pub(crate) const VISION: Vision = Vision {
    norms: ["norm1", "norm2"],
    up: "mlp.fc1",
    down: "mlp.fc2",
    scales: Some(["layer_scale1.lambda1", "layer_scale2.lambda1"]),
    ..vit::VISION
};

pub(crate) fn fields() -> Vec<Table> {
    vec![read_by::<Config>(), FIELDS.into(), VISION_FIELDS.into(), BLOCK_FIELDS.into(), COMMON.into(), unused()]
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    let before = f.problem_count();
    let config = typed::read::<Config>(f);
    let patches = config.as_ref().and_then(|config| super::patches(f, config.image_size.0, config.patch_size.0));
    named(f, &[("Dinov2Model", ())], "Dinov2Model: its classifier reads two rows");
    common::heads_divide(f, "hidden_size", "num_attention_heads");
    let merged = common::merged(f, config.as_ref().map(|c| c.num_hidden_layers.0));
    if f.problem_count() > before {
        return None;
    }
    let config = config?;
    Some(NetworkConfig {
        architecture: Architecture::Dinov2,
        layers: config.num_hidden_layers.0,
        width: config.hidden_size.0,
        heads: config.num_attention_heads.0,
        hidden: config.hidden_size.0 * config.mlp_ratio.map_or(4, |ratio| ratio.0),
        merged,
        positions: patches? + 1,
        patch_side: config.patch_size.0,
        activation: config.hidden_act.unwrap_or(Activation::Gelu),
        epsilon: config.layer_norm_eps.map_or(EPSILON, |epsilon| epsilon.0),
        labels: None,
        biases: Biases { attention: config.qkv_bias.unwrap_or(true), feed_forward: true },
        ..NetworkConfig::vit_base()
    })
}
