//! BERT (Devlin et al. 2019).

use super::names::{Encoder, Fields, Head, Names, Tensors};
use crate::blocks::Activation;

pub(super) const NAMES: Names = Names {
    fields: Fields {
        layers: "num_hidden_layers",
        width: "hidden_size",
        heads: "num_attention_heads",
        hidden: "intermediate_size",
        activation: "hidden_act",
        positions: "max_position_embeddings",
        token_types: Some("type_vocab_size"),
        epsilon: Some("layer_norm_eps"),
    },
    encoder: Some(ENCODER),
    positions_after_padding: None,
};

pub(super) const ENCODER: Encoder = Encoder {
    tensors: TENSORS,
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
