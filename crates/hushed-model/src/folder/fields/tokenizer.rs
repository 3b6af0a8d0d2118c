//! `tokenizer_config.json` and `preprocessor_config.json`.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::table::Use::{Nothing, Only, Read};
use super::table::{NO_CODE, OFF, Table};

/// `tokenizer_config.json`. What it says about the tokens is in `tokenizer.json` too; where a library would let it
/// change that file's meaning, the two must agree.
pub(crate) const TOKENIZER_CONFIG: Table = &[
    ("chat_template", Read),
    ("model_max_length", Read),
    ("do_lower_case", Read),
    ("strip_accents", Read),
    ("tokenize_chinese_chars", Read),
    ("add_prefix_space", Read),
    ("add_bos_token", Read),
    ("add_eos_token", Read),
    ("auto_map", NO_CODE),
    (
        "split_special_tokens",
        Only(OFF, "special tokens in a text that count as such (false)"),
    ),
    (
        "truncation_side",
        Only(
            &["\"right\""],
            "\"right\": a truncated text keeps its beginning",
        ),
    ),
    ("bos_token", Read),
    ("eos_token", Read),
    ("cls_token", Read),
    ("sep_token", Read),
    ("pad_token", Read),
    ("mask_token", Read),
    ("unk_token", Read),
    ("added_tokens_decoder", Nothing),
    ("additional_special_tokens", Nothing),
    ("extra_special_tokens", Nothing),
    ("model_specific_special_tokens", Nothing),
    ("special_tokens_map_file", Nothing),
    ("tokenizer_class", Nothing),
    ("processor_class", Nothing),
    ("tokenizer_file", Nothing),
    ("vocab_file", Nothing),
    ("merges_file", Nothing),
    ("name_or_path", Nothing),
    ("transformers_version", Nothing),
    ("backend", Nothing),
    ("is_local", Nothing),
    ("local_files_only", Nothing),
    ("max_len", Nothing),
    ("model_input_names", Nothing),
    ("padding_side", Nothing),
    ("do_basic_tokenize", Nothing),
    ("never_split", Nothing),
    ("use_fast", Nothing),
    ("use_default_system_prompt", Nothing),
    // Of the slow tokenizers, which are not read.
    ("sp_model_kwargs", Nothing),
    ("legacy", Nothing),
    ("errors", Nothing),
    ("trim_offsets", Nothing),
    ("from_slow", Nothing),
    ("added_tokens_file", Nothing),
    // A generated text is the bytes of its tokens, as engines stream it.
    ("clean_up_tokenization_spaces", Nothing),
    ("spaces_between_special_tokens", Nothing),
    // Of a truncation or padding that a program once asked for.
    ("max_length", Nothing),
    ("stride", Nothing),
    ("truncation_strategy", Nothing),
    ("pad_to_multiple_of", Nothing),
    ("pad_token_type_id", Nothing),
];

/// `preprocessor_config.json` of a model of images.
pub(crate) const PREPROCESSOR: Table = &[
    ("image_processor_type", Read),
    ("feature_extractor_type", Read),
    ("do_center_crop", Read),
    ("do_rescale", Read),
    ("rescale_factor", Read),
    ("do_resize", Read),
    ("resample", Read),
    ("size", Read),
    ("do_normalize", Read),
    ("image_mean", Read),
    ("image_std", Read),
    ("default_to_square", Only(&["true"], "true")),
    ("do_pad", Only(OFF, "false")),
    ("do_reduce_labels", Only(OFF, "false")),
    ("auto_map", NO_CODE),
    // Every image is read as RGB.
    ("do_convert_rgb", Nothing),
    ("crop_size", Nothing),
    ("pad_size", Nothing),
    ("processor_class", Nothing),
    ("data_format", Nothing),
    ("input_data_format", Nothing),
    ("device", Nothing),
    ("disable_grouping", Nothing),
    ("return_tensors", Nothing),
    ("image_seq_length", Nothing),
    ("_valid_processor_keys", Nothing),
    ("_processor_class", Nothing),
];
