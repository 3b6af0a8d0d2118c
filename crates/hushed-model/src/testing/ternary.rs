//! Small ternary decoders: one with sigmoid attention, as encrypted runs require, and committed ones.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::arch::Architecture;
use crate::arch::config::NetworkConfig;
use crate::arch::config::WeightScale;
use crate::blocks::{Activation, Weigh};
use crate::decoder::DecoderNetwork;
use crate::matrix::Matrix;
use crate::model::{Model, random_llama};
use crate::testing::tiny_golden;

/// Two layers of 16 columns and 40 hidden columns, SiLU, a tied head over 97 tokens, no sub-norms.
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

/// Random numbers for it, with token vectors as large, compared with what layers add, as in trained models.
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

/// Committed decoders: one with norms inside the blocks, a squared gate and a softmax; one with a sigmoid and without
/// such norms; and the numbers of the first with a sigmoid and SiLU.
///
/// # Panics
/// Panics if the disk is full or a committed folder is gone.
#[must_use]
pub fn tiny_ternary() -> [Model; 3] {
    let golden = |name| Model::load(&tiny_golden(name)).expect("a committed folder");
    let both = tiny_ternary_with(|config| {
        config["hidden_act"] = "silu".into();
        config["attention_weights"] = "sigmoid".into();
        config["sigmoid_bias"] = (-2.75).into();
    });
    [golden("bitnet"), golden("bitnet-sigmoid"), both]
}

/// The first of [`tiny_ternary`] with another configuration.
///
/// # Panics
/// Those of [`tiny_ternary`].
pub fn tiny_ternary_with(change: impl FnOnce(&mut serde_json::Value)) -> Model {
    let (folder, golden) = (tempfile::tempdir().expect("a folder"), tiny_golden("bitnet"));
    let copy = |name: &str| fs::copy(golden.join(name), folder.path().join(name));
    for name in ["model.safetensors", "tokenizer.json"] {
        copy(name).expect("a committed file");
    }
    let read = |path: &Path| fs::read(path).expect("a committed file");
    let config = read(&golden.join("config.json"));
    let mut config = serde_json::from_slice(&config).expect("a configuration");
    change(&mut config);
    fs::write(folder.path().join("config.json"), config.to_string()).expect("room on the disk");
    Model::load(folder.path()).expect("a model")
}
