//! OLMo 2 (OLMo team, 2024): LLaMA with norms after its blocks instead of before them, and norms of all queries and
//! keys.

use serde::Deserialize;

use super::{Defaults, NO_WINDOW, fields_with, only_full_attention};
use crate::arch::common::models;
use crate::arch::config::{Biases, Form, HeadNorms, NetworkConfig, Norms};
use crate::arch::kind::Architecture;
use crate::folder::fields::{Table, read_by};
use crate::folder::json::Fields;
use crate::folder::json::typed;

#[derive(Deserialize)]
struct Own {
    attention_bias: Option<bool>,
}

pub(crate) fn fields() -> Vec<Table> {
    fields_with(vec![read_by::<Own>(), NO_WINDOW.into()])
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    models(f, &["Olmo2ForCausalLM", "Olmo2Model"]);
    only_full_attention(f);
    let own = typed::read::<Own>(f);
    let config = super::read(f, &Defaults { epsilon: 1e-5, ..Defaults::like_llama(Architecture::Olmo2) })?;
    Some(NetworkConfig {
        form: Form { norms: Norms::After, head_norms: Some(HeadNorms::All), ..Form::default() },
        biases: Biases { attention: own?.attention_bias.unwrap_or(false), feed_forward: false },
        ..config
    })
}
