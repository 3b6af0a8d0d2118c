//! What clients send besides the question: taken where it changes no answer, refused by name where it would.

use serde_json::{Map, Value, json};

use crate::common::{Door, Running, posted};
use crate::completions::PROMPT;

const TEMPLATE: &str = "{% for m in messages %}{{ m.name or '' }}{{ m.content }}{% endfor %}";

/// Bodies as the clients named send them, with what else they write into them.
fn recorded() -> Vec<(&'static str, &'static str, Value)> {
    let user = json!([{ "role": "user", "content": "the thing" }]);
    let chat = |more: Value| {
        let mut body = json!({ "messages": user, "max_tokens": 2, "temperature": 0 });
        let more: Map<String, Value> = serde_json::from_value(more).unwrap();
        body.as_object_mut().unwrap().extend(more);
        body
    };
    let completions = |more: Value| {
        let mut body = chat(more);
        body.as_object_mut().unwrap().remove("messages");
        body["prompt"] = json!(PROMPT);
        body
    };
    vec![
        (
            "openai",
            "/v1/chat/completions",
            chat(json!({ "model": "any", "n": 1, "stream": false, "store": false,
            "metadata": {}, "service_tier": "auto", "reasoning_effort": "low", "parallel_tool_calls": true,
            "tool_choice": "auto", "tools": [], "response_format": { "type": "text" }, "modalities": ["text"],
            "safety_identifier": "u", "prompt_cache_key": "k", "verbosity": "low", "logprobs": false,
            "top_logprobs": 0, "top_p": 1.0, "seed": 7, "user": "me" })),
        ),
        (
            "langchain",
            "/v1/chat/completions",
            chat(json!({ "model": "any", "n": 1, "stop": null, "top_p": 0.95,
            "presence_penalty": 0.0, "frequency_penalty": 0.0, "logit_bias": null })),
        ),
        (
            "autogen",
            "/v1/chat/completions",
            chat(json!({ "messages": [
            { "role": "system", "content": "the ", "name": "a" }, { "role": "user", "content": "thing", "name": "b" }],
            "model": "any", "cache_seed": null })),
        ),
        (
            "a coding assistant",
            "/v1/chat/completions",
            chat(json!({ "messages": [{ "role": "user", "content": [
            { "type": "text", "text": "the thing", "cache_control": { "type": "ephemeral" } }] }] })),
        ),
        (
            "an answer sent back",
            "/v1/chat/completions",
            chat(json!({ "messages": [
            { "role": "user", "content": "a" },
            { "role": "assistant", "content": "b", "refusal": null, "annotations": [], "tool_calls": [],
              "reasoning_content": "", "function_call": null },
            { "role": "user", "content": "c" }] })),
        ),
        (
            "vllm",
            "/v1/completions",
            completions(json!({ "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0,
            "length_penalty": 1.0, "ignore_eos": false, "stop_token_ids": [], "skip_special_tokens": true,
            "best_of": 1, "echo": false, "logprobs": 0, "suffix": "", "min_tokens": 0 })),
        ),
        (
            "llama.cpp",
            "/v1/completions",
            completions(json!({ "cache_prompt": true, "top_k": 40, "typical_p": 1.0,
            "repeat_penalty": 1.0, "mirostat": 0, "id_slot": -1, "keep_alive": "5m", "max_tokens": 2.0 })),
        ),
    ]
}

#[test]
fn what_clients_write_and_nothing_reads() {
    let server = Running::chats(TEMPLATE);
    let door = Door::open(&server, |config| config.any_model = true);
    for (client, path, body) in recorded() {
        let reply = door.post(path, &body);
        assert_eq!(reply.status, 200, "{client}: {}", reply.body);
        assert!(reply.json()["usage"]["completion_tokens"].as_u64().unwrap() <= 2, "{client}");
    }
    // The name is the template's to write.
    let named = |name: Value| {
        let messages = json!([{ "role": "user", "content": "thing", "name": name }]);
        let body = json!({ "messages": messages, "max_tokens": 1, "temperature": 0 });
        door.post("/v1/chat/completions", &body).json()["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert!(named(json!("the ")) > named(json!(null)));
    let special = json!([{ "role": "user", "content": "a", "name": "<|endoftext|>" }]);
    let reply = door.post("/v1/chat/completions", &json!({ "messages": special }));
    assert_eq!((reply.status, reply.code().as_str()), (400, "text-refused"));
}

#[test]
fn names_of_models() {
    let server = Running::embeds();
    let asked = |door: &Door, name: &str| door.post("/v1/embeddings", &json!({ "input": "a", "model": name })).status;
    let aliased = Door::open(&server, |config| config.aliases = vec!["text-embedding-3-small".to_owned()]);
    assert_eq!((asked(&aliased, "text-embedding-3-small"), asked(&aliased, "gpt-4")), (200, 404));
    let listed = aliased.get("/v1/models").json();
    let names: Vec<&str> = listed["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!(names, [aliased.model.as_str(), "text-embedding-3-small"]);
    assert_eq!(aliased.get("/v1/models/text-embedding-3-small").json()["id"], "text-embedding-3-small");
    let any = Door::open(&server, |config| config.any_model = true);
    assert_eq!((asked(&any, "whatever"), asked(&any, "")), (200, 200));
}

#[test]
fn a_mark_before_a_body_and_a_body_that_is_no_text() {
    let server = Running::embeds();
    let door = Door::open(&server, |_| ());
    let marked = "\u{feff}{\"input\": \"a\"}";
    assert_eq!(door.send(&posted("/v1/embeddings", marked, "")).status, 200);
    let reply = door.send(&posted("/v1/embeddings", "{\"input\": \"\\ud83d a\"}", ""));
    let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(reply.status == 400 && message.contains("surrogate"), "{message}");
    let reply = door.send(&posted("/v1/embeddings", "{\"input\": \"a\"}", "Content-Encoding: gzip\r\n"));
    assert_eq!((reply.status, reply.code().as_str()), (415, "content-encoding"));
    let nested = door.post("/v1/embeddings", &json!({ "input": [["a"]] }));
    assert_eq!((nested.status, nested.code().as_str()), (400, "wrong-type"));
}

#[test]
fn paths_as_programs_join_them() {
    let server = Running::embeds();
    let door = Door::open(&server, |_| ());
    let body = json!({ "input": "a" });
    for path in ["/v1/embeddings/", "//v1/embeddings", "/embeddings"] {
        assert_eq!(door.post(path, &body).status, 200, "{path}");
    }
    for (path, says) in [("/v1/v1/embeddings", "/v1 twice"), ("/completions", "/v1/completions"), ("/v1", "base URL")] {
        let reply = door.post(path, &body);
        assert!(reply.status == 404 && reply.body.contains(says), "{path}: {}", reply.body);
    }
    let document = door.get("/openapi.json").json();
    assert!(document["paths"]["/v1/embeddings"]["post"].is_object() && document["paths"]["other"].is_null());
    for path in document["paths"].as_object().unwrap().keys().filter(|path| !path.contains('{')) {
        let served = path != "/v1/files" && path != "/v1/batches";
        assert_eq!(door.get(path).status != 404, served, "{path}");
    }
}
