//! The fields of a request's JSON, taken out one by one: anything left over was not understood and is refused by name.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub mod harmless;

use axum::http::StatusCode;
use hushed_model::{json_fault, without_mark};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::refusal::Refusal;

/// A JSON object while it is being read.
#[derive(Default)]
pub struct Fields(Map<String, Value>);

impl Fields {
    /// Parses a body.
    ///
    /// # Errors
    /// 400 for anything but one JSON object. The message gives the position, not the text there.
    pub fn parse(body: &[u8]) -> Result<Self, Refusal> {
        let bad = |why: String| Refusal::new(StatusCode::BAD_REQUEST, "json", why);
        match serde_json::from_slice(without_mark(body)) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(bad("the body is not a JSON object".to_owned())),
            Err(_) if str::from_utf8(body).is_err() => Err(bad("the body is not UTF-8".to_owned())),
            Err(error) => {
                let (line, column, why) = (error.line(), error.column(), json_fault(&error));
                Err(bad(format!("the body is not JSON: line {line}, column {column}: {why}")))
            }
        }
    }

    /// The fields of a nested object.
    pub fn of(object: Map<String, Value>) -> Self {
        Self(object)
    }

    /// Takes a field; `null` counts as absent.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    /// Puts a field back, or another in its place.
    pub fn put(&mut self, name: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.0.insert(name.to_owned(), value);
        }
    }

    /// Takes a string.
    pub fn text(&mut self, name: &str) -> Result<Option<String>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(wrong(name, "a string")),
        }
    }

    /// Takes `true` or `false`.
    pub fn flag(&mut self, name: &str) -> Result<Option<bool>, Refusal> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(flag)),
            Some(_) => Err(wrong(name, "true or false")),
        }
    }

    /// Takes a whole number from 0.
    pub fn whole(&mut self, name: &str) -> Result<Option<u64>, Refusal> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        // Some clients write every number with a point.
        let whole = value.as_f64().filter(|x| x.fract() == 0.0 && (0.0..1e15).contains(x)).map(|x| x as u64);
        value.as_u64().or(whole).map(Some).ok_or_else(|| wrong(name, "a whole number from 0"))
    }

    /// Takes a number.
    pub fn number(&mut self, name: &str) -> Result<Option<f64>, Refusal> {
        let Some(value) = self.take(name) else {
            return Ok(None);
        };
        value.as_f64().map(Some).ok_or_else(|| wrong(name, "a number"))
    }

    /// Takes one text or a list of them; `tokens` is the message for lists of token ids.
    pub fn texts(&mut self, name: &str, tokens: &'static str) -> Result<Vec<Zeroizing<String>>, Refusal> {
        match self.take(name) {
            None => Err(Refusal::field(name, "missing", format!("`{name}` is missing"))),
            Some(Value::String(text)) => Ok(vec![Zeroizing::new(text)]),
            Some(Value::Array(list)) => list.into_iter().map(|v| one(name, v, tokens)).collect(),
            Some(_) => Err(wrong(name, "a string or a list of strings")),
        }
    }

    /// Checks that a field is absent or has the only supported value.
    pub fn only(&mut self, name: &str, same: impl Fn(&Value) -> bool) -> Result<(), Refusal> {
        match self.take(name) {
            Some(value) if !same(&value) => {
                Err(Refusal::field(name, "unsupported", format!("`{name}` is not supported: leave it out")))
            }
            _ => Ok(()),
        }
    }

    /// Checks that nothing is left.
    pub fn finish(self) -> Result<(), Refusal> {
        let left = self.0.into_iter().find(|(_, value)| !value.is_null());
        match left {
            None => Ok(()),
            Some((name, _)) => {
                // A name is not a text, but it is the client's, so it is shown only as far as that helps.
                let name: String = name.chars().take(40).collect();
                let message = format!("the field `{name}` is not supported: leave it out");
                Err(Refusal::field(&name, "unsupported", message))
            }
        }
    }
}

fn one(name: &str, value: Value, tokens: &'static str) -> Result<Zeroizing<String>, Refusal> {
    match value {
        Value::String(text) => Ok(Zeroizing::new(text)),
        Value::Number(_) => Err(Refusal::field(name, "token-ids", tokens)),
        Value::Array(inside) if inside.iter().all(Value::is_number) => Err(Refusal::field(name, "token-ids", tokens)),
        Value::Array(_) => Err(wrong(name, "a list of strings, not a list of lists")),
        _ => Err(wrong(name, "a string or a list of strings")),
    }
}

/// The refusal for a field of the wrong type.
pub fn wrong(name: &str, expected: &str) -> Refusal {
    Refusal::field(name, "wrong-type", format!("`{name}` must be {expected}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(json: &str) -> Fields {
        Fields::parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn a_body_that_is_no_object_is_refused_without_its_text() {
        for body in ["", "[]", "\"secret\"", "{\"secret", "\u{1}", "nul"] {
            let refusal = Fields::parse(body.as_bytes()).err().unwrap();
            assert_eq!(refusal.status, 400, "{body}");
            assert!(!refusal.message.contains("secret"));
        }
        let deep = "[".repeat(100_000);
        assert!(Fields::parse(deep.as_bytes()).is_err());
    }

    #[test]
    fn token_ids_are_named() {
        for input in ["[1, 2]", "[[1, 2]]", "[\"a\", 3]"] {
            let mut fields = fields(&format!("{{\"input\": {input}}}"));
            let refusal = fields.texts("input", "no ids").err().unwrap();
            assert_eq!((refusal.name, refusal.message.as_str()), ("token-ids", "no ids"));
        }
        let texts = fields("{\"input\": [\"a\", \"b\"]}").texts("input", "");
        assert_eq!(texts.unwrap().len(), 2);
    }

    #[test]
    fn what_is_left_is_refused_by_name() {
        let mut fields = fields("{\"a\": null, \"user\": \"x\", \"odd\": 1}");
        assert_eq!(fields.text("user").unwrap().unwrap(), "x");
        let refusal = fields.finish().err().unwrap();
        assert_eq!(refusal.param.as_deref(), Some("odd"));
    }
}
