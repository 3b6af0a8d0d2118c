//! Mistral (Jiang et al. 2023): LLaMA, in which a row may see only the last rows before it.

use super::{Defaults, Windows, fields_with};
use crate::arch::common::models;
use crate::arch::config::NetworkConfig;
use crate::arch::kind::Architecture;
use crate::folder::fields::{Table, read_by};
use crate::folder::json::Fields;
use crate::folder::json::typed;

pub(crate) fn fields() -> Vec<Table> {
    fields_with(vec![read_by::<Windows>()])
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    models(f, &["MistralForCausalLM", "MistralModel"]);
    let windows = typed::read::<Windows>(f);
    let config = super::read(f, &Defaults::like_llama(Architecture::Mistral))?;
    Some(NetworkConfig { positions: windows?.shortest(config.positions), ..config })
}
