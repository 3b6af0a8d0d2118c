//! BitNet b1.58 (Ma et al. 2024), as named in Hugging Face's `BitNetForCausalLM`: LLaMA with ternary linear layers and
//! norms inside its blocks.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::{Defaults, llama};
use crate::arch::common::models;
use crate::arch::config::{NetworkConfig, WeightScale};
use crate::arch::kind::Architecture;
use crate::blocks::Activation;
use crate::folder::fields::{
    Entry, OFF, Table,
    Use::{Nothing, Only},
    read_by,
};
use crate::folder::json::Fields;
use crate::folder::json::typed;

#[derive(Deserialize)]
struct Own {
    quantization_config: Option<Quantized>,
}

const FIELDS: &[Entry] = &[
    // Published folders name code that is now part of `transformers`.
    ("auto_map", Nothing),
    // One class of ternary layers adds a bias before the scale, the other after; no published folder has one.
    ("attention_bias", Only(OFF, "ternary layers without biases (false)")),
    ("mlp_bias", Only(OFF, "ternary layers without biases (false)")),
];

/// How scales are stored.
struct Quantized(WeightScale);

#[derive(Deserialize)]
struct Quantization {
    quant_method: Option<String>,
    quantization_mode: Option<String>,
    linear_class: Option<String>,
    use_rms_norm: Option<bool>,
    modules_to_not_convert: Option<Vec<String>>,
}

impl<'de> Deserialize<'de> for Quantized {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        const SUPPORTED: &str = "quant_method \"bitnet\", quantization_mode \"offline\", linear_class \"bitlinear\" or \
                                 \"autobitlinear\", every linear layer but lm_head, no use_rms_norm";
        let refused = || typed::unsupported(SUPPORTED);
        let given = Value::deserialize(from)?;
        let given = serde_json::from_value::<Quantization>(given).map_err(|_| refused())?;
        let is = |given: &Option<String>, default: &str, wanted: &str| given.as_deref().unwrap_or(default) == wanted;
        // The head is the token table in every folder, and ternary in none.
        let whole = given.modules_to_not_convert.iter().flatten().all(|name| name == "lm_head");
        let plain = is(&given.quant_method, "", "bitnet") && is(&given.quantization_mode, "offline", "offline");
        let class = &given.linear_class;
        match () {
            () if !plain || !whole || given.use_rms_norm == Some(true) => Err(refused()),
            () if is(class, "bitlinear", "autobitlinear") => Ok(Quantized(WeightScale::Factor)),
            () if is(class, "bitlinear", "bitlinear") => Ok(Quantized(WeightScale::Divisor)),
            () => Err(refused()),
        }
    }
}

pub(crate) fn fields() -> Vec<Table> {
    [vec![FIELDS.into(), read_by::<Own>()], llama::fields()].concat()
}

pub(crate) fn read(f: &mut Fields<'_>) -> Option<NetworkConfig> {
    models(f, &["BitNetForCausalLM", "BitNetModel"]);
    let own = typed::read::<Own>(f);
    let fixed = Defaults::like_llama(Architecture::BitNet);
    let fixed = Defaults { activation: Activation::Relu2, epsilon: 1e-5, theta: 500_000.0, ..fixed };
    let config = llama::read_as(f, &fixed);
    // Without a quantisation, weights are floats.
    let scale = own?.quantization_config.map_or(WeightScale::Factor, |quantized| quantized.0);
    Some(NetworkConfig { ternary: Some(scale), ..config? })
}
