//! `logprobs`: the likeliest tokens of each pass, where the server's operator opens several (`--answers top:K`). They
//! come in their order; how likely each is, nobody opens, so the numbers are null.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_model::Public;
use serde_json::{Map, Value, json};

use super::route::Route;
use crate::http::fields::{Fields, wrong};
use crate::http::refusal::Refusal;
use crate::sessions::Shared;

/// Reads `logprobs` and `top_logprobs`: how many of the likeliest tokens of each pass to show, `None` for no list.
///
/// # Errors
/// 400 for more than the server opens.
pub fn asked(fields: &mut Fields, route: Route, shared: &Shared) -> Result<Option<usize>, Refusal> {
    let (name, wanted) = match route {
        // 0 asks for nothing that would be known here.
        Route::Completions => match fields.take("logprobs") {
            None | Some(Value::Bool(false)) => ("logprobs", None),
            some => {
                fields.put("logprobs", some);
                ("logprobs", fields.whole("logprobs")?.filter(|n| *n > 0))
            }
        },
        Route::Chat => {
            let number = fields.whole("top_logprobs")?.unwrap_or(0);
            match fields.flag("logprobs")?.unwrap_or(false) {
                true => (if number > 0 { "top_logprobs" } else { "logprobs" }, Some(number)),
                false if number > 0 => return Err(wrong("top_logprobs", "0 or left out without `logprobs`")),
                false => ("logprobs", None),
            }
        }
    };
    let Some(wanted) = wanted else { return Ok(None) };
    let opened = shared.top.unwrap_or(0);
    match usize::try_from(wanted) {
        Ok(wanted) if wanted <= opened && opened > 1 => Ok(Some(wanted)),
        _ if opened > 1 => Err(Refusal::field(
            name,
            "unsupported",
            format!("this server opens the {opened} likeliest tokens: `{name}` must be at most that"),
        )),
        _ => {
            let message = "this server opens the likeliest token alone (its operator decides, with --answers top:K): leave `logprobs` out";
            Err(Refusal::field(name, "unsupported", message))
        }
    }
}

/// Tokens in the shape of a route: of each the id and the likeliest ones, of which `most` are shown.
pub fn shown<'a>(route: Route, public: &Public, tokens: impl Iterator<Item = (u32, &'a [u32])>, most: usize) -> Value {
    let name = |id: u32| public.tokenizer().map(|tokenizer| tokenizer.decode(&[id], false)).unwrap_or_default();
    match route {
        Route::Chat => {
            let one = |id| json!({ "token": name(id), "logprob": null, "bytes": null });
            let content = tokens.map(|(id, top)| {
                let mut token = one(id);
                let likeliest: Vec<Value> = top.iter().take(most).map(|id| one(*id)).collect();
                if let Some(token) = token.as_object_mut() {
                    token.insert("top_logprobs".to_owned(), likeliest.into());
                }
                token
            });
            json!({ "content": content.collect::<Vec<_>>(), "refusal": null })
        }
        Route::Completions => {
            let (mut names, mut tops) = (Vec::new(), Vec::new());
            for (id, top) in tokens {
                names.push(name(id));
                tops.push(top.iter().take(most).map(|id| (name(*id), Value::Null)).collect::<Map<_, _>>());
            }
            let none = vec![Value::Null; names.len()];
            json!({ "tokens": names, "token_logprobs": none, "top_logprobs": tops, "text_offset": none })
        }
    }
}
