//! Qwen 2 and 2.5 (Yang et al. 2024): LLaMA with biases of query, key and value. Qwen 3 (Yang et al. 2025): without
//! them, with norms of the queries and keys of each head.

use serde::Deserialize;

use super::{Defaults, Windows, fields_with};
use crate::arch::common::models;
use crate::arch::config::{Biases, Form, HeadNorms, NetworkConfig};
use crate::arch::kind::Architecture;
use crate::folder::fields::{Entry, Table, Use::Nothing, read_by};
use crate::folder::json::Fields;
use crate::folder::json::typed;

/// Of Qwen 3.
#[derive(Deserialize)]
struct Own {
    attention_bias: Option<bool>,
}

/// Which layers have windows, if any have.
const FIELDS: &[Entry] = &[("max_window_layers", Nothing)];

pub(crate) fn fields(architecture: Architecture) -> Vec<Table> {
    let mut own = vec![read_by::<Windows>(), FIELDS.into()];
    if architecture == Architecture::Qwen3 {
        own.push(read_by::<Own>());
    }
    fields_with(own)
}

pub(crate) fn read_2(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    models(f, &["Qwen2ForCausalLM", "Qwen2Model"]);
    let config = read(f, &Defaults::like_llama(Architecture::Qwen2))?;
    let form = Form { no_output_bias: true, ..Form::default() };
    Some(NetworkConfig { biases: Biases { attention: true, feed_forward: false }, form, ..config })
}

pub(crate) fn read_3(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    models(f, &["Qwen3ForCausalLM", "Qwen3Model"]);
    let own = typed::read::<Own>(f);
    let fixed = Defaults { head_width: Some(128), ..Defaults::like_llama(Architecture::Qwen3) };
    let config = read(f, &fixed)?;
    let biases = Biases { attention: own?.attention_bias.unwrap_or(false), feed_forward: false };
    Some(NetworkConfig { biases, form: Form { head_norms: Some(HeadNorms::Each), ..Form::default() }, ..config })
}

fn read(f: &mut Fields<'_>, fixed: &Defaults) -> Option<NetworkConfig> {
    let windows = typed::read::<Windows>(f);
    let config = super::read(f, fixed)?;
    let windows = windows?;
    // Windows are off unless this field says otherwise.
    let windows = Windows { use_sliding_window: windows.use_sliding_window.or(Some(false)), ..windows };
    Some(NetworkConfig { positions: windows.shortest(config.positions), ..config })
}
