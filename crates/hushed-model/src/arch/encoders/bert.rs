//! BERT (Devlin et al. 2019).

use serde::Deserialize;

use super::{ENCODER_FIELDS, Encoder, Head, Tensors, finish};
use crate::arch::common::{BLOCK_FIELDS, Epsilon, Hidden, Layers, Positions, TokenId, Types, Vocabulary, Width};
use crate::arch::config::NetworkConfig;
use crate::arch::kind::Architecture;
use crate::blocks::Activation;
use crate::folder::fields::{COMMON, Entry, Table, Use::Nothing, read_by, unused};
use crate::folder::json::Fields;
use crate::folder::json::typed;

/// ε if a configuration does not specify it.
pub(crate) const EPSILON: f64 = 1e-12;

/// Its fields, which many encoders share.
#[derive(Deserialize)]
pub(super) struct Config {
    pub num_hidden_layers: Layers,
    pub hidden_size: Width,
    pub num_attention_heads: Width,
    pub intermediate_size: Hidden,
    pub hidden_act: Activation,
    pub vocab_size: Vocabulary,
    pub max_position_embeddings: Positions,
    pub type_vocab_size: Option<Types>,
    pub layer_norm_eps: Option<Epsilon>,
    pub pad_token_id: Option<TokenId>,
}

/// Written by the first folders and read by no library.
pub(super) const FIELDS: &[Entry] = &[
    ("directionality", Nothing),
    ("pooler_fc_size", Nothing),
    ("pooler_num_attention_heads", Nothing),
    ("pooler_num_fc_layers", Nothing),
    ("pooler_size_per_head", Nothing),
    ("pooler_type", Nothing),
];

pub(crate) const ENCODER: Encoder = Encoder {
    tensors: TENSORS,
    projection: "",
    distances: None,
    shared: false,
    head: Head {
        architectures: &["BertForSequenceClassification"],
        dense: "pooler.dense",
        activation: Activation::Tanh,
        classes: "classifier",
    },
};

pub(super) const TENSORS: Tensors = Tensors {
    layers: "encoder.layer",
    query: "attention.self.query",
    key: "attention.self.key",
    value: "attention.self.value",
    output: "attention.output.dense",
    attention_norm: "attention.output.LayerNorm",
    up: "intermediate.dense",
    down: "output.dense",
    feed_forward_norm: "output.LayerNorm",
};

pub(crate) fn fields() -> Vec<Table> {
    vec![read_by::<Config>(), BLOCK_FIELDS.into(), ENCODER_FIELDS.into(), FIELDS.into(), COMMON.into(), unused()]
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    let config = typed::read::<Config>(f).map(|config| config.network(Architecture::Bert));
    finish(f, config, &ENCODER, ["hidden_size", "num_attention_heads"])
}

impl Config {
    /// Positions begin at row 0 of the table.
    pub(super) fn network(self, architecture: Architecture) -> NetworkConfig {
        NetworkConfig {
            architecture,
            layers: self.num_hidden_layers.0,
            width: self.hidden_size.0,
            heads: self.num_attention_heads.0,
            hidden: self.intermediate_size.0,
            vocabulary: self.vocab_size.0,
            positions: self.max_position_embeddings.0,
            token_types: self.type_vocab_size.map_or(2, |rows| rows.0),
            activation: self.hidden_act,
            epsilon: self.layer_norm_eps.map_or(EPSILON, |epsilon| epsilon.0),
            padding_id: self.pad_token_id.map(|id| id.0 as u32),
            ..NetworkConfig::base()
        }
    }
}
