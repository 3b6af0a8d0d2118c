//! Text continued through OpenAI's API.

use std::io::{Read, Write};

use hushed_mpc::Answers;
use hushed_serve::{Client, GenerateOptions};
use serde_json::{Value, json};

use crate::common::{Door, Reply, Running, eventually, posted};

pub const PROMPT: &str = "the thing";

/// What the server itself gives, greedily.
pub fn expected(server: &Running, max_tokens: usize) -> String {
    let mut client = Client::connect(&server.client()).unwrap();
    let options = GenerateOptions { max_tokens, ..GenerateOptions::default() };
    let text = client.generate(PROMPT, &options).unwrap().map(|token| token.unwrap().text).collect();
    client.close().unwrap();
    text
}

/// The data of a stream's events.
pub fn events(reply: &Reply) -> Vec<String> {
    let data = reply.body.lines().filter_map(|line| line.strip_prefix("data: "));
    data.map(str::to_owned).collect()
}

#[test]
fn whole_and_as_a_stream() {
    let server = Running::generates();
    let text = expected(&server, 6);
    let door = Door::open(&server, |_| ());
    let body = json!({ "model": door.model, "prompt": PROMPT, "max_tokens": 6, "temperature": 0 });
    let reply = door.post("/v1/completions", &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let answer = reply.json();
    assert_eq!(answer["choices"][0]["text"], json!(text));
    let prompt_tokens = answer["usage"]["prompt_tokens"].as_u64().unwrap();
    let tokens = answer["usage"]["completion_tokens"].as_u64().unwrap();
    assert_eq!(answer["usage"]["total_tokens"], json!(prompt_tokens + tokens));
    let reason = answer["choices"][0]["finish_reason"].as_str().unwrap();
    assert_eq!(reason == "length", tokens == 6);

    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    streamed["stream_options"] = json!({ "include_usage": true });
    streamed["prompt"] = json!([PROMPT]);
    let reply = door.post("/v1/completions", &streamed);
    assert!(reply.header("content-type").unwrap().starts_with("text/event-stream"));
    assert!(reply.body.starts_with(':'), "a comment comes at once");
    let events = events(&reply);
    let (done, chunks) = events.split_last().unwrap();
    assert_eq!(done, "[DONE]");
    let chunks: Vec<Value> = chunks.iter().map(|c| serde_json::from_str(c).unwrap()).collect();
    let (usage, chunks) = chunks.split_last().unwrap();
    assert_eq!(usage["usage"], answer["usage"]);
    assert_eq!(chunks.len() as u64, tokens);
    let pieces = chunks.iter().map(|c| c["choices"][0]["text"].as_str().unwrap());
    assert_eq!(pieces.collect::<String>(), text);
    let reasons: Vec<&Value> = chunks.iter().map(|c| &c["choices"][0]["finish_reason"]).collect();
    let (last, others) = reasons.split_last().unwrap();
    assert_eq!(*last, &json!(reason));
    assert!(others.iter().all(|reason| reason.is_null()));
}

#[test]
fn stop_and_seed() {
    let server = Running::generates();
    let text = expected(&server, 6);
    let door = Door::open(&server, |_| ());
    let first: String = text.chars().take(1).collect();
    let body = json!({ "prompt": PROMPT, "max_tokens": 6, "temperature": 0, "stop": [first, "\u{1}"] });
    let answer = door.post("/v1/completions", &body).json();
    let choice = &answer["choices"][0];
    assert_eq!((choice["text"].as_str(), choice["finish_reason"].as_str()), (Some(""), Some("stop")));

    // Only one token is possible, which its penalties do not outweigh.
    let banned = json!({
        "prompt": PROMPT, "max_tokens": 4, "temperature": 0, "frequency_penalty": 2, "presence_penalty": 2,
        "logit_bias": { "5": 100 },
    });
    let reply = door.post("/v1/completions", &banned).json();
    assert_eq!(reply["usage"]["completion_tokens"], 4);
    assert_ne!(reply["choices"][0]["text"], choice["text"]);

    let drawn = json!({ "prompt": PROMPT, "max_tokens": 4, "temperature": 1.5, "seed": 7 });
    let draw = || door.post("/v1/completions", &drawn).json()["choices"][0]["text"].clone();
    // Two runs of the protocol round differently: rarely a draw lies so near a boundary that its token changes.
    let draws = [draw(), draw(), draw()];
    assert!(draws.iter().any(|one| draws.iter().filter(|two| *two == one).count() > 1), "{draws:?}");
}

#[test]
fn what_is_asked_for_in_vain() {
    let server = Running::generates();
    let door = Door::open(&server, |_| ());
    let refused = |body: Value| {
        let reply = door.post("/v1/completions", &body);
        assert_eq!(reply.status, 400, "{}", reply.body);
        let error = reply.json()["error"].clone();
        error["param"].as_str().or(error["code"].as_str()).unwrap().to_owned()
    };
    for (name, value) in [
        ("top_p", json!(0.9)),
        ("top_k", json!(5)),
        ("n", json!(2)),
        ("presence_penalty", json!(2.5)),
        ("frequency_penalty", json!(-2.5)),
        ("frequency_penalty", json!("x")),
        ("repetition_penalty", json!(1.1)),
        ("logit_bias", json!({ "1": 101 })),
        ("logit_bias", json!({ "99999999": 1 })),
        ("logit_bias", json!({ "the": 1 })),
        ("logprobs", json!(1)),
        ("echo", json!(true)),
        ("best_of", json!(3)),
        ("odd", json!(1)),
        ("temperature", json!(3)),
        ("max_tokens", json!(0)),
        ("tools", json!([{ "type": "function" }])),
        ("seed", json!("x")),
        ("stop", json!(["a", "b", "c", "d", "e"])),
        ("prompt", json!(["a", 1])),
        ("prompt", json!([])),
        ("prompt", json!([1, 2])),
    ] {
        let mut body = json!({ "prompt": PROMPT });
        body[name] = value;
        assert_eq!(refused(body), name);
    }
    assert_eq!(refused(json!({ "prompt": PROMPT, "max_tokens": 64 })), "context_length_exceeded");
    // Values that equal the default are not refused.
    let fine = json!({
        "prompt": PROMPT, "max_tokens": 1, "top_p": 1, "n": 1, "presence_penalty": 0, "logit_bias": {}, "logprobs": null,
        "echo": false, "best_of": 1, "stop": null, "user": "me",
    });
    assert_eq!(door.post("/v1/completions", &fine).status, 200);
    let chat = json!({ "messages": [{ "role": "user", "content": "hello" }] });
    let reply = door.post("/v1/chat/completions", &chat);
    assert_eq!((reply.status, reply.code().as_str()), (400, "no-chat-template"));
    assert_eq!(door.post("/v1/embeddings", &json!({ "input": "a" })).code(), "other-task");
    // A token for a client that waits a millisecond.
    let reply = door.post_with("/v1/completions", &fine, "x-stainless-read-timeout: 0.001\r\n");
    assert_eq!((reply.status, reply.code().as_str()), (413, "too-slow"));
    assert_eq!(door.total("passes"), 1);
}

#[test]
fn a_client_that_goes_ends_its_answer() {
    let server = Running::generates();
    let door = Door::open(&server, |_| ());
    let body = json!({ "prompt": "a", "max_tokens": 60, "temperature": 0, "stream": true });
    let mut socket = door.connect();
    socket.write_all(posted("/v1/completions", &body.to_string(), "").as_bytes()).unwrap();
    let mut some = [0; 256];
    let _ = socket.read(&mut some).unwrap();
    drop(socket);
    // The session is free for the next request, long before 60 tokens.
    let next = json!({ "prompt": "a", "max_tokens": 1, "temperature": 0 });
    assert_eq!(door.post("/v1/completions", &next).status, 200);
    eventually("the answer ends", || door.get("/info").json()["running"] == json!(0));
    let passes = door.total("passes");
    assert!(passes < 61, "{passes} passes");
}

#[test]
fn a_conversation_is_answered_by_its_template() {
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let server = Running::chats(template);
    let text = expected(&server, 6);
    let door = Door::open(&server, |_| ());
    // The template turns them into the same text.
    let messages = json!([
        { "role": "system", "content": "the " }, { "role": "user", "content": [{ "type": "text", "text": "thing" }] },
    ]);
    let body = json!({ "model": door.model, "messages": messages, "max_completion_tokens": 6, "temperature": 0 });
    let reply = door.post("/v1/chat/completions", &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let answer = reply.json();
    let choice = &answer["choices"][0];
    assert_eq!(answer["object"], json!("chat.completion"));
    assert_eq!(choice["message"], json!({ "role": "assistant", "content": text }));
    let plain = json!({ "prompt": PROMPT, "max_tokens": 6, "temperature": 0 });
    let plain = door.post("/v1/completions", &plain).json();
    assert_eq!(answer["usage"], plain["usage"]);
    assert_eq!(choice["finish_reason"], plain["choices"][0]["finish_reason"]);

    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let events = events(&door.post("/v1/chat/completions", &streamed));
    let (done, chunks) = events.split_last().unwrap();
    assert_eq!(done, "[DONE]");
    let chunks: Vec<Value> = chunks.iter().map(|c| serde_json::from_str(c).unwrap()).collect();
    let deltas: Vec<&Value> = chunks.iter().map(|c| &c["choices"][0]["delta"]).collect();
    let said = deltas.iter().map(|d| d["content"].as_str().unwrap());
    assert_eq!(said.collect::<String>(), text);
    assert_eq!(deltas[0]["role"], json!("assistant"));
    assert!(deltas[1..].iter().all(|delta| delta["role"].is_null()));
    assert_eq!(chunks[0]["object"], json!("chat.completion.chunk"));
    // Without a limit from the client it ends where the context does.
    let mut open = body.clone();
    open.as_object_mut().unwrap().remove("max_completion_tokens");
    let answer = door.post("/v1/chat/completions", &open).json();
    assert!(answer["usage"]["total_tokens"].as_u64().unwrap() <= 65);

    for (name, value) in [
        ("tools", json!([{ "type": "function" }])),
        ("tool_choice", json!("required")),
        ("n", json!(2)),
        ("logit_bias", json!({ "1": 101 })),
        ("logit_bias", json!({ "99999999": 1 })),
        ("logit_bias", json!({ "the": 1 })),
        ("response_format", json!({ "type": "json_object" })),
        ("max_completion_tokens", json!(0)),
    ] {
        let mut asked = body.clone();
        asked[name] = value;
        let reply = door.post("/v1/chat/completions", &asked);
        assert_eq!((reply.status, reply.json()["error"]["param"].as_str()), (400, Some(name)));
    }
    let special = json!({ "messages": [{ "role": "user", "content": "a<|endoftext|>" }] });
    assert_eq!(door.post("/v1/chat/completions", &special).code(), "text-refused");
    let raises = Running::chats("{{ raise_exception('never') }}");
    let other = Door::open(&raises, |_| ());
    let reply = other.post("/v1/chat/completions", &body);
    assert_eq!((reply.status, reply.code().as_str()), (404, "model_not_found"));
    let mut body = body;
    body.as_object_mut().unwrap().remove("model");
    let reply = other.post("/v1/chat/completions", &body);
    assert_eq!((reply.status, reply.code().as_str()), (400, "text-refused"));
}

#[test]
fn several_prompts_have_a_choice_each() {
    let server = Running::generates();
    let door = Door::open(&server, |_| ());
    let one = |prompt: &str| {
        let body = json!({ "prompt": prompt, "max_tokens": 4, "temperature": 0 });
        door.post("/v1/completions", &body).json()
    };
    let (first, second) = (one("the thing"), one("a"));
    let mut body = json!({ "prompt": ["the thing", "a"], "max_tokens": 4, "temperature": 0 });
    let both = door.post("/v1/completions", &body).json();
    for (index, alone) in [&first, &second].into_iter().enumerate() {
        let choice = &both["choices"][index];
        assert_eq!(choice["index"], json!(index));
        assert_eq!(choice["text"], alone["choices"][0]["text"]);
        assert_eq!(choice["finish_reason"], alone["choices"][0]["finish_reason"]);
    }
    let tokens = |answer: &Value| answer["usage"]["total_tokens"].as_u64().unwrap();
    assert_eq!(tokens(&both), tokens(&first) + tokens(&second));

    body["stream"] = json!(true);
    let events = events(&door.post("/v1/completions", &body));
    let (done, chunks) = events.split_last().unwrap();
    assert_eq!(done, "[DONE]");
    let mut texts = [String::new(), String::new()];
    for chunk in chunks {
        let chunk: Value = serde_json::from_str(chunk).unwrap();
        let choice = &chunk["choices"][0];
        texts[choice["index"].as_u64().unwrap() as usize].push_str(choice["text"].as_str().unwrap());
    }
    assert_eq!(json!(texts), json!([first["choices"][0]["text"], second["choices"][0]["text"]]));
}

/// The head of a stream and a comment come while another answer holds the only session.
#[test]
fn a_stream_that_waits_is_heard_at_once() {
    let server = Running::generates();
    let door = Door::open(&server, |_| ());
    let body = |tokens: usize| {
        let body = json!({ "prompt": "a", "max_tokens": tokens, "temperature": 0, "stream": true });
        posted("/v1/completions", &body.to_string(), "")
    };
    let mut first = door.connect();
    first.write_all(body(60).as_bytes()).unwrap();
    eventually("the first runs", || door.get("/info").json()["running"] == json!(1));
    let mut second = door.connect();
    second.write_all(body(1).as_bytes()).unwrap();
    let mut text = String::new();
    while !text.contains("\r\n\r\n") || !text.contains("\r\n:") {
        let mut some = [0; 512];
        let read = second.read(&mut some).unwrap();
        assert!(read > 0, "{text}");
        text.push_str(std::str::from_utf8(&some[..read]).unwrap());
    }
    assert!(text.starts_with("HTTP/1.1 200") && !text.contains("data:"), "{text}");
    drop(first);
    second.read_to_string(&mut text).unwrap();
    assert!(text.contains("[DONE]"), "{text}");
}

/// The operator opens the three likeliest tokens of each pass: they are named, and nobody knows how likely they are.
#[test]
fn the_likeliest_tokens_are_shown_where_the_operator_opens_them() {
    let server = Running::allows(|config| {
        let template = json!({ "chat_template": "{{ messages[0]['content'] }}" });
        std::fs::write(config.model.join("tokenizer_config.json"), template.to_string()).unwrap();
        config.answers = Some(Answers::Top(3));
    });
    let text = expected(&server, 4);
    let door = Door::open(&server, |_| ());
    let body = json!({ "prompt": PROMPT, "max_tokens": 4, "temperature": 0, "logprobs": 2 });
    let choice = door.post("/v1/completions", &body).json()["choices"][0].clone();
    assert_eq!(choice["text"], json!(text));
    let shown = &choice["logprobs"];
    let names: Vec<&str> = shown["tokens"].as_array().unwrap().iter().map(|t| t.as_str().unwrap()).collect();
    assert_eq!(names.concat(), text);
    for (name, top) in names.iter().zip(shown["top_logprobs"].as_array().unwrap()) {
        let top = top.as_object().unwrap();
        assert!(top.len() <= 2 && top.get(*name) == Some(&Value::Null), "{name} in {top:?}");
    }
    assert_eq!(shown["token_logprobs"], json!([null, null, null, null]));

    let chat = json!({ "messages": [{ "role": "user", "content": PROMPT }], "max_tokens": 4, "temperature": 0,
        "logprobs": true, "top_logprobs": 3, "stream": true });
    let reply = door.post("/v1/chat/completions", &chat);
    let chunks: Vec<Value> = events(&reply).iter().filter_map(|c| serde_json::from_str(c).ok()).collect();
    let tokens: Vec<&Value> = chunks.iter().map(|c| &c["choices"][0]["logprobs"]["content"][0]).collect();
    let said: String = tokens.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(said, text);
    for token in tokens {
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!((top.len(), &top[0]["token"], &token["logprob"]), (3, &token["token"], &Value::Null));
    }

    let mut more = body.clone();
    more["logprobs"] = json!(4);
    let reply = door.post("/v1/completions", &more);
    assert_eq!(reply.status, 400);
    assert!(reply.body.contains("the 3 likeliest"), "{}", reply.body);
    let alone = json!({ "messages": [{ "role": "user", "content": PROMPT }], "top_logprobs": 2 });
    assert_eq!(door.post("/v1/chat/completions", &alone).json()["error"]["param"], "top_logprobs");
}
