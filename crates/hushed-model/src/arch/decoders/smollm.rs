//! SmolLM3 (Hugging Face, 2025): LLaMA in which some layers have no rotary positions.

use serde::Deserialize;

use super::{Defaults, Windows, fields_with};
use crate::arch::common::{MAX_LAYERS, models};
use crate::arch::config::{Biases, Form, NetworkConfig};
use crate::arch::kind::Architecture;
use crate::folder::fields::{Entry, Table, Use::Nothing, read_by};
use crate::folder::json::Fields;
use crate::folder::json::typed::{self, Size};

#[derive(Deserialize)]
struct Own {
    /// For every layer, 1 if it has rotary positions.
    no_rope_layers: Option<Vec<Size<0, 1>>>,
    no_rope_layer_interval: Option<Size<1, MAX_LAYERS>>,
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
}

const FIELDS: &[Entry] = &[("max_window_layers", Nothing)];

pub(crate) fn fields() -> Vec<Table> {
    fields_with(vec![read_by::<Own>(), read_by::<Windows>(), FIELDS.into()])
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    models(f, &["SmolLM3ForCausalLM", "SmolLM3Model"]);
    let (own, windows) = (typed::read::<Own>(f), typed::read::<Windows>(f));
    let config =
        super::read(f, &Defaults { theta: 2_000_000.0, tied: true, ..Defaults::like_llama(Architecture::SmolLm3) })?;
    let own = own?;
    let interval = own.no_rope_layer_interval.map_or(4, |interval| interval.0);
    let turned: Vec<bool> = match own.no_rope_layers {
        Some(turned) => turned.iter().map(|turned| turned.0 == 1).collect(),
        None => (1..=config.layers).map(|layer| layer % interval != 0).collect(),
    };
    if turned.len() != config.layers {
        f.unsupported("no_rope_layers", "0 or 1 for every layer");
        return None;
    }
    Some(NetworkConfig {
        positions: windows?.shortest(config.positions),
        form: Form {
            ropes: turned.into_iter().map(|turned| config.rope.filter(|_| turned)).collect(),
            ..Form::default()
        },
        biases: Biases { attention: own.attention_bias.unwrap_or(false), feed_forward: own.mlp_bias.unwrap_or(false) },
        ..config
    })
}
