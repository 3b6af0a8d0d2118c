//! The fields of published folders, each read, without effect on an answer, or refused unless its value has none.
//!
//! This is the only list: a parser refuses what is listed as [`Use::Only`] ([`refuse`]), and `hushed check` names
//! fields that are not listed ([`unknown`]). The fields are those that current and older versions of `transformers` and
//! `sentence-transformers` write (scripts/published_fields.py).
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod generation;
mod sentence;
mod table;
#[cfg(test)]
mod tests;
mod tokenizer;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::folder::json::Fields;
use crate::folder::json::typed;

pub(crate) use generation::{GENERATION, unused};
pub(crate) use sentence::{CROSS_ENCODER, MODULE, NORMALIZE, POOLING, SENTENCE, SENTENCE_TRANSFORMERS};
pub(crate) use tokenizer::{PREPROCESSOR, TOKENIZER_CONFIG};

use table::Use::{Nothing, Only, Read};
use table::{EMPTY, NO_CODE};
pub(crate) use table::{Entry, OFF, Table, Use};

/// Fields of `config.json` for every architecture.
pub(crate) const COMMON: &[Entry] = &[
    ("model_type", Read),
    ("architectures", Read),
    ("quantization_config", Only(OFF, "weights that are not quantised")),
    ("add_cross_attention", Only(OFF, "one model, without another's output (false)")),
    ("merged_feed_forward", Read),
    // Of classifiers, and of no effect elsewhere.
    ("problem_type", Read),
    ("is_matryoshka", Read),
    ("matryoshka_dimensions", Read),
    ("id2label", Read),
    ("num_labels", Read),
    ("label2id", Nothing),
    ("_num_labels", Nothing),
    ("is_encoder_decoder", Only(OFF, "one model, without a decoder beside it (false)")),
    ("pruned_heads", Only(EMPTY, "all heads ({})")),
    ("auto_map", NO_CODE),
    ("prefix", Only(EMPTY, "no text before every text (null)")),
    ("adapters", Only(EMPTY, "weights without adapters (absent)")),
    // The layers' work is divided, and its result is the same.
    ("chunk_size_feed_forward", Nothing),
    ("cross_attention_hidden_size", Nothing),
    ("tie_encoder_decoder", Nothing),
    ("custom_pipelines", Nothing),
    ("use_cache", Nothing),
    ("use_return_dict", Nothing),
    ("return_dict", Nothing),
    ("output_hidden_states", Nothing),
    ("output_attentions", Nothing),
    ("output_past", Nothing),
    ("torchscript", Nothing),
    ("torch_dtype", Nothing),
    ("dtype", Nothing),
    ("use_bfloat16", Nothing),
    ("tf_legacy_loss", Nothing),
    ("gradient_checkpointing", Nothing),
    ("initializer_range", Nothing),
    ("initializer_factor", Nothing),
    ("neftune_noise_alpha", Nothing),
    ("finetuning_task", Nothing),
    ("task_specific_params", Nothing),
    ("tokenizer_class", Nothing),
    ("language", Nothing),
    ("bos_token_id", Nothing),
    // Of version 2 alone.
    ("eos_token_ids", Nothing),
    ("sep_token_id", Nothing),
    ("decoder_start_token_id", Nothing),
    ("attn_implementation", Nothing),
    ("_attn_implementation", Nothing),
    ("_attn_implementation_internal", Nothing),
    ("_attn_implementation_autoset", Nothing),
    ("experts_implementation", Nothing),
    ("_experts_implementation", Nothing),
    ("transformers_version", Nothing),
    ("adapter_transformers_version", Nothing),
    ("_name_or_path", Nothing),
    ("name_or_path", Nothing),
    ("_commit_hash", Nothing),
    ("_diffusers_version", Nothing),
    ("unsloth_version", Nothing),
    ("unsloth_fixed", Nothing),
    // A cross-encoder's.
    ("sentence_transformers", Read),
    ("sbert_ce_default_activation_function", Read),
];

/// The fields that a type of a configuration reads.
pub(crate) fn read_by<T: DeserializeOwned>() -> Table {
    typed::names::<T>().iter().map(|name| (*name, Read)).collect()
}

/// What becomes of a field; `None` if it is not listed.
pub(crate) fn find(tables: &[Table], field: &str) -> Option<Use> {
    let mut listed = tables.iter().flat_map(|table| table.iter());
    listed.find(|(name, _)| *name == field).map(|(_, found)| *found)
}

/// Reports every field whose value is not one of those that it may have.
pub(crate) fn refuse(f: &mut Fields<'_>, tables: &[Table]) {
    for (place, table) in tables.iter().enumerate() {
        let before = tables.get(..place).unwrap_or_default();
        for (field, found) in table.iter() {
            if let Only(neutral, supported) = found
                && find(before, field).is_none()
                && f.get(field).is_some_and(|value| !is_one_of(value, neutral))
            {
                f.unsupported(field, *supported);
            }
        }
    }
}

/// Whether a value is one of these, numbers by their value.
fn is_one_of(value: &Value, neutral: &[&str]) -> bool {
    let same = |text: &&str| {
        serde_json::from_str::<Value>(text).is_ok_and(|other| match (value.as_f64(), other.as_f64()) {
            (Some(value), Some(other)) => value == other,
            _ => *value == other,
        })
    };
    neutral.iter().any(same)
}

/// The names in an object that no table lists, in the file's order.
pub(crate) fn unknown<'a>(object: &'a Map<String, Value>, tables: &'a [Table]) -> impl Iterator<Item = &'a str> {
    let names = object.keys().map(String::as_str);
    names.filter(|name| find(tables, name).is_none())
}
