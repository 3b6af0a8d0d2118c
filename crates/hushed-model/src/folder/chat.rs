//! A folder's chat template: `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`, which also names the
//! special tokens.
//!
//! A folder's `tokenizer_config.json` may contain paths of the machine that wrote it. The public file of that name
//! holds only the template and the special tokens of a generator, and of an encoder only the longest text, if no other
//! file says it.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use crate::error::Problem;
use crate::folder::config::CONFIG;
use crate::folder::fields;
use crate::folder::json::{self, Fields};
use crate::folder::pooling::SENTENCE;
use crate::folder::small::read_small;
use crate::tokens::chat::ChatTemplate;
use crate::tokens::{self, TOKENIZER};

pub(crate) const CHAT: &str = "tokenizer_config.json";
const JINJA: &str = "chat_template.jinja";
const TEMPLATE: &str = "chat_template";
const LONGEST: &str = "model_max_length";
/// Real templates have up to 20 KB.
const MAX_TEMPLATE_BYTES: usize = 128 << 10;
/// Limit of the public file: the template may double in size as JSON.
pub(crate) const MAX_CHAT_BYTES: u64 = 512 << 10;
/// Limit of a folder's own file, which also lists tokens.
const MAX_CONFIG_BYTES: u64 = 16 << 20;
/// The names by which templates refer to special tokens.
const TOKENS: [&str; 7] = ["bos_token", "cls_token", "eos_token", "mask_token", "pad_token", "sep_token", "unk_token"];

/// The public part of a folder's `tokenizer_config.json` and template; `None` if it is empty, or if a problem was
/// added. `files` are the other public files.
pub(crate) fn read(
    folder: &Path,
    generates: bool,
    files: &BTreeMap<&'static str, Vec<u8>>,
    problems: &mut Vec<Problem>,
) -> Option<Vec<u8>> {
    let mut file = |name, limit| {
        let read = read_small(&folder.join(name), name, limit);
        read.unwrap_or_else(|problem| {
            problems.push(problem);
            None
        })
    };
    let jinja = match generates {
        true => file(JINJA, MAX_TEMPLATE_BYTES as u64),
        false => None,
    };
    let config = file(CHAT, MAX_CONFIG_BYTES);
    let mut config = match &config {
        Some(bytes) => json::object(CHAT, bytes, problems)?,
        None => Map::new(),
    };
    let mut f = Fields::new(CHAT, &config, problems);
    fields::refuse(&mut f, &[fields::TOKENIZER_CONFIG.into()]);
    if let Some(tokenizer) = files.get(TOKENIZER) {
        tokens::agree(&mut f, tokenizer);
    }
    if !generates {
        let longest = longest(&config, files)?;
        return serde_json::to_vec(&Map::from_iter([(LONGEST.to_owned(), longest.into())])).ok();
    }
    let template = match jinja {
        Some(bytes) => Some(String::from_utf8_lossy(json::without_mark(&bytes)).into_owned()),
        None => config.remove(TEMPLATE).and_then(default),
    };
    let mut public = Map::from_iter([(TEMPLATE.to_owned(), Value::String(template?))]);
    for name in TOKENS {
        let token = match config.remove(name) {
            Some(Value::Object(mut added)) => added.remove("content"),
            other => other,
        };
        if let Some(token @ Value::String(_)) = token {
            public.insert(name.to_owned(), token);
        }
    }
    serde_json::to_vec(&public).ok()
}

/// The longest text of an encoder, if it is shorter than its positions allow and its own file does not say it:
/// `sentence-transformers` takes it from here, since version 5.4 always. Without a limit, a very large number is here.
fn longest(config: &Map<String, Value>, files: &BTreeMap<&'static str, Vec<u8>>) -> Option<u64> {
    let number = |file: &str, field: &str| {
        let value: Value = serde_json::from_slice(json::without_mark(files.get(file)?)).ok()?;
        value.get(field)?.as_u64()
    };
    let longest = config.get(LONGEST)?.as_u64()?;
    let positions = number(CONFIG, "max_position_embeddings")?;
    (number(SENTENCE, "max_seq_length").is_none() && longest < positions).then_some(longest)
}

/// Parses the result of [`read`]: the template, and the longest text.
pub(crate) fn parse(bytes: &[u8], problems: &mut Vec<Problem>) -> (Option<ChatTemplate>, Option<usize>) {
    let Some(object) = json::object(CHAT, bytes, problems) else {
        return (None, None);
    };
    let mut fields = Fields::new(CHAT, &object, problems);
    // 3: the two special tokens and one token of the text.
    let longest = fields.optional_size(LONGEST, 3, 1 << 20);
    (template(&mut fields), longest)
}

fn template(fields: &mut Fields<'_>) -> Option<ChatTemplate> {
    let template = fields.optional_text(TEMPLATE)?;
    if template.len() > MAX_TEMPLATE_BYTES {
        fields.problem(Problem::TooLarge {
            file: format!("{TEMPLATE} of {CHAT}"),
            bytes: template.len() as u64,
            limit: MAX_TEMPLATE_BYTES as u64,
        });
        return None;
    }
    let tokens = TOKENS.into_iter().filter_map(|name| {
        let token = fields.optional_text(name)?;
        Some((name.to_owned(), token.to_owned()))
    });
    Some(ChatTemplate::new(template.to_owned(), tokens.collect()))
}

/// The default template; some folders have several templates, by name.
fn default(template: Value) -> Option<String> {
    match template {
        Value::String(template) => Some(template),
        Value::Array(named) => named
            .into_iter()
            .find(|one| one.get("name").and_then(Value::as_str) == Some("default"))
            .and_then(|mut one| default(one.get_mut("template")?.take())),
        _ => None,
    }
}
