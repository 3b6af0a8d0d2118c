//! The tower of CLIP (Radford et al. 2021) that reads images: ViT with a norm after its patches. Its answer is the
//! class token's row after the last norm, or a linear map of it, which is compared with that of a text.

use serde::Deserialize;

use super::{Side, VISION_FIELDS, Vision, named};
use crate::arch::common::{self, Epsilon, Hidden, Layers, Width};
use crate::arch::config::{Form, NetworkConfig};
use crate::arch::kind::Architecture;
use crate::blocks::Activation;
use crate::folder::fields::{COMMON, Entry, Table, Use::Nothing, read_by, unused};
use crate::folder::json::Fields;
use crate::folder::json::typed;

/// ε if a configuration does not specify it.
pub(crate) const EPSILON: f64 = 1e-5;
/// Columns of an embedding if a configuration does not specify them.
pub(crate) const PROJECTED: usize = 512;

#[derive(Deserialize)]
struct Config {
    num_hidden_layers: Layers,
    hidden_size: Width,
    num_attention_heads: Width,
    intermediate_size: Hidden,
    hidden_act: Option<Activation>,
    layer_norm_eps: Option<Epsilon>,
    image_size: Side,
    patch_size: Side,
    projection_dim: Option<Width>,
}

const FIELDS: &[Entry] = &[("attention_dropout", Nothing), ("dropout", Nothing)];

pub(crate) const VISION: Vision = Vision {
    class: ("embeddings.class_embedding", 0),
    positions: ("embeddings.position_embedding.weight", 0),
    patches: ("embeddings.patch_embedding", false),
    first_norm: Some("pre_layrnorm"),
    layers: "encoder.layers",
    norms: ["layer_norm1", "layer_norm2"],
    reads: ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    output: "self_attn.out_proj",
    up: "mlp.fc1",
    down: "mlp.fc2",
    scales: None,
    norm: "post_layernorm",
    projection: "visual_projection",
    classes: "",
};

pub(crate) fn fields() -> Vec<Table> {
    vec![read_by::<Config>(), FIELDS.into(), VISION_FIELDS.into(), COMMON.into(), unused()]
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    let before = f.problem_count();
    let config = typed::read::<Config>(f);
    let patches = config.as_ref().and_then(|config| super::patches(f, config.image_size.0, config.patch_size.0));
    let known = [("CLIPVisionModelWithProjection", true), ("CLIPVisionModel", false)];
    let projects = named(f, &known, "CLIPVisionModel or CLIPVisionModelWithProjection");
    common::heads_divide(f, "hidden_size", "num_attention_heads");
    let merged = common::merged(f, config.as_ref().map(|c| c.num_hidden_layers.0));
    if f.problem_count() > before {
        return None;
    }
    let config = config?;
    let projected = config.projection_dim.map_or(PROJECTED, |columns| columns.0);
    Some(NetworkConfig {
        architecture: Architecture::ClipVision,
        layers: config.num_hidden_layers.0,
        width: config.hidden_size.0,
        heads: config.num_attention_heads.0,
        hidden: config.intermediate_size.0,
        merged,
        positions: patches? + 1,
        patch_side: config.patch_size.0,
        activation: config.hidden_act.unwrap_or(Activation::QuickGelu),
        epsilon: config.layer_norm_eps.map_or(EPSILON, |epsilon| epsilon.0),
        labels: None,
        form: Form { projected: projects?.then_some(projected), ..Form::default() },
        ..NetworkConfig::vit_base()
    })
}
