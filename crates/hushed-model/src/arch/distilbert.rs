//! DistilBERT (Sanh et al. 2019): BERT's encoder without token types. Its position table is in the weights even if it
//! was made of sines (`sinusoidal_pos_embds`), so nothing depends on that field.

use super::names::{Encoder, Fields, Head, Names, Tensors};
use crate::blocks::Activation;

pub(super) const NAMES: Names = Names {
    fields: Fields {
        layers: "n_layers",
        width: "dim",
        heads: "n_heads",
        hidden: "hidden_dim",
        activation: "activation",
        positions: "max_position_embeddings",
        token_types: None,
        epsilon: None,
    },
    encoder: Some(Encoder {
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
        head: Head {
            architectures: &["DistilBertForSequenceClassification"],
            dense: "pre_classifier",
            activation: Activation::Relu,
            classes: "classifier",
        },
    }),
    positions_after_padding: None,
};
