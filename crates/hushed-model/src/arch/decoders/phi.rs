//! Phi-3 (Abdin et al. 2024): LLaMA whose query, key and value are stored as one matrix, and gate and up as another.

use super::{Defaults, Windows, fields_with};
use crate::arch::common::models;
use crate::arch::config::{Form, NetworkConfig};
use crate::arch::kind::Architecture;
use crate::folder::fields::{Entry, Table, Use::Nothing, read_by};
use crate::folder::json::Fields;
use crate::folder::json::typed;

const FIELDS: &[Entry] = &[
    ("resid_pdrop", Nothing),
    ("embd_pdrop", Nothing),
    // Of a scaling that is refused where it is named.
    ("original_max_position_embeddings", Nothing),
    // Published folders name code that is now part of `transformers`.
    ("auto_map", Nothing),
    ("attention_bias", Nothing),
];

pub(crate) fn fields() -> Vec<Table> {
    fields_with(vec![read_by::<Windows>(), FIELDS.into()])
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    models(f, &["Phi3ForCausalLM", "Phi3Model"]);
    let windows = typed::read::<Windows>(f);
    let config = super::read(f, &Defaults { epsilon: 1e-5, ..Defaults::like_llama(Architecture::Phi3) })?;
    let form = Form { fused: true, ..Form::default() };
    Some(NetworkConfig { positions: windows?.shortest(config.positions), form, ..config })
}
