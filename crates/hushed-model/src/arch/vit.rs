//! Vision transformers (Dosovitskiy et al. 2021). Their tensors are in `layers/vit.rs`; the positions follow from the
//! image and patch sizes.

use super::names::{Fields, Names};

pub(super) const NAMES: Names = Names {
    fields: Fields {
        layers: "num_hidden_layers",
        width: "hidden_size",
        heads: "num_attention_heads",
        hidden: "intermediate_size",
        activation: "hidden_act",
        positions: "image_size",
        token_types: None,
        epsilon: Some("layer_norm_eps"),
    },
    encoder: None,
    positions_after_padding: None,
};
