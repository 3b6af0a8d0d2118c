//! DistilBERT (Sanh et al. 2019): BERT's encoder without token types. Its position table is in the weights even if it
//! was made of sines (`sinusoidal_pos_embds`), so nothing depends on that field.

use serde::Deserialize;

use super::bert::EPSILON;
use super::{ENCODER_FIELDS, Encoder, Head, Tensors, finish};
use crate::arch::common::{Hidden, Layers, Positions, TokenId, Vocabulary, Width};
use crate::arch::config::NetworkConfig;
use crate::arch::kind::Architecture;
use crate::blocks::Activation;
use crate::folder::fields::{COMMON, Entry, Table, Use::Nothing, read_by, unused};
use crate::folder::json::Fields;
use crate::folder::json::typed;

#[derive(Deserialize)]
struct Config {
    n_layers: Layers,
    dim: Width,
    n_heads: Width,
    hidden_dim: Hidden,
    activation: Activation,
    vocab_size: Vocabulary,
    max_position_embeddings: Positions,
    pad_token_id: Option<TokenId>,
}

const FIELDS: &[Entry] = &[
    // The table is in the weights, whatever it was made of.
    ("sinusoidal_pos_embds", Nothing),
    ("tie_weights_", Nothing),
    ("dropout", Nothing),
    ("attention_dropout", Nothing),
    ("qa_dropout", Nothing),
    ("seq_classif_dropout", Nothing),
];

pub(crate) const ENCODER: Encoder = Encoder {
    tensors: Tensors {
        layers: "transformer.layer",
        query: "attention.q_lin",
        key: "attention.k_lin",
        value: "attention.v_lin",
        output: "attention.out_lin",
        attention_norm: "sa_layer_norm",
        up: "ffn.lin1",
        down: "ffn.lin2",
        feed_forward_norm: "output_layer_norm",
    },
    projection: "",
    distances: None,
    shared: false,
    head: Head {
        architectures: &["DistilBertForSequenceClassification"],
        dense: "pre_classifier",
        activation: Activation::Relu,
        classes: "classifier",
    },
};

pub(crate) fn fields() -> Vec<Table> {
    vec![read_by::<Config>(), ENCODER_FIELDS.into(), FIELDS.into(), COMMON.into(), unused()]
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    let config = typed::read::<Config>(f).map(|config| NetworkConfig {
        architecture: Architecture::DistilBert,
        layers: config.n_layers.0,
        width: config.dim.0,
        heads: config.n_heads.0,
        hidden: config.hidden_dim.0,
        vocabulary: config.vocab_size.0,
        positions: config.max_position_embeddings.0,
        token_types: 0,
        activation: config.activation,
        epsilon: EPSILON,
        padding_id: config.pad_token_id.map(|id| id.0 as u32),
        ..NetworkConfig::base()
    });
    finish(f, config, &ENCODER, ["dim", "n_heads"])
}
