//! The files of `sentence-transformers`.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::table::Use::{Nothing, Only, Read};
use super::table::{EMPTY, Entry, OFF};

/// `1_Pooling/config.json`, before and since version 5.4.
pub(crate) const POOLING: &[Entry] = &[
    ("pooling_mode", Read),
    ("embedding_dimension", Read),
    ("word_embedding_dimension", Read),
    ("pooling_mode_cls_token", Read),
    ("pooling_mode_mean_tokens", Read),
    ("pooling_mode_max_tokens", Read),
    ("pooling_mode_mean_sqrt_len_tokens", Read),
    ("pooling_mode_weightedmean_tokens", Read),
    ("pooling_mode_lasttoken", Read),
    ("include_prompt", Read),
];

/// `2_Normalize/config.json`, since version 6.
pub(crate) const NORMALIZE: &[Entry] = &[
    ("module_input_name", Only(&["\"sentence_embedding\""], "\"sentence_embedding\"")),
    ("module_output_name", Only(&["\"sentence_embedding\""], "\"sentence_embedding\"")),
];

/// `sentence_bert_config.json`, before and since version 5.4.
pub(crate) const SENTENCE: &[Entry] = &[
    ("max_seq_length", Read),
    ("do_lower_case", Read),
    (
        "transformer_task",
        Only(&["\"feature-extraction\""], "\"feature-extraction\": an encoder, not a cross-encoder or another head"),
    ),
    ("modality_config", Read),
    ("module_output_name", Only(&["\"token_embeddings\""], "\"token_embeddings\"")),
    ("processing_kwargs", Only(EMPTY, "the tokenizer's own options ({})")),
    ("model_args", Only(EMPTY, "the model's own options ({})")),
    ("tokenizer_args", Only(EMPTY, "the tokenizer's own options ({})")),
    ("config_args", Only(EMPTY, "the model's own options ({})")),
    ("tokenizer_name_or_path", Only(EMPTY, "the folder's own tokenizer (null)")),
    ("query_length", Only(&[], "one length for all texts (null)")),
    ("document_length", Only(&[], "one length for all texts (null)")),
    ("query_expansion", Only(OFF, "texts as they are (null)")),
    // Padding is left out of the computation, and its result is the same.
    ("unpad_inputs", Nothing),
];

/// `config_sentence_transformers.json`.
pub(crate) const SENTENCE_TRANSFORMERS: &[Entry] = &[
    ("prompts", Read),
    ("default_prompt_name", Read),
    ("similarity_fn_name", Read),
    // Of a cross-encoder.
    ("activation_fn", Read),
    (
        "model_type",
        Only(
            &["\"SentenceTransformer\""],
            "\"SentenceTransformer\": one vector per text; cross-encoders, sparse and multi-vector models are not read",
        ),
    ),
    ("truncate_dim", Only(&[], "whole vectors (null); cut them where they are used (truncate_dim)")),
    ("__version__", Nothing),
];

/// Both of these files of a cross-encoder, in place of what the tables above say.
pub(crate) const CROSS_ENCODER: &[Entry] = &[
    ("transformer_task", Read),
    ("module_output_name", Only(&["\"scores\""], "\"scores\"")),
    ("model_type", Only(&["\"CrossEncoder\""], "\"CrossEncoder\", as the other files say")),
];

/// An entry of `modules.json`.
pub(crate) const MODULE: &[Entry] = &[
    ("type", Read),
    ("path", Read),
    ("idx", Nothing),
    ("name", Nothing),
    // Names of options that a caller may give.
    ("kwargs", Nothing),
];
