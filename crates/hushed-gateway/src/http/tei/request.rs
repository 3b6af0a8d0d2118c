//! What the requests of these routes share.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use axum::response::Response;
use serde_json::Value;

use crate::http::fields::harmless::{CALLER, OPTIONS, TEI};
use crate::http::fields::{Fields, wrong};
use crate::http::refusal::{Refusal, Shape};

/// The message for lists of token ids.
pub const TOKEN_IDS: &str = "lists of token ids are not supported: send strings";

/// The answer, or the refusal in this API's shape.
pub fn shaped(answered: Result<Response, Refusal>) -> Response {
    answered.unwrap_or_else(|refusal| refusal.answer(Shape::Tei))
}

/// The fields, with those of `parameters` merged in.
pub fn merged(mut fields: Fields) -> Result<Fields, Refusal> {
    match fields.take("parameters") {
        None => {}
        Some(Value::Object(inside)) => {
            for (name, value) in inside {
                fields.put(&name, Some(value));
            }
        }
        Some(_) => return Err(wrong("parameters", "an object")),
    }
    Ok(fields)
}

/// Takes out what changes no answer.
pub fn harmless(fields: &mut Fields) -> Result<(), Refusal> {
    if let Some(options) = fields.take("options") {
        let Value::Object(inside) = options else {
            return Err(wrong("options", "an object"));
        };
        let mut inside = Fields::of(inside);
        inside.harmless(&[OPTIONS], false)?;
        inside.finish()?;
    }
    // Hugging Face's clients name the model in the body of some routes.
    fields.take("model");
    fields.harmless(&[CALLER, TEI], false)
}
