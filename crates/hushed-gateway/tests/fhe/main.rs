//! A gateway to a server that computes under encryption, with a tiny model and an insecure ring. Runs keep all cores
//! busy, so they are separate from the tests in `it`.

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "each binary uses its own part")]
mod common;
#[path = "../../../hushed-serve/tests/common/fhe_server.rs"]
mod fhe_server;
#[path = "../../../hushed-serve/tests/common/offered.rs"]
mod offered;

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use common::{Reply, eventually, posted, read_reply, write_private};
use fhe_server::{Running, config};
use hushed_gateway::{BatchConfig, BatchGateway, GatewayConfig, GatewayError};
use hushed_model::{Model, TooLong, cosine};
use offered::Offered;
use serde_json::{Value, json};

/// A running gateway, stopped and joined on drop.
struct Gateway {
    address: String,
    model: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), GatewayError>>>,
}

impl Gateway {
    fn open(server: &Running, work: &Path, change: impl FnOnce(&mut BatchConfig)) -> Gateway {
        let mut config = batch_config(server, work);
        change(&mut config);
        let gateway = BatchGateway::bind(config).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let raised = Arc::clone(&stop);
        Gateway {
            address: gateway.address().unwrap().to_string(),
            model: gateway.model_name().to_owned(),
            stop,
            thread: Some(thread::spawn(move || gateway.run(&raised))),
        }
    }

    fn send(&self, request: &str) -> Reply {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        let _ = socket.write_all(request.as_bytes());
        read_reply(&mut socket)
    }

    fn ask(&self, method: &str, path: &str, key: &str) -> Reply {
        let close = "Host: localhost\r\nConnection: close\r\n";
        self.send(&format!("{method} {path} HTTP/1.1\r\n{close}{key}\r\n"))
    }

    fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, "")
    }

    fn post(&self, path: &str, body: &Value) -> Reply {
        self.send(&posted(path, &body.to_string(), ""))
    }

    /// Uploads a file as OpenAI's client does.
    fn upload(&self, file: &str, purpose: &str, key: &str) -> Reply {
        let body = format!(
            "--edge\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\n{purpose}\r\n\
             --edge\r\nContent-Disposition: form-data; name=\"file\"; filename=\"in.jsonl\"\r\n\
             Content-Type: application/jsonl\r\n\r\n{file}\r\n--edge--\r\n"
        );
        self.send(&format!(
            "POST /v1/files HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{key}\
             Content-Type: multipart/form-data; boundary=edge\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ))
    }

    /// Creates a batch of these lines and returns its id.
    fn batch(&self, lines: &[Value]) -> String {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let file = self.upload(&lines, "batch", "");
        assert_eq!(file.status, 200, "{}", file.body);
        let body = json!({
            "input_file_id": file.json()["id"], "endpoint": "/v1/embeddings", "completion_window": "24h",
        });
        let made = self.post("/v1/batches", &body);
        assert_eq!(made.status, 200, "{}", made.body);
        made.json()["id"].as_str().unwrap().to_owned()
    }

    /// A batch, once it is no longer in progress.
    fn ended(&self, id: &str) -> Value {
        let get = || self.get(&format!("/v1/batches/{id}")).json();
        eventually("the batch ends", || get()["status"] != "in_progress");
        get()
    }

    /// The lines of a file.
    fn lines(&self, id: &Value) -> Vec<Value> {
        let path = format!("/v1/files/{}/content", id.as_str().unwrap());
        let body = self.get(&path).body;
        body.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

fn batch_config(server: &Running, work: &Path) -> BatchConfig {
    BatchConfig {
        gateway: GatewayConfig::new(server.client()),
        remote: server.remote(work.join("keys")),
        gather: Duration::from_secs(2),
    }
}

fn line(id: &str, body: Value) -> Value {
    json!({ "custom_id": id, "method": "POST", "url": "/v1/embeddings", "body": body })
}

/// The number of jobs that the server has had.
fn jobs(work: &Path) -> usize {
    fs::read_dir(work.join("store/owners/anyone/jobs")).map_or(0, Iterator::count)
}

#[test]
fn batches_of_several_clients_are_one_encrypted_batch() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let server = Running::start(&config(offered, work));
    let gateway = Gateway::open(&server, work, |_| ());
    let first = gateway.batch(&[
        line("one", json!({ "input": "the private world", "model": gateway.model })),
        line("two", json!({ "input": ["a key", "the sea"], "encoding_format": "base64" })),
        line("long", json!({ "input": "a ".repeat(40) })),
        line("ids", json!({ "input": [1, 2] })),
        line("other", json!({ "input": "a", "dimensions": 7 })),
    ]);
    let second = gateway.batch(&[line("one", json!({ "input": "hello" }))]);
    let [first, second] = [first, second].map(|id| gateway.ended(&id));
    assert_eq!((&first["status"], &second["status"]), (&json!("completed"), &json!("completed")));
    assert_eq!(jobs(work), 1);
    let counts = json!({ "total": 5, "completed": 2, "failed": 3 });
    assert_eq!(first["request_counts"], counts);
    assert!(second["error_file_id"].is_null());

    let model = Model::load(&offered.path("model")).unwrap();
    let clear = |text: &str| {
        let ids = model.tokens(text, TooLong::Refuse).unwrap();
        model.embed(vec![ids]).unwrap().remove(0)
    };
    let found = gateway.lines(&first["output_file_id"]);
    let answered: Vec<_> = found.iter().map(|l| l["custom_id"].clone()).collect();
    assert_eq!(answered, ["one", "two"]);
    let response = &found[0]["response"];
    assert_eq!((&response["status_code"], &found[0]["error"]), (&json!(200), &Value::Null));
    let numbers = response["body"]["data"][0]["embedding"].as_array().unwrap();
    let numbers: Vec<f64> = numbers.iter().map(|x| x.as_f64().unwrap()).collect();
    assert!(cosine(&numbers, &clear("the private world")) > 0.998);
    assert_eq!(response["body"]["usage"]["total_tokens"], 5);
    assert!(found[1]["response"]["body"]["data"][1]["embedding"].is_string());
    let other = gateway.lines(&second["output_file_id"]);
    let numbers = other[0]["response"]["body"]["data"][0]["embedding"].as_array().unwrap();
    let numbers: Vec<f64> = numbers.iter().map(|x| x.as_f64().unwrap()).collect();
    assert!(cosine(&numbers, &clear("hello")) > 0.998);
    // Faults of single requests are reported for those alone, in words that contain no text.
    let refused = gateway.lines(&first["error_file_id"]);
    let why = |line: &Value| {
        let response = &line["response"];
        assert_eq!(response["status_code"], 400);
        (line["custom_id"].clone(), response["body"]["error"]["code"].clone())
    };
    let why: Vec<_> = refused.iter().map(why).collect();
    let expected = [("long", "context_length_exceeded"), ("ids", "token-ids"), ("other", "unsupported")];
    assert_eq!(why, expected.map(|(id, code)| (json!(id), json!(code))));
    // Nothing of the texts is left in the key folder except what decrypts later replies.
    let kept = fs::read_dir(work.join("keys/jobs")).unwrap().count();
    assert_eq!(kept, 1, "the lock");
}

#[test]
fn what_is_no_batch_is_refused_and_nothing_is_sent() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let server = Running::start(&config(offered, work));
    let keys = work.join("api-keys");
    write_private(&keys, "a-key-of-the-first\na-key-of-the-second\n");
    let [first, second] = ["first", "second"].map(|who| format!("Authorization: Bearer a-key-of-the-{who}\r\n"));
    let gateway = Gateway::open(&server, work, |config| {
        config.gather = Duration::from_secs(3600);
        config.gateway.max_waiting = 3;
    });
    for path in ["/v1/embeddings", "/v1/completions", "/embed", "/"] {
        let refused = gateway.post(path, &json!({ "input": "a", "inputs": "a" }));
        assert_eq!(refused.status, 400, "{path}");
        assert!(refused.body.contains("/v1/batches"), "{path}: {}", refused.body);
    }
    assert_eq!(gateway.get("/v1/models").json()["data"][0]["id"], gateway.model.as_str());
    assert_eq!(gateway.get("/v1/files/file-none").code(), "not_found");
    assert_eq!(gateway.get("/v1/batches/batch_none").status, 404);
    assert_eq!(gateway.upload("{}", "fine-tune", "").code(), "unsupported");
    assert_eq!(gateway.post("/v1/files", &json!({})).code(), "form");
    let elsewhere = gateway.upload("{}", "batch", "Origin: https://evil.example\r\n");
    assert_eq!(elsewhere.status, 403);

    // A line that is not a request fails the whole batch, and its number is given.
    let fine = line("a", json!({ "input": "a" }));
    let mut get = fine.clone();
    get["method"] = json!("GET");
    let mut elsewhere = line("b", json!({}));
    elsewhere["url"] = json!("/v1/completions");
    let file = format!("{fine}\n\n{fine}\n{get}\n{elsewhere}\n{{secret\n");
    let input = gateway.upload(&file, "batch", "").json()["id"].clone();
    let wanted = |input: &Value, endpoint: &str| json!({ "input_file_id": input, "endpoint": endpoint });
    let made = gateway.post("/v1/batches", &wanted(&input, "/v1/embeddings")).json();
    assert_eq!(made["status"], "failed");
    let errors = made["errors"]["data"].as_array().unwrap();
    let told: Vec<_> = errors.iter().map(|e| (e["code"].clone(), e["line"].clone())).collect();
    let expected =
        [("duplicate_custom_id", 3), ("invalid_request", 4), ("invalid_request", 5), ("invalid_json_line", 6)];
    assert_eq!(told, expected.map(|(code, line)| (json!(code), json!(line))));
    assert!(!made.to_string().contains("secret"));
    let other = gateway.post("/v1/batches", &wanted(&input, "/v1/completions"));
    assert_eq!(other.code(), "unsupported");
    let empty = gateway.upload("\n", "batch", "").json()["id"].clone();
    let made = gateway.post("/v1/batches", &wanted(&empty, "/v1/embeddings")).json();
    assert_eq!(made["errors"]["data"][0]["code"], "empty_file");

    // A waiting batch can be cancelled, which makes room for another.
    let three = line("three", json!({ "input": ["a", "b", "c"] }));
    let waits = gateway.batch(std::slice::from_ref(&three));
    let input = gateway.upload(&three.to_string(), "batch", "").json()["id"].clone();
    let full = gateway.post("/v1/batches", &wanted(&input, "/v1/embeddings"));
    assert_eq!((full.status, full.code().as_str()), (429, "queue-full"));
    let cancel = format!("/v1/batches/{waits}/cancel");
    assert_eq!(gateway.post(&cancel, &json!({})).json()["status"], "cancelled");
    let again = gateway.batch(&[three]);
    assert_eq!(gateway.get("/v1/batches").json()["data"].as_array().unwrap().len(), 4);
    let path = format!("/v1/files/{}", input.as_str().unwrap());
    assert_eq!(gateway.ask("DELETE", &path, "").json()["deleted"], true);
    assert_eq!(gateway.get(&path).status, 404);
    assert_eq!(gateway.get(&format!("/v1/batches/{again}")).json()["status"], "in_progress");
    drop(gateway);
    assert_eq!(jobs(work), 0);

    // Callers with different keys have nothing in common.
    let gateway = Gateway::open(&server, work, |config| {
        config.gateway.api_keys = Some(keys);
    });
    let file = gateway.upload("{}", "batch", &first).json()["id"].clone();
    let path = format!("/v1/files/{}/content", file.as_str().unwrap());
    assert_eq!(gateway.ask("GET", &path, &first).body, "{}");
    assert_eq!(gateway.ask("GET", &path, &second).status, 404);
    assert_eq!(gateway.ask("GET", &path, "").status, 401);
    assert_eq!(gateway.ask("GET", "/v1/files", &second).json()["data"], json!([]));
}

/// After a wrong canary nothing more is sent: batches fail on their own.
#[test]
fn a_wrong_canary_fails_its_batches_and_all_later_ones() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let (mut plan, _) = hushed_serve::fhe::read_plan(&offered.plan()).unwrap();
    let canary = plan.canary.as_mut().unwrap();
    canary.embedding.iter_mut().for_each(|x| *x = -*x);
    let mut config = config(offered, work);
    config.context.plan = work.join("plan.json");
    hushed_serve::fhe::write_plan(&config.context.plan, &plan).unwrap();
    let server = Running::start(&config);
    let gateway = Gateway::open(&server, work, |config| config.gather = Duration::ZERO);
    for (id, code) in [("one", "canary"), ("two", "keys-retired")] {
        let ended = gateway.ended(&gateway.batch(&[line(id, json!({ "input": "a key" }))]));
        assert_eq!(ended["status"], "failed");
        assert_eq!(ended["errors"]["data"][0]["code"], code);
        assert!(ended["output_file_id"].is_null());
    }
    assert_eq!(jobs(work), 1);
    drop(gateway);
    // Another gateway with these keys does not start either.
    let refused = BatchGateway::bind(batch_config(&server, work));
    assert_eq!(refused.err().unwrap().name(), "keys-retired");
}
