//! GPT-2 (Radford et al. 2019). Its tensors, in `layers/gpt2.rs`, do not correspond one to one to an encoder's.

use super::names::{Fields, Names};

pub(super) const NAMES: Names = Names {
    fields: Fields {
        layers: "n_layer",
        width: "n_embd",
        heads: "n_head",
        hidden: "n_inner",
        activation: "activation_function",
        positions: "n_positions",
        token_types: None,
        epsilon: Some("layer_norm_epsilon"),
    },
    encoder: None,
    positions_after_padding: None,
};
