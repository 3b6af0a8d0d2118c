//! What decoder configurations may ask for.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use serde_json::Value;

use super::json::Fields;
use crate::blocks::{Pairs, Rope, Weigh};
use crate::error::Problem;

/// Model classes whose tensors are those of the language model.
const GPT2_MODELS: &[&str] = &["GPT2LMHeadModel", "GPT2Model"];
const LLAMA_MODELS: &[&str] = &["LlamaForCausalLM", "LlamaModel"];
const BITNET_MODELS: &[&str] = &["BitNetForCausalLM", "BitNetModel"];

/// LLaMA's rotary positions, as Hugging Face folders spell them.
pub(super) const ROPE: Rope = Rope { theta: 10_000.0, pairs: Pairs::Halves };
/// θ for a BitNet folder that specifies none.
const BITNET_THETA: f64 = 500_000.0;

/// Which linear layers of a LLaMA-like decoder have biases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    /// Query, key, value and output.
    pub attention: bool,
    /// Gate, up and down.
    pub feed_forward: bool,
}

/// The meaning of a stored `weight_scale`. `transformers` has two classes of layers, which differ in this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WeightScale {
    /// s (`autobitlinear`).
    Factor,
    /// 1/s (`bitlinear`).
    Divisor,
}

/// Refuses what is unsupported in a GPT-2 configuration: scores divided by another number, and heads other than its
/// own.
pub(super) fn gpt2(f: &mut Fields<'_>) {
    if !f.flag_or("scale_attn_weights", true) {
        f.unsupported("scale_attn_weights", "scores divided by √dh (true)");
    }
    f.must_be_off("scale_attn_by_inverse_layer_idx", "the same scale in every layer (false)");
    f.must_be_off("reorder_and_upcast_attn", "attention as published (false)");
    models(f, GPT2_MODELS, "GPT2LMHeadModel");
}

/// Refuses what is unsupported for LLaMA: windows, experts, columns without rotary positions, heads other than its own.
pub(super) fn llama(f: &mut Fields<'_>) {
    like_llama(f);
    models(f, LLAMA_MODELS, "LlamaForCausalLM");
}

/// The same for BitNet.
pub(super) fn bitnet(f: &mut Fields<'_>) {
    like_llama(f);
    // One class of ternary layers adds a bias before the scale, the other after; no published folder has one.
    for biased in ["attention_bias", "mlp_bias"] {
        f.must_be_off(biased, "ternary layers without biases (false)");
    }
    models(f, BITNET_MODELS, "BitNetForCausalLM");
}

fn like_llama(f: &mut Fields<'_>) {
    const WHOLE: &str = "attention to the whole text (null)";
    f.must_be_off("sliding_window", WHOLE);
    f.must_be_off("attention_chunk_size", WHOLE);
    for experts in ["num_local_experts", "num_experts", "n_routed_experts"] {
        if f.get(experts).is_some_and(|n| n.as_u64() != Some(0)) {
            f.unsupported(experts, "one feed-forward block for all tokens (absent)");
        }
    }
    if f.get("partial_rotary_factor").is_some_and(|v| v.as_f64() != Some(1.0)) {
        f.unsupported("partial_rotary_factor", "rotary positions in all columns (1)");
    }
    let full = |v: &Value| v.as_str() == Some("full_attention");
    if let Some(types) = f.get("layer_types")
        && !types.as_array().is_some_and(|types| types.iter().all(full))
    {
        f.unsupported("layer_types", "full_attention in every layer");
    }
}

/// The function of the scores: softmax, unless the configuration names another. No library writes these fields, but a
/// folder trained for private runs does.
pub(super) fn weigh(f: &mut Fields<'_>) -> Weigh {
    let names = &[("softmax", false), ("sigmoid", true)];
    let field = "attention_weights";
    match f.choice(field, names, Some(false), "softmax, sigmoid") {
        Some(true) => Weigh::Sigmoid { bias: f.real("sigmoid_bias", -64.0, 64.0).unwrap_or(0.0) },
        _ => Weigh::Softmax,
    }
}

fn models(f: &mut Fields<'_>, known: &[&str], supported: &'static str) {
    let known = |name: &Value| name.as_str().is_some_and(|name| known.contains(&name));
    let sound = match f.get("architectures") {
        None => true,
        Some(names) => names.as_array().is_some_and(|names| names.iter().all(known)),
    };
    if !sound {
        f.unsupported("architectures", supported);
    }
}

/// The number of key and value heads: as many as query heads, unless the configuration says otherwise.
pub(super) fn key_heads(f: &mut Fields<'_>, width: Option<usize>, heads: Option<usize>) -> Option<usize> {
    let most = heads.unwrap_or(usize::MAX >> 12);
    let keys = match f.get("num_key_value_heads") {
        Some(_) => f.optional_size("num_key_value_heads", 1, most),
        None => heads,
    };
    let (heads, keys) = (heads?, keys?);
    if !heads.is_multiple_of(keys) {
        f.unsupported("num_key_value_heads", "a divisor of num_attention_heads");
    }
    let width = width? / heads;
    if f.get("head_dim").is_some_and(|v| v.as_u64() != Some(width as u64)) {
        f.unsupported("head_dim", "hidden_size / num_attention_heads");
    }
    if !width.is_multiple_of(2) {
        f.unsupported("num_attention_heads", "heads of an even number of columns");
    }
    Some(keys)
}

/// θ, from its field in `transformers` before version 5 or since. Any scaling of positions is refused.
pub(super) fn rope(f: &mut Fields<'_>, bitnet: bool) -> Option<Rope> {
    const PLAIN: &str = "places as they are: null, or rope_type \"default\" with a rope_theta";
    let mut theta = f.real_or("rope_theta", if bitnet { BITNET_THETA } else { ROPE.theta }, 1.0, 1e12);
    for field in ["rope_scaling", "rope_parameters"] {
        let Some(given) = f.get(field) else { continue };
        let kind = given.get("rope_type").or_else(|| given.get("type"));
        let known =
            |name: &String| ["rope_type", "type", "rope_theta", "partial_rotary_factor"].contains(&name.as_str());
        let plain = kind.and_then(Value::as_str) == Some("default")
            && given.as_object().is_some_and(|o| o.keys().all(known))
            && given.get("partial_rotary_factor").is_none_or(|v| v.as_f64() == Some(1.0));
        let given = given.get("rope_theta").map(|theta| theta.as_f64());
        match given {
            _ if !plain => f.unsupported(field, PLAIN),
            Some(Some(given)) if (1.0..=1e12).contains(&given) => theta = given,
            Some(_) => f.unsupported(field, PLAIN),
            None => {}
        }
    }
    Some(Rope { theta, ..ROPE })
}

/// Which layers have biases.
pub(super) fn biases(f: &mut Fields<'_>) -> Biases {
    Biases { attention: f.flag_or("attention_bias", false), feed_forward: f.flag_or("mlp_bias", false) }
}

/// The scale kind in `quantization_config`; anything else in it is refused. Without one, weights are floats.
pub(super) fn weight_scale(f: &mut Fields<'_>) -> WeightScale {
    const FIELD: &str = "quantization_config";
    let Some(given) = f.get(FIELD).cloned() else {
        return WeightScale::Factor;
    };
    let text = |field: &str, default: &'static str| match given.get(field) {
        None => Some(default.to_owned()),
        Some(value) => value.as_str().map(str::to_owned),
    };
    let is = |field, default, wanted: &str| text(field, default).as_deref() == Some(wanted);
    let off = |field: &str| {
        let value = given.get(field);
        value.is_none_or(|v| *v == Value::Null || *v == Value::Bool(false))
    };
    // The head is the token table in every folder, and ternary in none.
    let head =
        |value: &Value| value.as_array().is_some_and(|names| names.iter().all(|name| name.as_str() == Some("lm_head")));
    let whole = given.get("modules_to_not_convert").is_none_or(|v| *v == Value::Null || head(v));
    let plain = is("quant_method", "", "bitnet")
        && is("quantization_mode", "offline", "offline")
        && off("use_rms_norm")
        && whole;
    if !plain {
        f.unsupported(
            FIELD,
            "quant_method \"bitnet\", quantization_mode \"offline\", every linear layer but lm_head, no use_rms_norm",
        );
    }
    if is("linear_class", "bitlinear", "autobitlinear") {
        return WeightScale::Factor;
    }
    if !is("linear_class", "bitlinear", "bitlinear") {
        f.unsupported(FIELD, "linear_class \"bitlinear\" or \"autobitlinear\"");
    }
    WeightScale::Divisor
}

impl Problem {
    /// A `modules.json` beside a model that is not a text encoder.
    pub(super) fn not_with_modules(file: &str) -> Problem {
        Problem::UnsupportedValue {
            file: file.to_owned(),
            field: "model_type",
            value: "a decoder or a model of images".to_owned(),
            supported: "an encoder of text, beside modules.json",
        }
    }
}
