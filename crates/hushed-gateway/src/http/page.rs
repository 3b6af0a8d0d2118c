//! The page for a person, and the ledger as JSON.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::{HeaderName, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hushed_model::Task;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::served::Served;
use crate::sessions::share::Caller;

/// The whole page. It loads nothing: its style and its script are inline.
const PAGE: &str = include_str!("page.html");

/// `GET /`
pub async fn page() -> Response {
    let headers: [(HeaderName, String); 2] =
        [(header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()), (header::CONTENT_SECURITY_POLICY, policy())];
    (headers, PAGE).into_response()
}

/// The browser runs only the page's own script and style, known by their hashes, and connects only to the gateway.
fn policy() -> String {
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'",
        hash(inside("script")),
        hash(inside("style")),
    )
}

/// The text between a tag and its closing tag.
fn inside(tag: &str) -> &'static str {
    let begin = PAGE.split_once(&format!("<{tag}>")).map_or("", |(_, rest)| rest);
    begin.split_once(&format!("</{tag}>")).map_or("", |(inner, _)| inner)
}

fn hash(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text))
}

/// `GET /ledger`
pub async fn ledger(State(served): State<Arc<Served>>, Extension(caller): Extension<Caller>) -> Json<Value> {
    let shared = &served.shared;
    let sees_all = served.edge.door.sees_all(caller);
    let book = if sees_all { shared.ledger.book() } else { shared.ledger.book_of(caller) };
    Json(json!({
        "server": served.server,
        "certificate_sha256": served.pin,
        "model": served.named.model,
        "bundle": shared.bundle.to_string(),
        "task": match shared.public.task() {
            Task::Embed => "embed",
            Task::Classify => "classify",
            Task::Generate => "generate",
        },
        "max_tokens": shared.max_tokens,
        "needs_key": served.edge.door.has_keys(),
        "of": if sees_all { "everybody" } else { "this key" },
        "total": book.total,
        "lines": book.lines,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_loads_nothing_and_its_parts_are_found() {
        assert!(inside("script").len() > 500 && inside("style").len() > 200);
        for tag in ["script", "style"] {
            assert_eq!(PAGE.matches(&format!("<{tag}")).count(), 1);
        }
        for foreign in ["http://", "https://", "//cdn", "@import", "url(", "src=", "style="] {
            assert!(!PAGE.contains(foreign), "{foreign}");
        }
    }
}
