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

use serde_json::{Map, Value};

use crate::arch::Architecture;
use crate::folder::json::Fields;

pub(crate) use generation::GENERATION;
pub(crate) use sentence::{MODULE, NORMALIZE, POOLING, SENTENCE, SENTENCE_TRANSFORMERS};
pub(crate) use tokenizer::{PREPROCESSOR, TOKENIZER_CONFIG};

use table::Use::{Nothing, Only, Read};
use table::{EMPTY, NO_CODE, OFF};
pub(crate) use table::{Table, Use};

/// Fields of `config.json` for every architecture.
const COMMON: Table = &[
    ("model_type", Read),
    ("architectures", Read),
    ("quantization_config", Read),
    ("add_cross_attention", Read),
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
    // A cross-encoder's: without effect on its logits.
    ("sentence_transformers", Nothing),
    ("sbert_ce_default_activation_function", Nothing),
];

/// BERT, RoBERTa, XLM-RoBERTa and ViT.
const BLOCKS: Table = &[
    ("num_hidden_layers", Read),
    ("hidden_size", Read),
    ("num_attention_heads", Read),
    ("intermediate_size", Read),
    ("hidden_act", Read),
    ("layer_norm_eps", Read),
    ("hidden_dropout_prob", Nothing),
    ("attention_probs_dropout_prob", Nothing),
    ("classifier_dropout", Nothing),
];

const ENCODER: Table = &[
    ("vocab_size", Read),
    ("max_position_embeddings", Read),
    ("pad_token_id", Read),
    ("position_embedding_type", Read),
    ("is_decoder", Read),
    ("eos_token_id", Nothing),
    ("tie_word_embeddings", Nothing),
];

const BERT: Table = &[
    ("type_vocab_size", Read),
    // Written by the first BERT folders and read by no library.
    ("directionality", Nothing),
    ("pooler_fc_size", Nothing),
    ("pooler_num_attention_heads", Nothing),
    ("pooler_num_fc_layers", Nothing),
    ("pooler_size_per_head", Nothing),
    ("pooler_type", Nothing),
];

const DISTILBERT: Table = &[
    ("n_layers", Read),
    ("dim", Read),
    ("n_heads", Read),
    ("hidden_dim", Read),
    ("activation", Read),
    // The table is in the weights, whatever it was made of.
    ("sinusoidal_pos_embds", Nothing),
    ("tie_weights_", Nothing),
    ("dropout", Nothing),
    ("attention_dropout", Nothing),
    ("qa_dropout", Nothing),
    ("seq_classif_dropout", Nothing),
];

const DECODER: Table = &[
    ("vocab_size", Read),
    ("eos_token_id", Read),
    ("tie_word_embeddings", Read),
    ("pad_token_id", Nothing), // padding is masked
    ("is_decoder", Nothing),
];

const GPT2: Table = &[
    ("n_layer", Read),
    ("n_embd", Read),
    ("n_head", Read),
    ("n_inner", Read),
    ("n_positions", Read),
    ("activation_function", Read),
    ("layer_norm_epsilon", Read),
    ("scale_attn_weights", Read),
    ("scale_attn_by_inverse_layer_idx", Read),
    ("reorder_and_upcast_attn", Read),
    // Read if `n_positions` is absent.
    ("n_ctx", Nothing),
    ("resid_pdrop", Nothing),
    ("embd_pdrop", Nothing),
    ("attn_pdrop", Nothing),
    // Of heads that are refused by `architectures`.
    ("summary_type", Nothing),
    ("summary_use_proj", Nothing),
    ("summary_activation", Nothing),
    ("summary_first_dropout", Nothing),
    ("summary_proj_to_labels", Nothing),
];

const LLAMA: Table = &[
    ("num_hidden_layers", Read),
    ("hidden_size", Read),
    ("num_attention_heads", Read),
    ("num_key_value_heads", Read),
    ("intermediate_size", Read),
    ("hidden_act", Read),
    ("rms_norm_eps", Read),
    ("max_position_embeddings", Read),
    ("rope_theta", Read),
    ("rope_scaling", Read),
    ("rope_parameters", Read),
    ("head_dim", Read),
    ("attention_bias", Read),
    ("mlp_bias", Read),
    ("sliding_window", Read),
    ("attention_chunk_size", Read),
    ("num_local_experts", Read),
    ("num_experts", Read),
    ("n_routed_experts", Read),
    ("partial_rotary_factor", Read),
    ("layer_types", Read),
    ("sub_norms", Read),
    ("attention_weights", Read),
    // Read beside `attention_weights`.
    ("sigmoid_bias", Nothing),
    // Products cut into pieces have the same result.
    ("pretraining_tp", Nothing),
    ("attention_dropout", Nothing),
    ("rope_interleaved", Only(OFF, "pairs of columns half a head apart (false)")),
];

const VIT: Table = &[
    ("image_size", Read),
    ("patch_size", Read),
    ("num_channels", Read),
    ("qkv_bias", Read),
    // Of models for masked patches, and of a pooler that classifiers do not have.
    ("encoder_stride", Nothing),
    ("pooler_output_size", Nothing),
    ("pooler_act", Nothing),
];

/// Published BitNet folders name code that is now part of `transformers`.
const BITNET: Table = &[("auto_map", Nothing)];

/// The tables for `config.json`; of two entries for a field, the first holds. Generation options that older versions
/// put there count only for decoders.
pub(crate) fn config(architecture: Architecture) -> Vec<Table> {
    match architecture {
        Architecture::Bert | Architecture::Roberta => {
            vec![BLOCKS, ENCODER, BERT, COMMON, generation::UNUSED]
        }
        Architecture::DistilBert => vec![DISTILBERT, ENCODER, COMMON, generation::UNUSED],
        Architecture::Gpt2 => vec![GPT2, DECODER, COMMON, GENERATION],
        Architecture::Llama => vec![LLAMA, DECODER, COMMON, GENERATION],
        Architecture::BitNet => vec![BITNET, LLAMA, DECODER, COMMON, GENERATION],
        Architecture::Vit => vec![VIT, BLOCKS, COMMON, UNTEXTED, generation::UNUSED],
    }
}

/// Fields of texts in the configuration of a model of images.
const UNTEXTED: Table =
    &[("pad_token_id", Nothing), ("eos_token_id", Nothing), ("tie_word_embeddings", Nothing), ("is_decoder", Nothing)];

/// What becomes of a field; `None` if it is not listed.
pub(crate) fn find(tables: &[Table], field: &str) -> Option<Use> {
    let listed = |table: &Table| table.iter().find(|(name, _)| *name == field);
    tables.iter().find_map(listed).map(|(_, found)| *found)
}

/// Reports every field whose value is not one of those that it may have.
pub(crate) fn refuse(f: &mut Fields<'_>, tables: &[Table]) {
    for (place, table) in tables.iter().enumerate() {
        let before = tables.get(..place).unwrap_or_default();
        for (field, found) in *table {
            if let Only(neutral, supported) = found
                && find(before, field).is_none()
                && f.get(field).is_some_and(|value| !is_one_of(value, neutral))
            {
                f.unsupported(field, supported);
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
