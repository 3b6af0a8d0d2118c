//! Vision transformers (Dosovitskiy et al. 2021). Their tensors are in `layers/vit.rs`; positions follow from the sizes
//! of image and patch.

use super::{Fields, Names};

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
