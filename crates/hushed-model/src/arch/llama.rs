//! LLaMA-like decoders (Touvron et al. 2023), including BitNet b1.58 (Ma et al. 2024). Their tensors are in
//! `layers/llama.rs`.

use super::names::{Fields, Names};

pub(super) const NAMES: Names = Names {
    fields: Fields {
        layers: "num_hidden_layers",
        width: "hidden_size",
        heads: "num_attention_heads",
        hidden: "intermediate_size",
        activation: "hidden_act",
        positions: "max_position_embeddings",
        token_types: None,
        epsilon: Some("rms_norm_eps"),
    },
    encoder: None,
    positions_after_padding: None,
};
