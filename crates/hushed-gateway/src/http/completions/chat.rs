//! The messages of a conversation.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use axum::http::StatusCode;
use hushed_serve::{ChatError, Message, Role};
use serde_json::Value;

use super::super::fields::harmless::{MESSAGE, PART};
use super::super::fields::{Fields, wrong};
use super::super::prepare::text_refused;
use super::super::refusal::Refusal;

const LIST: &str = "a list of messages, each with `role` and `content`";

/// Reads the field `messages`.
///
/// # Errors
/// 400 for anything that is not a message of text. No error contains words of one.
pub fn messages(fields: &mut Fields) -> Result<Vec<Message>, Refusal> {
    match fields.take("messages") {
        Some(Value::Array(list)) => list.into_iter().map(message).collect(),
        Some(_) => Err(wrong("messages", LIST)),
        None => Err(Refusal::field("messages", "missing", "`messages` is missing")),
    }
}

fn message(value: Value) -> Result<Message, Refusal> {
    let Value::Object(object) = value else {
        return Err(wrong("messages", LIST));
    };
    let mut fields = Fields::of(object);
    let role = fields.text("role")?.unwrap_or_default();
    if ["tool", "function"].contains(&role.as_str()) {
        let message = "messages of tools are not supported: this gateway has no tools";
        return Err(Refusal::field("messages", "unsupported", message));
    }
    let roles = "\"system\", \"user\" or \"assistant\"";
    let role = Role::named(&role).ok_or_else(|| wrong("role", roles))?;
    let content = match fields.take("content") {
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => parts.into_iter().map(part).collect::<Result<_, _>>()?,
        _ => return Err(wrong("content", "a string, or a list of parts of text")),
    };
    let name = fields.text("name")?;
    fields.harmless(&[MESSAGE], false)?;
    fields.finish()?;
    Ok(Message { role, content, name })
}

fn part(value: Value) -> Result<String, Refusal> {
    let no_text = || {
        let message = "a part of a message is no text: images, sound and files are not supported";
        Refusal::field("content", "unsupported", message)
    };
    let object = match value {
        Value::String(text) => return Ok(text),
        Value::Object(object) => object,
        _ => return Err(no_text()),
    };
    let mut fields = Fields::of(object);
    // `input_text` and `output_text` are its newer names.
    let text = match fields.text("type")?.as_deref() {
        Some("text" | "input_text" | "output_text") => fields.text("text")?,
        _ => None,
    };
    let text = text.ok_or_else(no_text)?;
    fields.harmless(&[PART], false)?;
    fields.finish()?;
    Ok(text)
}

impl From<ChatError> for Refusal {
    fn from(error: ChatError) -> Self {
        let refuse = |name, message| Self::new(StatusCode::BAD_REQUEST, name, message);
        match error {
            ChatError::Text(error) => text_refused(&error, "the conversation"),
            ChatError::NoTemplate => {
                let message = "this model has no chat template: send a prompt to /v1/completions";
                refuse("no-chat-template", message.to_owned())
            }
            ChatError::Template { .. } => refuse("chat-template", error.to_string()),
            _ => refuse("text-refused", error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> Result<Vec<Message>, Refusal> {
        messages(&mut Fields::parse(json.as_bytes()).unwrap())
    }

    #[test]
    fn roles_and_parts() {
        let read = of(r#"{"messages": [{"role": "developer", "content": "a"}, {"role": "user",
                "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "c"}]},
                {"role": "assistant", "content": "d", "refusal": null, "annotations": []},
                {"role": "user", "name": "bob", "content": [{"type": "text", "text": "e",
                "cache_control": {"type": "ephemeral"}}]}]}"#);
        let mut read = read.ok().unwrap();
        assert_eq!(read.pop().and_then(|last| last.name.clone()).as_deref(), Some("bob"));
        let roles: Vec<_> = read.iter().map(|m| (m.role, m.content.as_str())).collect();
        let expected = [(Role::System, "a"), (Role::User, "bc"), (Role::Assistant, "d")];
        assert_eq!(roles, expected);
    }

    #[test]
    fn what_is_no_text_is_refused_without_its_words() {
        for (message, param) in [
            (r#""secret""#, "messages"),
            (r#"{"role": "tool", "content": "secret"}"#, "messages"),
            (r#"{"role": "secret", "content": "a"}"#, "role"),
            (r#"{"role": "user"}"#, "content"),
            (r#"{"role": "user", "content": [{"type": "image_url", "image_url": "secret"}]}"#, "content"),
            (r#"{"role": "user", "content": "a", "name": ["secret"]}"#, "name"),
            (r#"{"role": "user", "content": [{"type": "text", "text": "a", "odd": "secret"}]}"#, "odd"),
            (r#"{"role": "assistant", "content": "a", "tool_calls": [{"secret": 1}]}"#, "tool_calls"),
        ] {
            let refusal = of(&format!("{{\"messages\": [{message}]}}")).err().unwrap();
            assert_eq!(refusal.param.as_deref(), Some(param), "{message}");
            assert!(!refusal.message.contains("secret"), "{message}");
        }
        assert_eq!(of("{}").err().unwrap().name, "missing");
    }
}
