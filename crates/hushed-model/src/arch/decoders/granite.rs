//! Granite (IBM, 2024): LLaMA with factors of its token vectors, scores, blocks and logits.

use serde::Deserialize;

use super::{Defaults, NO_WINDOW, fields_with, only_full_attention};
use crate::arch::common::{Factor, models};
use crate::arch::config::{Biases, Form, NetworkConfig};
use crate::arch::kind::Architecture;
use crate::folder::fields::{Table, read_by};
use crate::folder::json::Fields;
use crate::folder::json::typed;

#[derive(Deserialize)]
struct Own {
    embedding_multiplier: Option<Factor>,
    residual_multiplier: Option<Factor>,
    attention_multiplier: Option<Factor>,
    logits_scaling: Option<Factor>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
}

pub(crate) fn fields() -> Vec<Table> {
    fields_with(vec![read_by::<Own>(), NO_WINDOW.into()])
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    models(f, &["GraniteForCausalLM", "GraniteModel"]);
    only_full_attention(f);
    let own = typed::read::<Own>(f);
    let config = super::read(f, &Defaults::like_llama(Architecture::Granite))?;
    let own = own?;
    let factor = |factor: Option<Factor>| factor.map_or(1.0, |factor| factor.0);
    Some(NetworkConfig {
        form: Form {
            embedding_scale: factor(own.embedding_multiplier),
            residual_scale: factor(own.residual_multiplier),
            logit_scale: 1.0 / factor(own.logits_scaling),
            score_scale: Some(factor(own.attention_multiplier)),
            ..Form::default()
        },
        biases: Biases { attention: own.attention_bias.unwrap_or(false), feed_forward: own.mlp_bias.unwrap_or(false) },
        ..config
    })
}
