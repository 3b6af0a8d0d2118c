//! A small ternary decoder whose attention is a sigmoid, as encrypted runs take it.

use std::sync::Arc;

use crate::arch::Architecture;
use crate::blocks::{Activation, Weigh};
use crate::decoder::DecoderNetwork;
use crate::folder::config::NetworkConfig;
use crate::folder::decoder::WeightScale;
use crate::matrix::Matrix;
use crate::model::random_llama;

/// Two layers of 16 columns and 40 hidden ones, SiLU, a tied head over 97 tokens, without sub-norms.
#[must_use]
pub fn ternary_config(heads: usize, keys: usize) -> NetworkConfig {
    NetworkConfig {
        architecture: Architecture::BitNet,
        layers: 2,
        width: 16,
        heads,
        key_heads: Some(keys),
        hidden: 40,
        vocabulary: 97,
        positions: 64,
        activation: Activation::Silu,
        sub_norms: false,
        ternary: Some(WeightScale::Factor),
        weigh: Weigh::Sigmoid { bias: -2.75 },
        tied: true,
        ..NetworkConfig::bitnet_2b()
    }
}

/// Random numbers for it, with token vectors of the size that trained ones have beside what layers add.
///
/// # Panics
/// Never: random layers have numbers.
#[must_use]
pub fn ternary_network(config: &NetworkConfig, seed: u64) -> DecoderNetwork {
    let mut network = random_llama(config, seed);
    let tokens = network.embedding.tokens.take().expect("random numbers");
    let larger = tokens.data().iter().map(|v| 20.0 * v).collect();
    let larger = Matrix::new(tokens.rows(), tokens.cols(), larger).map(Arc::new);
    network.embedding.tokens.clone_from(&larger);
    network.head.weights = larger;
    network
}
