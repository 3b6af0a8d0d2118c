//! Gemma (Gemma team, 2024): LLaMA with token vectors times √d and gains stored less one. Gemma 3 (2025): also norms
//! after its blocks, norms of the queries and keys of each head, and layers that see only the last rows.

use serde::Deserialize;

use super::{Angles, Defaults, LayerType, Windows, fields_with};
use crate::arch::common::{Factor, models};
use crate::arch::config::{Biases, Form, HeadNorms, NetworkConfig, Norms};
use crate::arch::kind::Architecture;
use crate::blocks::{Activation, Rope, RopeScaling};
use crate::folder::fields::{
    Entry, OFF, Table,
    Use::{Nothing, Only},
    read_by,
};
use crate::folder::json::Fields;
use crate::folder::json::typed::{self, Size};

#[derive(Deserialize)]
struct Own {
    attention_bias: Option<bool>,
    /// In the place of `hidden_act`, which was wrong in early folders.
    hidden_activation: Option<Activation>,
}

/// Of Gemma 3.
#[derive(Deserialize)]
struct Third {
    query_pre_attn_scalar: Option<Factor>,
    rope_local_base_freq: Option<Factor>,
    rope_parameters: Option<Angles>,
    sliding_window_pattern: Option<Size<1, 64>>,
}

const FIELDS: &[Entry] = &[
    ("use_bidirectional_attention", Only(OFF, "rows that see those before them (false)")),
    ("final_logit_softcapping", Only(&[], "logits as they are (null)")),
    ("attn_logit_softcapping", Only(&[], "scores as they are (null)")),
    ("_sliding_window_pattern", Nothing),
    ("cache_implementation", Nothing),
];

pub(crate) fn fields(architecture: Architecture) -> Vec<Table> {
    let mut own = vec![read_by::<Own>(), FIELDS.into()];
    if architecture == Architecture::Gemma3 {
        own.extend([read_by::<Third>(), read_by::<Windows>()]);
    }
    fields_with(own)
}

pub(crate) fn read_1(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    models(f, &["GemmaForCausalLM", "GemmaModel"]);
    read(f, Architecture::Gemma)
}

pub(crate) fn read_3(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    models(f, &["Gemma3ForCausalLM", "Gemma3TextModel"]);
    let (third, windows) = (typed::read::<Third>(f), typed::read::<Windows>(f));
    let config = read(f, Architecture::Gemma3)?;
    let (third, windows) = (third?, windows?);
    let pattern = third.sliding_window_pattern.map_or(6, |pattern| pattern.0);
    let of_pattern = |layer: usize| match layer % pattern {
        0 => LayerType::FullAttention,
        _ => LayerType::SlidingAttention,
    };
    let types = windows.layer_types.unwrap_or_else(|| (1..=config.layers).map(of_pattern).collect());
    if types.len() != config.layers {
        f.unsupported("layer_types", "full_attention or sliding_attention for every layer");
        return None;
    }
    // Layers with windows have angles of their own, which are never scaled.
    let Some(apart) = third.rope_parameters.as_ref().map_or(Some(None), Angles::of_windows) else {
        f.unsupported("rope_parameters", "rope_type default for sliding_attention");
        return None;
    };
    let theta = apart.unwrap_or(third.rope_local_base_freq.map_or(10_000.0, |theta| theta.0));
    let local = config.rope.map(|rope| Rope { theta, scaling: RopeScaling::None, ..rope });
    let rope = |kind: &LayerType| match kind {
        LayerType::FullAttention => config.rope,
        LayerType::SlidingAttention => local,
    };
    let ropes = types.iter().map(rope).collect();
    let windows = Windows { layer_types: Some(types), ..windows };
    let score_scale = third.query_pre_attn_scalar.map_or(256.0, |scalar| scalar.0).powf(-0.5);
    Some(NetworkConfig {
        positions: windows.shortest(config.positions),
        form: Form {
            norms: Norms::Around,
            head_norms: Some(HeadNorms::Each),
            score_scale: Some(score_scale),
            ropes,
            ..config.form
        },
        ..config
    })
}

fn read(f: &mut Fields<'_>, architecture: Architecture) -> Option<NetworkConfig> {
    let own = typed::read::<Own>(f);
    let theta = if architecture == Architecture::Gemma3 { 1_000_000.0 } else { 10_000.0 };
    let activation = Activation::GeluTanh;
    let llama = Defaults::like_llama(architecture);
    let config = super::read(f, &Defaults { activation, theta, tied: true, head_width: Some(256), ..llama })?;
    let own = own?;
    Some(NetworkConfig {
        activation: own.hidden_activation.unwrap_or(match architecture {
            // Its early folders say `gelu` and mean the other.
            Architecture::Gemma => activation,
            _ => config.activation,
        }),
        form: Form { embedding_scale: (config.width as f64).sqrt(), gains_less_one: true, ..Form::default() },
        biases: Biases { attention: own.attention_bias.unwrap_or(false), feed_forward: false },
        ..config
    })
}
