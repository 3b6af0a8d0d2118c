//! A folder's chat template: `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`, which also names the
//! special tokens.
//!
//! A folder's `tokenizer_config.json` may contain paths of the machine that wrote it. The public file of that name
//! holds only the template and the special tokens.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::Path;

use serde_json::{Map, Value};

use crate::error::Problem;
use crate::folder::json::{self, Fields};
use crate::folder::small::read_small;
use crate::tokens::chat::ChatTemplate;

pub(crate) const CHAT: &str = "tokenizer_config.json";
const JINJA: &str = "chat_template.jinja";
const TEMPLATE: &str = "chat_template";
/// Real templates have up to 20 KB.
const MAX_TEMPLATE_BYTES: usize = 128 << 10;
/// Limit of the public file: the template may double in size as JSON.
pub(crate) const MAX_CHAT_BYTES: u64 = 512 << 10;
/// Limit of a folder's own file, which also lists tokens.
const MAX_CONFIG_BYTES: u64 = 16 << 20;
/// The names by which templates refer to special tokens.
const TOKENS: [&str; 7] = [
    "bos_token",
    "cls_token",
    "eos_token",
    "mask_token",
    "pad_token",
    "sep_token",
    "unk_token",
];

/// The public part of a folder's chat template; `None` if it has none, or if a problem was added.
pub(crate) fn read(folder: &Path, problems: &mut Vec<Problem>) -> Option<Vec<u8>> {
    let mut file = |name, limit| {
        let read = read_small(&folder.join(name), name, limit);
        read.unwrap_or_else(|problem| {
            problems.push(problem);
            None
        })
    };
    let jinja = file(JINJA, MAX_TEMPLATE_BYTES as u64);
    let config = file(CHAT, MAX_CONFIG_BYTES);
    let mut config = match &config {
        Some(bytes) => json::object(CHAT, bytes, problems)?,
        None => Map::new(),
    };
    let template = match jinja {
        Some(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
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

/// Parses the result of [`read`].
pub(crate) fn parse(bytes: &[u8], problems: &mut Vec<Problem>) -> Option<ChatTemplate> {
    let object = json::object(CHAT, bytes, problems)?;
    let mut fields = Fields::new(CHAT, &object, problems);
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
