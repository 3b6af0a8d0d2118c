//! `generation_config.json`, and the same options in `config.json` of older versions.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::table::Use::{Nothing, Only, Read};
use super::table::{Entry, Table};

const NONE: &[&str] = &["[]", "{}"];

/// Generation takes the likeliest token, or samples as a client asks: options of sampling, of beams and of speed change
/// nothing then. Options that would give another likeliest token are refused.
pub(crate) const GENERATION: &[Entry] = &[
    ("eos_token_id", Read),
    ("min_length", Only(&["0"], "no shortest length (0)")),
    ("min_new_tokens", Only(&["0"], "no shortest length (null)")),
    ("num_beams", Only(&["1"], "the likeliest token each time (1)")),
    ("repetition_penalty", Only(&["1"], "1 in this file; a client can ask for a penalty")),
    ("encoder_repetition_penalty", Only(&["1"], "1")),
    ("no_repeat_ngram_size", Only(&["0"], "0")),
    ("encoder_no_repeat_ngram_size", Only(&["0"], "0")),
    ("bad_words_ids", Only(NONE, "every token (null)")),
    ("suppress_tokens", Only(NONE, "every token (null)")),
    ("begin_suppress_tokens", Only(NONE, "every token (null)")),
    ("sequence_bias", Only(NONE, "the logits as they are (null)")),
    ("force_words_ids", Only(NONE, "no forced tokens (null)")),
    ("constraints", Only(NONE, "no forced tokens (null)")),
    ("forced_bos_token_id", Only(NONE, "no forced tokens (null)")),
    ("forced_eos_token_id", Only(NONE, "no forced tokens (null)")),
    ("forced_decoder_ids", Only(NONE, "no forced tokens (null)")),
    ("exponential_decay_length_penalty", Only(NONE, "the logits as they are (null)")),
    ("guidance_scale", Only(&["1"], "one pass per token (null)")),
    ("penalty_alpha", Only(&["0"], "the likeliest token each time (null)")),
    ("dola_layers", Only(NONE, "the logits of the last layer (null)")),
    ("watermarking_config", Only(NONE, "the logits as they are (null)")),
    ("token_healing", Only(&["false"], "the text's own tokens (false)")),
    ("stop_strings", Only(NONE, "end tokens (eos_token_id); a client can ask for strings")),
    ("generation_kwargs", Only(NONE, "no other options ({})")),
    ("max_length", Nothing),
    ("max_new_tokens", Nothing),
    ("max_time", Nothing),
    ("early_stopping", Nothing),
    ("do_sample", Nothing),
    ("temperature", Nothing),
    ("top_k", Nothing),
    ("top_p", Nothing),
    ("min_p", Nothing),
    ("top_h", Nothing),
    ("typical_p", Nothing),
    ("epsilon_cutoff", Nothing),
    ("eta_cutoff", Nothing),
    ("length_penalty", Nothing),
    ("diversity_penalty", Nothing),
    ("num_beam_groups", Nothing),
    ("num_return_sequences", Nothing),
    ("renormalize_logits", Nothing),
    ("remove_invalid_values", Nothing),
    ("use_cache", Nothing),
    ("use_mtp", Nothing),
    ("cache_implementation", Nothing),
    ("cache_config", Nothing),
    ("max_cache_len", Nothing),
    ("return_legacy_cache", Nothing),
    ("prefill_chunk_size", Nothing),
    ("compile_config", Nothing),
    ("disable_compile", Nothing),
    ("continuous_batching_config", Nothing),
    ("low_memory", Nothing),
    ("output_attentions", Nothing),
    ("output_hidden_states", Nothing),
    ("output_scores", Nothing),
    ("output_logits", Nothing),
    ("return_dict_in_generate", Nothing),
    ("pad_token_id", Nothing),
    ("bos_token_id", Nothing),
    ("decoder_start_token_id", Nothing),
    ("is_assistant", Nothing),
    ("num_assistant_tokens", Nothing),
    ("num_assistant_tokens_schedule", Nothing),
    ("assistant_confidence_threshold", Nothing),
    ("prompt_lookup_num_tokens", Nothing),
    ("max_matching_ngram_size", Nothing),
    ("assistant_early_exit", Nothing),
    ("assistant_lookbehind", Nothing),
    ("target_lookbehind", Nothing),
    ("assistant_ensemble_weight", Nothing),
    ("speculation_type", Nothing),
    ("chat_format", Nothing),
    ("max_window_size", Nothing),
    ("max_context_size", Nothing),
    ("trust_remote_code", Nothing),
    ("_from_model_config", Nothing),
    ("transformers_version", Nothing),
];

/// The same options in the configuration of a model that does not generate, where they have no effect; without the end
/// tokens, which only a generator lists.
pub(crate) fn unused() -> Table {
    let options = GENERATION.iter().filter(|(_, found)| !matches!(found, Read));
    options.map(|(name, _)| (*name, Nothing)).collect()
}
