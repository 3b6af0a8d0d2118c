//! The queue in front of a server: what runs, what does not, and what happens when the server goes away.

use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::common::{Door, Running, eventually, posted, read_reply};

#[test]
fn what_outlasts_its_client_is_refused_and_nothing_runs() {
    let server = Running::embeds();
    let door = Door::open(&server, |config| config.max_waiting = 2048);
    let texts: Vec<String> = (0..1000).map(|i| format!("text {i} of a thousand")).collect();
    let body = json!({ "input": texts });
    let reply = door.post_with("/v1/embeddings", &body, "x-stainless-read-timeout: 1.0\r\n");
    assert_eq!((reply.status, reply.code().as_str()), (413, "too-slow"));
    let message = reply.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("of 1000 would be ready"), "{message}");
    // One text is too much for a client that waits for a millisecond.
    let reply = door.post_with("/embed", &json!({ "inputs": "a" }), "x-stainless-read-timeout: 0.001\r\n");
    assert_eq!(reply.status, 413);
    assert!(reply.json()["error"].as_str().unwrap().contains("not even the first"));
    assert_eq!(door.total("passes"), 0);
    assert_eq!(server.counted("hushed_texts_total"), 0);
    // The default applies to a client that does not say.
    assert_eq!(door.post("/embed", &json!({ "inputs": "a" })).status, 200);
    let patient = Door::open(&server, |config| config.patience = std::time::Duration::from_millis(1));
    assert_eq!(patient.post("/embed", &json!({ "inputs": "a" })).status, 413);
}

#[test]
fn more_than_the_queue_holds() {
    let server = Running::embeds();
    let door = Door::open(&server, |config| config.max_waiting = 2);
    let reply = door.post("/v1/embeddings", &json!({ "input": ["a", "b", "c"] }));
    assert_eq!((reply.status, reply.code().as_str()), (413, "too-many-texts"));
    assert_eq!(door.post("/v1/embeddings", &json!({ "input": ["a", "b"] })).status, 200);
}

#[test]
fn retries_cost_one_pass() {
    let server = Running::embeds();
    let door = Door::open(&server, |_| ());
    let body = json!({ "input": "a text that is asked for again and again" });
    // A client that goes away before the answer comes.
    let mut gone = door.connect();
    gone.write_all(posted("/v1/embeddings", &body.to_string(), "").as_bytes()).unwrap();
    eventually("the pass begins", || door.get("/info").json()["running"] == json!(1) || door.total("passes") == 1);
    drop(gone);
    // Its retries, two at once and one later.
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert_eq!(door.post("/v1/embeddings", &body).status, 200));
        }
    });
    assert_eq!(door.post("/v1/embeddings", &body).status, 200);
    assert_eq!(door.total("passes"), 1);
    assert_eq!(server.counted("hushed_texts_total"), 1);
}

#[test]
fn a_client_that_goes_leaves_the_queue() {
    let server = Running::embeds();
    let door = Door::open(&server, |config| config.batch = 1);
    let texts: Vec<String> = (0..30).map(|i| format!("text {i}")).collect();
    thread::scope(|scope| {
        let first = scope.spawn(|| door.post("/v1/embeddings", &json!({ "input": texts })));
        let waiting = || door.get("/info").json()["waiting"].as_u64().unwrap();
        eventually("the first waits", || waiting() > 20);
        let mut gone = door.connect();
        let request = posted("/embed", "{\"inputs\": \"nobody wants this\"}", "");
        gone.write_all(request.as_bytes()).unwrap();
        eventually("the second waits", || door.total("passes") + waiting() >= 30);
        drop(gone);
        assert_eq!(first.join().unwrap().status, 200);
    });
    eventually("all is done", || {
        let info = door.get("/info").json();
        (&info["waiting"], &info["running"]) == (&json!(0), &json!(0))
    });
    assert_eq!(server.counted("hushed_texts_total"), 30);
}

#[test]
fn calls_at_once_share_passes() {
    let server = Running::embeds();
    let door = Door::open(&server, |_| ());
    thread::scope(|scope| {
        for i in 0..8 {
            let door = &door;
            scope.spawn(move || {
                let body = json!({ "input": format!("text {i} of some") });
                let reply = door.post("/v1/embeddings", &body);
                assert_eq!(reply.status, 200, "{}", reply.body);
            });
        }
    });
    assert_eq!(server.counted("hushed_texts_total"), 8);
    // The first may run alone; one pass per request would be 8.
    let passes = door.total("passes");
    assert!(passes < 8, "{passes} passes");
    assert_eq!(door.total("sessions"), 1);
}

#[test]
fn a_server_that_vanishes_is_a_typed_error_and_the_next_request_works() {
    let server = Running::embeds();
    let door = Door::open(&server, |_| ());
    let ask = |text: &str| door.post("/v1/embeddings", &json!({ "input": text }));
    assert_eq!(ask("a").status, 200);
    let (folder, address) = server.end();
    for text in ["b", "c"] {
        let reply = ask(text);
        assert_eq!((reply.status, reply.code().as_str()), (503, "unreachable"), "{}", reply.body);
        assert!(reply.header("retry-after").is_some());
    }
    // Nobody tries again within the time that was named.
    let failures = door.total("failures");
    let again = ask("d");
    assert_eq!((again.status, again.code().as_str()), (503, "unreachable"));
    assert_eq!(door.total("failures"), failures);
    assert_eq!(door.get("/ready").status, 503);
    // Earlier answers are still there.
    assert_eq!(ask("a").status, 200);

    let server = Running::again(folder, address);
    assert_eq!(door.get("/ready").status, 200);
    let reply = ask("b");
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(server.counted("hushed_texts_total"), 1);
    assert!(door.total("failures") >= 1);
}

/// Whoever the session's place was given to, and however the server ended, nothing of a text was sent: another session
/// is opened and nobody is told.
#[test]
fn a_session_that_was_over_is_opened_again_unseen() {
    let server = Running::embeds();
    let door = Door::open(&server, |_| ());
    let ask = |text: &str| door.post("/v1/embeddings", &json!({ "input": text })).status;
    assert_eq!(ask("a"), 200);
    let (folder, address) = server.end();
    let server = Running::again(folder, address);
    assert_eq!(ask("b"), 200);
    assert_eq!((door.total("sessions"), door.total("failures")), (2, 0));
    assert_eq!(server.counted("hushed_texts_total"), 1);
}

#[test]
fn a_gateway_without_work_holds_no_session() {
    let server = Running::embeds();
    let door = Door::open(&server, |_| ());
    eventually("the look is over", || server.counted("hushed_sessions_running") == 0);
    assert_eq!((door.total("sessions"), door.get("/ready").status), (0, 200));
    assert_eq!(door.post("/embed", &json!({ "inputs": "a" })).status, 200);
    assert_eq!(server.counted("hushed_sessions_running"), 1);
}

#[test]
fn a_gateway_that_is_stopped_answers_what_is_under_way() {
    let server = Running::embeds();
    let door = Door::open(&server, |config| {
        config.batch = 1;
        config.drain = Duration::from_secs(120);
    });
    let texts: Vec<String> = (0..10).map(|i| format!("text {i}")).collect();
    let mut socket = door.connect();
    socket.write_all(posted("/v1/embeddings", &json!({ "input": texts }).to_string(), "").as_bytes()).unwrap();
    eventually("it runs", || door.get("/info").json()["running"] == json!(1));
    drop(door);
    assert_eq!(read_reply(&mut socket).status, 200);
    assert_eq!(server.counted("hushed_texts_total"), 10);
}

#[test]
fn a_gateway_that_is_stopped_tells_who_waits() {
    let server = Running::embeds();
    let door = Door::open(&server, |config| config.batch = 1);
    let texts: Vec<String> = (0..30).map(|i| format!("text {i}")).collect();
    let body = json!({ "input": texts }).to_string();
    let mut socket = door.connect();
    socket.write_all(posted("/v1/embeddings", &body, "").as_bytes()).unwrap();
    eventually("it runs", || door.get("/info").json()["running"] == json!(1));
    drop(door);
    let reply = read_reply(&mut socket);
    assert_eq!((reply.status, reply.code().as_str()), (503, "stopping"));
    assert!(server.counted("hushed_texts_total") < 30);
}

/// A list that outlasts its client is worked through while the connection is kept alive, and what was done for a client
/// that went is there when it comes again.
#[test]
fn a_long_list_is_worked_through() {
    let server = Running::embeds();
    let door = Door::open(&server, |config| config.max_waiting = 2048);
    let texts: Vec<String> = (0..100).map(|i| format!("text {i} of a long list")).collect();
    let body = json!({ "input": texts });
    // A client that waits for a second or less is told how long it takes, and which settings to change.
    let refused = door.post_with("/v1/embeddings", &body, "x-stainless-read-timeout: 0.01\r\n");
    let message = refused.json()["error"]["message"].as_str().unwrap().to_owned();
    for setting in ["timeout", "takes about"] {
        assert!(message.contains(setting), "{message}");
    }
    let fits = door.post_with("/v1/embeddings", &body, "x-stainless-read-timeout: 0.9\r\n");
    if fits.status == 413 && !fits.body.contains("not even the first") {
        assert!(fits.body.contains("chunk_size=") && fits.body.contains("embed_batch_size="), "{}", fits.body);
    }
    let seconds: f64 = message.split("about ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let patience = format!("x-stainless-read-timeout: {}\r\n", (seconds * 0.9).max(1.01));
    let mut gone = door.connect();
    gone.write_all(posted("/v1/embeddings", &body.to_string(), &patience).as_bytes()).unwrap();
    // Not announced by its length: its head is sent before the answer is there.
    gone.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        gone.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    assert!(head.contains("transfer-encoding: chunked"), "{head}");
    eventually("some are done", || door.total("texts") >= 16);
    drop(gone);
    let reply = door.post_with("/v1/embeddings", &body, &patience);
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(reply.json()["data"].as_array().unwrap().len(), 100);
    // Each was run once.
    assert_eq!(server.counted("hushed_texts_total"), 100);
}
