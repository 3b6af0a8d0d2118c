//! The token that begins a text (`bos_token_id`), and those that end a generated one: `eos_token_id`, one or several,
//! in `config.json` and in `generation_config.json`, which wins, as in `transformers`.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use serde_json::Value;

use crate::error::Problem;
use crate::folder::fields;
use crate::folder::json::{self, Fields};

/// The file's name in a model folder.
pub(crate) const GENERATION: &str = "generation_config.json";
const FIELD: &str = "eos_token_id";
const SUPPORTED: &str = "an id below vocab_size, or a list of at most 64 of them";
/// Published models have up to five.
const MAX_ENDS: usize = 64;

/// The token that begins a text, if the configuration of a generator names one.
pub(crate) fn begin(bytes: &[u8], vocabulary: usize) -> Option<u32> {
    let value: Value = serde_json::from_slice(json::without_mark(bytes)).ok()?;
    let id = value.get("bos_token_id")?.as_u64().filter(|id| *id < vocabulary as u64)?;
    u32::try_from(id).ok()
}

/// The end tokens of a configuration; `None` if it gives none. A sound list is never empty.
pub(crate) fn read(f: &mut Fields<'_>, vocabulary: Option<usize>) -> Option<Vec<u32>> {
    let given = f.get(FIELD)?;
    let limit = vocabulary.unwrap_or(usize::MAX) as u64;
    let id = |id: &Value| u32::try_from(id.as_u64().filter(|id| *id < limit)?).ok();
    let ids = match given {
        Value::Array(ids) if (1..=MAX_ENDS).contains(&ids.len()) => ids.iter().map(id).collect(),
        one => id(one).map(|id| vec![id]),
    };
    if ids.is_none() {
        f.unsupported(FIELD, SUPPORTED);
    }
    ids
}

/// The end tokens that `generation_config.json` gives. Options in it that would change a likeliest token are refused.
pub(crate) fn of_generation(bytes: &[u8], vocabulary: Option<usize>, problems: &mut Vec<Problem>) -> Option<Vec<u32>> {
    let object = json::object(GENERATION, bytes, problems)?;
    let mut f = Fields::new(GENERATION, &object, problems);
    fields::refuse(&mut f, &[fields::GENERATION.into()]);
    read(&mut f, vocabulary)
}
