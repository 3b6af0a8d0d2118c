//! Embeddings through both APIs, compared with the model in the clear.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hushed_model::testing::tiny_golden;
use hushed_model::{Model, ScoreFn, TooLong, cosine};
use hushed_mpc::Answers;
use serde_json::{Value, json};

use crate::common::{Door, Running};

const TEXTS: [&str; 3] = ["hello private world", "a", "hello private world"];

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn clear(server: &Running, text: &str) -> Vec<f64> {
    let model = Model::load(&server.model()).unwrap();
    let ids = model.tokens(text, TooLong::Refuse).unwrap();
    model.embed(vec![ids]).unwrap().remove(0)
}

#[test]
fn openai() {
    let server = Running::embeds();
    let door = Door::open(&server, |_| ());
    let body = json!({ "input": TEXTS, "model": door.model, "encoding_format": "float", "user": "me" });
    let reply = door.post("/v1/embeddings", &body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let answer = reply.json();
    for (index, text) in TEXTS.iter().enumerate() {
        let data = &answer["data"][index];
        assert_eq!((data["index"].as_u64(), data["object"].as_str()), (Some(index as u64), Some("embedding")));
        assert!(cosine(&clear(&server, text), &numbers(&data["embedding"])) > 0.999);
    }
    // [CLS] hello private world [SEP], twice, and [CLS] a [SEP].
    assert_eq!(answer["usage"], json!({ "prompt_tokens": 13, "total_tokens": 13 }));
    assert_eq!(answer["model"], json!(door.model));
    // Equal texts are run once at the server.
    assert_eq!(server.counted("hushed_texts_total"), 2);

    let base64 = json!({ "input": TEXTS[0], "encoding_format": "base64", "dimensions": 32 });
    let answer = door.post("/v1/embeddings", &base64).json();
    let bytes = STANDARD.decode(answer["data"][0]["embedding"].as_str().unwrap()).unwrap();
    let vector: Vec<f64> = bytes.chunks(4).map(|b| f64::from(f32::from_le_bytes(b.try_into().unwrap()))).collect();
    assert!(cosine(&clear(&server, TEXTS[0]), &vector) > 0.999);
    assert_eq!(server.counted("hushed_texts_total"), 2, "kept");

    let models = door.get("/v1/models").json();
    assert_eq!(models["data"][0]["id"], json!(door.model));
    assert_eq!(door.get(&format!("/v1/models/{}", door.model)).status, 200);
    assert_eq!(door.get("/v1/models/gpt-4").status, 404);
}

#[test]
fn what_openai_asks_for_in_vain() {
    let server = Running::embeds();
    let door = Door::open(&server, |_| ());
    for (body, status, code, says) in [
        (json!({ "input": [1, 2] }), 400, "token-ids", "check_embedding_ctx_length=False"),
        (json!({ "input": [[1, 2], [3]] }), 400, "token-ids", "check_embedding_ctx_length=False"),
        (json!({ "input": "a", "dimensions": 16 }), 400, "unsupported", "matryoshka_dimensions"),
        (json!({ "input": "a", "model": "text-embedding-3-small" }), 404, "model_not_found", &door.model),
        (json!({ "input": "a", "encoding_format": "int8" }), 400, "wrong-type", "base64"),
        (json!({ "input": [] }), 400, "missing", "input"),
        (json!({}), 400, "missing", "input"),
        (json!({ "input": ["a", ""] }), 400, "text-refused", "text 1"),
        (json!({ "input": "a ".repeat(60) }), 400, "context_length_exceeded", "48"),
        (json!({ "input": "a", "odd": 1 }), 400, "unsupported", "odd"),
        (json!(["a"]), 400, "json", "object"),
    ] {
        let reply = door.post("/v1/embeddings", &body);
        assert_eq!((reply.status, reply.code().as_str()), (status, code), "{body}");
        let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(says), "{message}");
    }
    let reply = door.post("/v1/completions", &json!({ "prompt": "a" }));
    assert_eq!((reply.status, reply.code().as_str()), (400, "other-task"));
    assert_eq!(server.counted("hushed_texts_total"), 0);
}

#[test]
fn text_embeddings_inference() {
    let server = Running::embeds();
    let door = Door::open(&server, |config| config.bucket = Some(8));
    let one = door.post("/embed", &json!({ "inputs": TEXTS[0], "normalize": true })).json();
    assert!(cosine(&clear(&server, TEXTS[0]), &numbers(&one[0])) > 0.999);
    // `InferenceClient` posts to the root.
    let root = door.post("/", &json!({ "inputs": TEXTS, "parameters": {} })).json();
    assert_eq!(root.as_array().unwrap().len(), 3);
    assert_eq!(root[0], one[0]);

    let sentences = json!({ "source_sentence": TEXTS[0], "sentences": [TEXTS[0], TEXTS[1]] });
    for path in ["/similarity", "/"] {
        let cosines = numbers(&door.post(path, &json!({ "inputs": sentences })).json());
        let expected = cosine(&clear(&server, TEXTS[0]), &clear(&server, TEXTS[1]));
        assert!((cosines[0] - 1.0).abs() < 1e-5 && (cosines[1] - expected).abs() < 0.01);
    }

    let long = "a ".repeat(60);
    let cut = door.post("/embed", &json!({ "inputs": long, "truncate": true }));
    assert_eq!(cut.status, 200, "{}", cut.body);
    for (body, says) in [
        (json!({ "inputs": long }), "48"),
        (json!({ "inputs": "a", "normalize": false }), "normalised"),
        (json!({ "inputs": "a", "prompt_name": "query" }), "prompts"),
        (json!({ "inputs": [[1, 2]] }), "token ids"),
        (json!({ "inputs": "a", "odd": 1 }), "odd"),
        (json!({}), "inputs"),
    ] {
        let reply = door.post("/embed", &body);
        let error = reply.json();
        assert_eq!((reply.status, error["error_type"].as_str()), (400, Some("Validation")));
        assert!(error["error"].as_str().unwrap().contains(says), "{error}");
    }

    let info = door.get("/info").json();
    assert_eq!((info["max_input_length"].as_u64(), info["model_id"].as_str()), (Some(48), Some(door.model.as_str())));
    assert_eq!(info["model_type"]["embedding"]["pooling"], json!("mean"));
    assert_eq!((door.get("/health").status, door.get("/ready").status), (200, 200));

    // What the server saw: lengths rounded up to 8, and 48 for the text that was cut.
    let ledger = door.get("/ledger").json();
    let mut seen: Vec<u64> = Vec::new();
    for line in ledger["lines"].as_array().unwrap() {
        seen.extend(line["tokens"].as_array().unwrap().iter().filter_map(Value::as_u64));
    }
    seen.sort_unstable();
    assert_eq!(seen, [8, 8, 48]);
    assert_eq!(ledger["total"]["sessions"], json!(1));
    assert_eq!(ledger["certificate_sha256"].as_str().map(str::len), Some(64));

    let metrics = door.get("/metrics");
    assert!(metrics.header("content-type").unwrap().starts_with("application/openmetrics-text"));
    for line in [
        "hushed_gateway_pass_texts_total 3",
        "hushed_gateway_pass_tokens_total 64",
        "hushed_gateway_requests_total{route=\"/embed\",status=\"400\"} 6",
        "hushed_gateway_texts_total{source=\"kept\"}",
        "# EOF",
    ] {
        assert!(metrics.body.contains(line), "{line}: {}", metrics.body);
    }
}

/// A model that says so has its embeddings cut, and scaled to length one again.
#[test]
fn embeddings_are_cut_where_the_folder_says_that_they_may_be() {
    let server = Running::embeds_with(|folder| {
        let path = folder.join("config.json");
        let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        config["matryoshka_dimensions"] = json!([8, 16, 32]);
        std::fs::write(&path, config.to_string()).unwrap();
    });
    let door = Door::open(&server, |_| ());
    let whole = door.post("/v1/embeddings", &json!({ "input": TEXTS[0] })).json();
    let whole = numbers(&whole["data"][0]["embedding"]);
    for (path, body) in [
        ("/v1/embeddings", json!({ "input": TEXTS[0], "dimensions": 8 })),
        ("/embed", json!({ "inputs": TEXTS[0], "dimensions": 8 })),
    ] {
        let reply = door.post(path, &body).json();
        let cut = match path {
            "/embed" => numbers(&reply[0]),
            _ => numbers(&reply["data"][0]["embedding"]),
        };
        let length: f64 = cut.iter().map(|x| x * x).sum();
        assert!(cut.len() == 8 && (length - 1.0).abs() < 1e-5);
        assert!(cosine(&whole[..8], &cut) > 0.999_999);
    }
    for other in [4, 33, 0] {
        let reply = door.post("/v1/embeddings", &json!({ "input": "a", "dimensions": other }));
        assert!(reply.status == 400 && reply.body.contains("8, 16, 32"), "{}", reply.body);
    }
    assert_eq!(server.counted("hushed_texts_total"), 1);
}

#[test]
fn either_end_of_a_text_that_is_too_long() {
    let server = Running::embeds();
    let door = Door::open(&server, |_| ());
    let long = format!("{}{}", "a ".repeat(30), "hello private world ".repeat(20));
    let model = Model::load(&server.model()).unwrap();
    let of = |end| model.embed(vec![model.tokens(&long, end).unwrap()]).unwrap().remove(0);
    let (beginning, end) = (of(TooLong::Cut), of(TooLong::CutLeft));
    assert!(cosine(&beginning, &end) < 0.99);
    let openai = |more: (&str, Value)| {
        let mut body = json!({ "input": long });
        body[more.0] = more.1;
        numbers(&door.post("/v1/embeddings", &body).json()["data"][0]["embedding"])
    };
    for cut in [("truncate", json!(true)), ("truncate", json!("END")), ("truncate_prompt_tokens", json!(-1))] {
        assert!(cosine(&beginning, &openai(cut)) > 0.999);
    }
    assert!(cosine(&end, &openai(("truncate", json!("START")))) > 0.999);
    let left = json!({ "inputs": long, "truncate": true, "truncation_direction": "Left" });
    assert!(cosine(&end, &numbers(&door.post("/embed", &left).json()[0])) > 0.999);
    let reply = door.post("/v1/embeddings", &json!({ "input": long }));
    assert_eq!((reply.status, reply.code().as_str()), (400, "context_length_exceeded"));
}

#[test]
fn tokens_and_texts() {
    let server = Running::embeds();
    let door = Door::open(&server, |_| ());
    let pieces = door.post("/tokenize", &json!({ "inputs": "Hello  world" })).json();
    let pieces = pieces[0].as_array().unwrap();
    let texts: Vec<&str> = pieces.iter().map(|piece| piece["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["[CLS]", "Hello", "world", "[SEP]"]);
    assert_eq!((&pieces[0]["special"], &pieces[0]["start"]), (&json!(true), &json!(null)));
    assert_eq!((&pieces[2]["start"], &pieces[2]["stop"]), (&json!(7), &json!(12)));
    let ids: Vec<&Value> = pieces.iter().map(|piece| &piece["id"]).collect();
    assert_eq!(door.post("/decode", &json!({ "ids": ids })).json(), json!(["hello world"]));
    let whole = json!({ "ids": [ids], "skip_special_tokens": false });
    assert_eq!(door.post("/decode", &whole).json(), json!(["[CLS] hello world [SEP]"]));
    let bare = json!({ "inputs": ["a", "b"], "add_special_tokens": false });
    let bare = door.post("/tokenize", &bare).json();
    assert_eq!(bare.as_array().unwrap().iter().map(|text| text.as_array().unwrap().len()).sum::<usize>(), 2);
    assert_eq!(door.post("/decode", &json!({ "ids": ["a"] })).status, 400);
    let all = door.post("/embed_all", &json!({ "inputs": "a" }));
    assert!(all.status == 400 && all.body.contains("one embedding per text"));
    assert_eq!((server.counted("hushed_texts_total"), door.get("/ping").status), (0, 200));
}

#[test]
fn classes() {
    let server = Running::classifies(|_| ());
    let door = Door::open(&server, |_| ());
    let one = door.post("/predict", &json!({ "inputs": TEXTS[0] })).json();
    assert!(one[0]["label"].is_string() && one[0]["score"].is_null(), "{one}");
    assert_eq!(one.as_array().unwrap().len(), 1);
    let several = door.post("/predict", &json!({ "inputs": [[TEXTS[0]], [TEXTS[1]]] })).json();
    assert_eq!((several.as_array().unwrap().len(), &several[0]), (2, &one));
    // As Hugging Face's client reads it.
    assert_eq!(door.post("/", &json!({ "inputs": TEXTS[0] })).json()[0], one);
    assert_eq!(door.post("/v1/embeddings", &json!({ "input": "a" })).code(), "other-task");
    assert_eq!(door.post("/v1/completions", &json!({ "prompt": "a" })).code(), "other-task");
    assert!(door.get("/info").json()["model_type"]["classifier"]["id2label"]["0"].is_string());
    assert_eq!(door.get("/ledger").json()["task"], "classify");

    let open = Running::classifies(|config| config.answers = Some(Answers::Logits));
    let door = Door::open(&open, |_| ());
    let scores = door.post("/predict", &json!({ "inputs": TEXTS[0] })).json();
    let sum: f64 = scores.as_array().unwrap().iter().map(|class| class["score"].as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-6 && scores.as_array().unwrap().len() == 3);
    assert_eq!(scores[0]["label"], one[0]["label"]);
    let raw = door.post("/predict", &json!({ "inputs": TEXTS[0], "raw_scores": true })).json();
    assert_eq!(raw[0]["label"], scores[0]["label"]);
    // Three logits count as three texts.
    assert_eq!((door.total("passes"), door.total("counted")), (1, 3));
    let reply = Door::open(&Running::embeds(), |_| ()).post("/predict", &json!({ "inputs": "a" }));
    assert!(reply.status == 400 && reply.body.contains("/embed"));
}

/// Where several classes may be right: those above the threshold, or each with its own probability.
#[test]
fn several_classes() {
    let model = tiny_golden("multi-label");
    let of = |answers| Running::classifies(|config| (config.model, config.answers) = (model.clone(), answers));
    let texts = ["Hello world", "a", "The weather is lovely today."];
    let asked = json!({ "inputs": texts.map(|text| [text]) });
    let folder = Model::load(&model).unwrap();
    let names = folder.public.labels().unwrap();
    let clear = texts.map(|text| folder.embed(vec![folder.tokens(text, TooLong::Refuse).unwrap()]).unwrap().remove(0));
    assert!(clear.iter().flatten().all(|logit| logit.abs() > 0.02), "{clear:?}");
    let above = |threshold: f64| {
        clear.clone().map(|logits| {
            let all = names.iter().zip(&logits).filter(|(_, logit)| **logit > threshold);
            all.map(|(name, _)| json!({ "label": name, "score": null })).collect::<Value>()
        })
    };
    for (answers, threshold) in [(None, 0.0), (Some(Answers::Above(999)), 6.9)] {
        let server = of(answers);
        let door = Door::open(&server, |_| ());
        assert_eq!(door.post("/predict", &asked).json(), json!(above(threshold)), "{threshold}");
        // The bits of a text count as one.
        assert_eq!(door.total("counted"), 3);
    }
    assert_eq!(above(6.9), [json!([]), json!([]), json!([])]);
    let open = Door::open(&of(Some(Answers::Logits)), |_| ()).post("/predict", &asked).json();
    for (classes, logits) in open.as_array().unwrap().iter().zip(&clear) {
        assert_eq!(classes.as_array().unwrap().len(), 5);
        for class in classes.as_array().unwrap() {
            let place = names.iter().position(|name| class["label"] == *name).unwrap();
            assert!((class["score"].as_f64().unwrap() - ScoreFn::Sigmoid.of(logits[place])).abs() < 0.01, "{class}");
        }
    }
}

/// Texts in the order of their scores for a query, as each API writes them.
#[test]
fn reranking() {
    let server = Running::scores();
    let door = Door::open(&server, |_| ());
    let texts = ["the weather", "three months", "a"];
    let asked = json!({ "query": "notice period", "texts": texts });
    let found = door.post("/rerank", &asked).json();
    let found = found.as_array().unwrap();
    let scores: Vec<f64> = found.iter().map(|result| result["score"].as_f64().unwrap()).collect();
    assert!(found.len() == 3 && scores.is_sorted_by(|a, b| a >= b) && scores.iter().all(|s| (0.0..1.0).contains(s)));
    let model = Model::load(&tiny_golden("cross-encoder")).unwrap();
    for (result, score) in found.iter().zip(&scores) {
        let index = result["index"].as_u64().unwrap() as usize;
        let ids = model.public.pair(["notice period", texts[index]], TooLong::Refuse).unwrap();
        let logit = model.embed(vec![ids]).unwrap()[0][0];
        assert!((ScoreFn::Sigmoid.of(logit) - score).abs() < 0.01, "{logit} {score}");
    }
    // The same pairs again, which are kept, in the other form.
    let asked = json!({ "model": "x", "query": "notice period", "documents": ["the weather", { "text": "three months" }, "a"],
        "top_n": 2, "return_documents": true });
    for path in ["/rerank", "/v1/rerank", "/v2/rerank"] {
        let jina = door.post(path, &asked).json();
        assert_eq!(jina["results"].as_array().unwrap().len(), 2);
        assert_eq!(jina["results"][0]["index"], found[0]["index"]);
        assert_eq!(jina["results"][0]["relevance_score"], found[0]["score"]);
        assert!(
            jina["results"][0]["document"]["text"].is_string() && jina["usage"]["total_tokens"].as_u64().unwrap() > 9
        );
    }
    assert_eq!(server.counted("hushed_texts_total"), 3);
    let raw = door.post("/rerank", &json!({ "query": "notice period", "texts": texts, "raw_scores": true })).json();
    assert_eq!(raw[0]["index"], found[0]["index"]);
    assert!((ScoreFn::Sigmoid.of(raw[0]["score"].as_f64().unwrap()) - scores[0]).abs() < 1e-6);
    // A pair, and a list of them.
    let pair = door.post("/predict", &json!({ "inputs": ["notice period", "a"] })).json();
    assert_eq!((pair.as_array().unwrap().len(), &pair[0]["label"]), (1, &json!("LABEL_0")));
    let several =
        door.post("/predict", &json!({ "inputs": [["notice period", "a"], ["notice period", "the weather"]] }));
    assert_eq!(several.json()[0], pair);
    assert_eq!(server.counted("hushed_texts_total"), 3);

    for (wrong, code) in [
        (json!({ "texts": texts }), "missing"),
        (json!({ "query": "a" }), "missing"),
        (json!({ "query": "a", "texts": [] }), "missing"),
        (json!({ "query": "a", "documents": [1] }), "wrong-type"),
        (json!({ "query": "a", "texts": [""] }), "text-refused"),
        (json!({ "query": "a", "texts": ["b"], "instruction": "c" }), "unsupported"),
    ] {
        let reply = door.post("/v1/rerank", &wrong);
        assert!(reply.status == 400, "{wrong} {code}: {}", reply.body);
    }
    let classes = Door::open(&Running::classifies(|_| ()), |_| ()).post("/rerank", &asked);
    assert!(classes.status == 400 && classes.body.contains("/predict"));
    let embeds = Door::open(&Running::embeds(), |_| ()).post("/rerank", &asked);
    assert!(embeds.status == 400 && embeds.body.contains("/embed"));
}
