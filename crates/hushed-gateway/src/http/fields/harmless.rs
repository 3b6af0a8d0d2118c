//! Which values of which fields change no answer, for every API: one table. Such a value is taken as if the field were
//! absent; any other value of a field in the table is refused by name, and so is a field that nothing reads.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use serde_json::Value;

use super::Fields;
use crate::http::refusal::Refusal;

/// When a field changes no answer.
#[derive(Clone, Copy)]
pub enum Use {
    /// Never: it is about billing, caching or who asks, and nothing of the kind exists here.
    Nothing,
    /// With one of these values (as JSON).
    Only(&'static [&'static str]),
    /// With one of these values, and whatever its value where nothing is drawn: at temperature 0.
    Draw(&'static [&'static str]),
}

use Use::{Draw, Nothing, Only};

/// Fields with the values that change nothing.
pub type Table = &'static [(&'static str, Use)];

const OFF: Use = Only(&["false", "0"]);
const NONE: Use = Only(&["[]", "{}", "\"\"", "false"]);
const ONE: Use = Only(&["1"]);
const ZERO: Use = Only(&["0"]);

/// Every route of OpenAI's API: for its own books, and for proxies and libraries between.
pub const CALLER: Table = &[
    ("user", Nothing),
    ("metadata", Nothing),
    ("store", Nothing),
    ("service_tier", Nothing),
    ("safety_identifier", Nothing),
    ("prompt_cache_key", Nothing),
    ("prompt_cache_retention", Nothing),
    ("request_id", Nothing),
    ("priority", Nothing),
    ("keep_alive", Nothing),
    ("extra_body", NONE),
    ("extra_headers", NONE),
    ("mm_processor_kwargs", NONE),
];

/// `/v1/embeddings`, with the fields of servers that share it.
pub const EMBEDDINGS: Table = &[
    ("add_special_tokens", Only(&["true"])),
    ("embed_dtype", Only(&["\"float32\""])),
    ("endianness", Only(&["\"native\"", "\"little\""])),
    ("output_dtype", Only(&["\"float\""])),
    ("embedding_type", Only(&["\"float\""])),
    ("embedding_types", Only(&["[\"float\"]"])),
    ("modality", Only(&["\"text\""])),
    ("late_chunking", OFF),
    ("softmax", OFF),
];

/// Both routes that generate.
pub const GENERATE: Table = &[
    ("top_p", Draw(&["1"])),
    ("top_k", Draw(&["-1", "0"])),
    ("top_a", Draw(&["0"])),
    ("min_p", Draw(&["0"])),
    ("typical_p", Draw(&["1"])),
    ("tfs_z", Draw(&["1"])),
    ("mirostat", Draw(&["0"])),
    ("mirostat_tau", Draw(&[])),
    ("mirostat_eta", Draw(&[])),
    ("dynatemp_range", Draw(&["0"])),
    ("xtc_probability", Draw(&["0"])),
    ("n", ONE),
    ("best_of", ONE),
    // Factors; shares only take sums.
    ("repetition_penalty", ONE),
    ("repeat_penalty", ONE),
    ("length_penalty", ONE),
    ("dry_multiplier", ZERO),
    ("use_beam_search", OFF),
    ("prompt_logprobs", OFF),
    ("return_tokens_as_token_ids", OFF),
    ("return_token_ids", OFF),
    ("echo", OFF),
    ("ignore_eos", OFF),
    ("min_tokens", ZERO),
    ("stop_token_ids", NONE),
    ("include_stop_str_in_output", OFF),
    ("skip_special_tokens", Only(&["true"])),
    ("spaces_between_special_tokens", Nothing),
    ("detokenize", Only(&["true"])),
    ("allowed_token_ids", NONE),
    ("bad_words", NONE),
    ("grammar", NONE),
    ("cache_prompt", Nothing),
    ("id_slot", Nothing),
    ("timings_per_token", OFF),
    ("logits_processors", NONE),
    ("response_format", Only(&["{\"type\":\"text\"}", "\"text\""])),
];

/// `/v1/completions` alone.
pub const COMPLETIONS: Table = &[("suffix", NONE), ("add_special_tokens", Only(&["true"]))];

/// `/v1/chat/completions` alone.
pub const CHAT: Table = &[
    ("tools", NONE),
    ("functions", NONE),
    // Without tools none is called.
    ("tool_choice", Only(&["\"none\"", "\"auto\""])),
    ("function_call", Only(&["\"none\"", "\"auto\""])),
    ("parallel_tool_calls", Nothing),
    ("modalities", Only(&["[\"text\"]", "[]"])),
    // How much a model thinks before it answers, how much it says, what it may say: no model here asks.
    ("reasoning_effort", Nothing),
    ("verbosity", Nothing),
    // A guess at the answer, which makes it come sooner elsewhere.
    ("prediction", Nothing),
    ("documents", NONE),
    ("chat_template_kwargs", NONE),
    ("add_special_tokens", OFF),
    ("add_generation_prompt", Only(&["true"])),
    ("continue_final_message", OFF),
    ("web_search_options", NONE),
    ("transforms", NONE),
    ("plugins", NONE),
];

/// A message: the fields of an answer that is sent back as it came, and marks for caches.
pub const MESSAGE: Table = &[
    ("id", Nothing),
    ("cache_control", Nothing),
    ("refusal", NONE),
    ("annotations", NONE),
    ("audio", NONE),
    ("tool_calls", NONE),
    ("function_call", NONE),
    ("tool_call_id", NONE),
    ("reasoning", NONE),
    ("reasoning_content", NONE),
    ("reasoning_details", NONE),
    ("images", NONE),
    ("prefix", OFF),
    ("partial", OFF),
];

/// A part of a message.
pub const PART: Table = &[("cache_control", Nothing), ("annotations", NONE), ("id", Nothing)];

/// `stream_options`. Padding hides the sizes of chunks; the connection is loopback or TLS to the client itself.
pub const STREAM: Table = &[("include_obfuscation", Nothing), ("continuous_usage_stats", OFF)];

/// Routes of text-embeddings-inference.
pub const TEI: Table = &[("raw_scores", OFF), ("return_text", OFF), ("add_special_tokens", Only(&["true"]))];

/// `options` of Hugging Face's inference API: about its machines and its cache.
pub const OPTIONS: Table =
    &[("wait_for_model", Nothing), ("use_cache", Nothing), ("use_gpu", Nothing), ("dont_load_model", Nothing)];

impl Fields {
    /// Takes the fields of these tables out. `greedy` says that no token is drawn.
    ///
    /// # Errors
    /// 400 for a value that would change an answer, with the values that would not.
    pub fn harmless(&mut self, tables: &[Table], greedy: bool) -> Result<(), Refusal> {
        for (name, applies) in tables.iter().copied().flatten() {
            let Some(value) = self.take(name) else { continue };
            let (fine, allowed): (bool, &[&str]) = match *applies {
                Nothing => (true, &[]),
                Only(values) => (is_one_of(&value, values), values),
                Draw(values) => (greedy || is_one_of(&value, values), values),
            };
            if !fine {
                let message = match (allowed, applies) {
                    ([], _) => format!("`{name}` is not supported: leave it out"),
                    (some, Draw(_)) => {
                        format!("`{name}` is supported only as {}, or with `temperature` 0: leave it out", listed(some))
                    }
                    (some, _) => format!("`{name}` is supported only as {}: leave it out", listed(some)),
                };
                return Err(Refusal::field(name, "unsupported", message));
            }
        }
        Ok(())
    }
}

fn listed(values: &[&str]) -> String {
    values.join(" or ")
}

/// Whether a value is one of these, numbers by what they are worth.
fn is_one_of(value: &Value, values: &[&str]) -> bool {
    values.iter().filter_map(|text| serde_json::from_str::<Value>(text).ok()).any(|known| {
        let numbers = value.as_f64().zip(known.as_f64());
        *value == known || numbers.is_some_and(|(given, known)| given == known)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Table; 10] = [CALLER, EMBEDDINGS, GENERATE, COMPLETIONS, CHAT, MESSAGE, PART, STREAM, TEI, OPTIONS];

    fn tried(table: Table, name: &str, value: &str, greedy: bool) -> Result<(), Refusal> {
        let mut fields = Fields::parse(format!("{{\"{name}\": {value}}}").as_bytes()).unwrap();
        fields.harmless(&[table], greedy)?;
        fields.finish()
    }

    /// Every value of the table is accepted, so is null, and everything else is refused by the field's name.
    #[test]
    fn every_row_of_the_table() {
        for table in ALL {
            for (name, applies) in table {
                assert!(tried(table, name, "null", false).is_ok(), "{name}");
                let (values, strange): (&[&str], bool) = match applies {
                    Nothing => (&["1", "\"a\"", "{\"a\":1}"], false),
                    Only(values) | Draw(values) => (values, true),
                };
                for value in values {
                    assert!(serde_json::from_str::<Value>(value).is_ok(), "{name}: {value}");
                    assert!(tried(table, name, value, false).is_ok(), "{name}: {value}");
                }
                if strange {
                    for value in ["7.5", "\"strange\"", "[3]"] {
                        let refusal = tried(table, name, value, false).err().unwrap();
                        assert_eq!((refusal.param.as_deref(), refusal.name), (Some(*name), "unsupported"));
                        assert!(refusal.message.contains(name), "{}", refusal.message);
                    }
                }
                if matches!(applies, Draw(_)) {
                    assert!(tried(table, name, "0.5", true).is_ok(), "{name}");
                }
            }
        }
    }

    /// No field is in two tables that one route reads.
    #[test]
    fn a_field_has_one_row() {
        for route in [&[CALLER, EMBEDDINGS][..], &[CALLER, GENERATE, COMPLETIONS], &[CALLER, GENERATE, CHAT]] {
            let mut names: Vec<&str> = route.iter().copied().flatten().map(|(name, _)| *name).collect();
            names.sort_unstable();
            let all = names.len();
            names.dedup();
            assert_eq!(names.len(), all);
        }
    }
}
