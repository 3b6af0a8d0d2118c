//! Whether `tokenizer_config.json` agrees with `tokenizer.json`: some classes of `transformers` change the second by
//! the first when they read a folder.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use serde_json::Value;

use super::parts::{chain, part_type};
use crate::folder::json::{Fields, without_mark};

const SUPPORTED: &str = "what tokenizer.json says";

/// Reports the fields of a configuration that would change its folder's `tokenizer.json`, which is read elsewhere.
pub(crate) fn agree(f: &mut Fields<'_>, tokenizer: &[u8]) {
    let class = f.get("tokenizer_class").and_then(Value::as_str);
    let class = class.unwrap_or_default().to_owned();
    // These take the file as it is.
    if class.is_empty() || class.starts_with("PreTrained") || class.starts_with("Tokenizers") {
        return;
    }
    let fields = [
        "do_lower_case",
        "strip_accents",
        "tokenize_chinese_chars",
        "add_prefix_space",
        "add_bos_token",
        "add_eos_token",
    ];
    if fields.iter().all(|field| f.get(field).is_none()) {
        return;
    }
    let Ok(tokenizer) = serde_json::from_slice::<Value>(without_mark(tokenizer)) else {
        return; // reported where it is read
    };
    let part = |name: &str| tokenizer.get(name).filter(|part| !part.is_null());
    let mut same = |field: &'static str, given: Option<&Value>| {
        if f.get(field).is_some() && f.get(field) != given {
            f.unsupported(field, SUPPORTED);
        }
    };
    let normaliser = part("normalizer");
    if part_type(normaliser) == Some("BertNormalizer") {
        let given = |name| normaliser.and_then(|n| n.get(name));
        same("do_lower_case", given("lowercase"));
        same("strip_accents", given("strip_accents"));
        same("tokenize_chinese_chars", given("handle_chinese_chars"));
    }
    let splitter = part("pre_tokenizer");
    if part_type(splitter) == Some("ByteLevel") {
        same("add_prefix_space", splitter.and_then(|s| s.get("add_prefix_space")));
    }
    if class.starts_with("Llama") || class.starts_with("CodeLlama") {
        let first = |part: &Value| part.get("single")?.get(0)?.get("SpecialToken").map(|_| ());
        let last = |part: &Value| {
            let pieces = part.get("single")?.as_array()?;
            pieces.last()?.get("SpecialToken").map(|_| ())
        };
        let mut templates = chain(part("post_processor"), "processors");
        let (begins, ends) = match templates.find(|t| part_type(Some(t)) == Some("TemplateProcessing")) {
            Some(template) => (first(template).is_some(), last(template).is_some()),
            None => (false, false),
        };
        same("add_bos_token", Some(&Value::Bool(begins)));
        same("add_eos_token", Some(&Value::Bool(ends)));
    }
}
