//! LLaMA (Touvron et al. 2023), as named in Hugging Face's `LlamaForCausalLM`.

use serde::{Deserialize, Deserializer};

use super::{Defaults, NO_WINDOW, fields_with, only_full_attention};
use crate::arch::common::models;
use crate::arch::config::{Biases, NetworkConfig};
use crate::arch::kind::Architecture;
use crate::blocks::Weigh;
use crate::folder::fields::{Table, read_by};
use crate::folder::json::Fields;
use crate::folder::json::typed::{self, real};

/// What the configuration says beside the fields of every such decoder. No library writes the last three, but a folder
/// trained for private runs does.
#[derive(Deserialize)]
pub(super) struct Own {
    attention_bias: Option<bool>,
    mlp_bias: Option<bool>,
    sub_norms: Option<bool>,
    attention_weights: Option<Weights>,
    sigmoid_bias: Option<SigmoidBias>,
}

/// How scores become weights.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Weights {
    Softmax,
    Sigmoid,
}

struct SigmoidBias(f64);

impl<'de> Deserialize<'de> for SigmoidBias {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        real(from, -64.0, 64.0).map(SigmoidBias)
    }
}

pub(crate) fn fields() -> Vec<Table> {
    fields_with(vec![read_by::<Own>(), NO_WINDOW.into()])
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    models(f, &["LlamaForCausalLM", "LlamaModel"]);
    read_as(f, &Defaults::like_llama(Architecture::Llama))
}

pub(super) fn read_as(f: &mut Fields<'_>, fixed: &Defaults) -> Option<NetworkConfig> {
    let bitnet = fixed.architecture == Architecture::BitNet;
    only_full_attention(f);
    let (config, own) = (super::read(f, fixed), typed::read::<Own>(f)?);
    let weigh = match (own.attention_weights, own.sigmoid_bias) {
        (Some(Weights::Sigmoid), Some(bias)) => Weigh::Sigmoid { bias: bias.0 },
        (Some(Weights::Sigmoid), None) => {
            f.unsupported("attention_weights", "softmax, or sigmoid with a sigmoid_bias");
            return None;
        }
        _ => Weigh::Softmax,
    };
    let flag = |flag: Option<bool>| flag.unwrap_or(false);
    config.map(|config| NetworkConfig {
        weigh,
        sub_norms: own.sub_norms.unwrap_or(bitnet),
        biases: Biases { attention: flag(own.attention_bias), feed_forward: flag(own.mlp_bias) },
        ..config
    })
}
