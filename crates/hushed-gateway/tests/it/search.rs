//! Searches the server's documents over HTTP.

use hushed_serve::Document;
use serde_json::{Value, json};

use crate::common::{Door, Running};

const DOCUMENTS: [&str; 4] = ["hello private world", "the quick brown fox", "a", "c d e f g h i"];

#[test]
fn a_document_is_found_by_its_own_text() {
    let server = Running::searches(&DOCUMENTS, 12);
    let door = Door::open(&server, |config| config.bucket = Some(8));
    for (place, text) in DOCUMENTS.iter().enumerate() {
        let body = json!({ "model": door.model, "query": text, "top": 2 });
        let reply = door.post("/v1/search", &body);
        assert_eq!(reply.status, 200, "{}", reply.body);
        let answer = reply.json();
        let kept: String = text.chars().take(12).collect();
        assert_eq!(answer["hits"][0], json!({ "rank": 1, "place": place, "text": kept }));
        assert_eq!((&answer["found"], &answer["documents"]), (&json!(2), &json!(4)));
        assert_eq!(answer["padded_tokens"].as_u64().unwrap() % 8, 0);
    }
    let body = json!({ "query": "hello", "top": 100, "texts": false });
    let hits = door.post("/v1/search", &body).json()["hits"].clone();
    let hits: Vec<&Value> = hits.as_array().unwrap().iter().collect();
    let mut places: Vec<u64> = hits.iter().map(|hit| hit["place"].as_u64().unwrap()).collect();
    places.sort_unstable();
    assert_eq!(places, [0, 1, 2, 3]);
    assert!(hits.iter().all(|hit| hit["text"].is_null()));
    // The same session also embeds, and the ledger has every pass.
    assert_eq!(door.post("/v1/embeddings", &json!({ "input": "a" })).status, 200);
    assert_eq!(door.total("passes"), 6);
    assert_eq!(door.total("sessions"), 1);
}

#[test]
fn texts_and_searches_take_turns() {
    let server = Running::searches(&DOCUMENTS, 12);
    let door = &Door::open(&server, |_| ());
    std::thread::scope(|scope| {
        let search = |text: &'static str| {
            scope.spawn(move || door.post("/v1/search", &json!({ "query": text, "top": 1 })).status)
        };
        let embed =
            |text: &'static str| scope.spawn(move || door.post("/v1/embeddings", &json!({ "input": text })).status);
        let calls = [search("a b"), embed("c d"), search("e f"), embed("g h"), search("i j")];
        for call in calls {
            assert_eq!(call.join().unwrap(), 200);
        }
    });
    assert_eq!(door.get("/info").json()["running"], json!(0));
}

#[test]
fn what_cannot_be_searched_is_refused() {
    let server = Running::searches(&DOCUMENTS, 0);
    let door = Door::open(&server, |_| ());
    let refused = |body: Value| {
        let reply = door.post("/v1/search", &body);
        assert_eq!(reply.status, 400, "{}", reply.body);
        reply.code()
    };
    for (body, code) in [
        (json!({}), "missing"),
        (json!({ "query": ["a"] }), "wrong-type"),
        (json!({ "query": "a", "top": 0 }), "wrong-type"),
        (json!({ "query": "a", "top": 101 }), "wrong-type"),
        (json!({ "query": "a", "scores": true }), "no-scores"),
        (json!({ "query": "a", "scores": 1 }), "wrong-type"),
        (json!({ "query": "a", "score": true }), "unsupported"),
        (json!({ "query": "a", "texts": true }), "no-index"),
        (json!({ "query": "" }), "text-refused"),
        (json!({ "query": "a ".repeat(500) }), "context_length_exceeded"),
    ] {
        assert_eq!(refused(body), code);
    }
    let places = json!({ "query": "a" });
    assert_eq!(door.post("/v1/search", &places).json()["found"], json!(4));
    let reply = door.post_with("/v1/search", &places, "x-stainless-read-timeout: 0.0001\r\n");
    assert_eq!((reply.status, reply.code().as_str()), (413, "too-slow"));

    let plain = Running::embeds();
    let door = Door::open(&plain, |_| ());
    assert_eq!(door.post("/v1/search", &places).code(), "no-index");
    let writer = Running::generates();
    let door = Door::open(&writer, |_| ());
    assert_eq!(door.post("/v1/search", &places).code(), "other-task");
}

#[test]
fn ids_and_metadata_come_with_a_document() {
    let document = |id: &str, text: &str| Document {
        id: Some(json!(id)),
        metadata: Some(json!({ "year": 2026 })),
        ..Document::from(text)
    };
    let documents = [document("a", "hello private world"), Document::from("the quick brown fox")];
    let server = Running::searches(&documents, 64);
    let door = Door::open(&server, |_| ());
    let first = |query: &str| door.post("/v1/search", &json!({ "query": query, "top": 1 })).json()["hits"][0].clone();
    let found =
        json!({ "rank": 1, "place": 0, "text": "hello private world", "id": "a", "metadata": { "year": 2026 } });
    assert_eq!(first("hello private world"), found);
    assert_eq!(first("the quick brown fox"), json!({ "rank": 1, "place": 1, "text": "the quick brown fox" }));
}
