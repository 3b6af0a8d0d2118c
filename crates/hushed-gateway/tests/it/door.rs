//! Who is let in.

use std::io::Write;

use serde_json::json;

use crate::common::{Door, Running, posted, read_reply, write_private};

const BODY: &str = "{\"input\": \"a\"}";

#[test]
fn hosts_origins_and_kinds_of_content() {
    let server = Running::embeds();
    let door = Door::open(&server, |config| {
        config.hosts = vec!["Gateway.example.org".to_owned()];
        config.origins = vec!["https://Friend.example:443/".to_owned()];
    });
    let port = door.address.unwrap().port();
    let get = |host: &str, more: &str| {
        let request = format!("GET /info HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n");
        door.send(&request).status
    };
    for host in ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8080", "gateway.example.org:443"] {
        assert_eq!(get(host, ""), 200, "{host}");
    }
    for host in
        ["evil.example", "evil.example:8080", "localhost.evil.example", "", "127.0.0.2", "localhost@evil.example"]
    {
        assert_eq!(get(host, ""), 403, "{host}");
    }
    assert_eq!(get("localhost", "Host: evil.example\r\n"), 403);
    let nameless = |path: &str| door.send(&format!("GET {path} HTTP/1.0\r\n\r\n")).status;
    assert_eq!(nameless("/info"), 403);
    for polled in ["/health", "/ready", "/ping"] {
        assert_eq!(nameless(polled), 200, "{polled}");
        assert_eq!(door.send(&format!("GET {polled} HTTP/1.0\r\nHost: evil.example\r\n\r\n")).status, 403);
    }
    let elsewhere = "GET http://evil.example/info HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(door.send(elsewhere).status, 403);

    let own = format!("Origin: http://localhost:{port}\r\n");
    let from = |origin: &str| get(&format!("localhost:{port}"), origin);
    assert_eq!(from(&own), 200);
    assert_eq!(from("Origin: https://friend.example\r\n"), 200);
    for origin in ["Origin: https://evil.example\r\n", "Origin: null\r\n", "Origin: http://localhost:1\r\n"] {
        assert_eq!(from(origin), 403, "{origin}");
    }

    // A page elsewhere can send this without asking first, but not JSON.
    let plain = posted("/v1/embeddings", BODY, "").replace("application/json", "text/plain");
    assert_eq!(door.send(&plain).status, 415);
    let named = posted("/v1/embeddings", BODY, "").replace("application/json", "Application/JSON; charset=utf-8");
    assert_eq!(door.send(&named).status, 200);
    let evil = posted("/v1/embeddings", BODY, "").replace("Host: localhost", "Host: evil.example");
    let reply = door.send(&evil);
    assert_eq!((reply.status, reply.code().as_str()), (403, "host"));
    let reply = door.send(&evil.replace("/v1/embeddings", "/embed"));
    assert!(reply.json()["error"].is_string(), "each API's own shape");

    assert_eq!(door.get("/v1/embeddings").status, 405);
    assert_eq!(door.get("/v1/nothing").code(), "route");
    assert_eq!(server.counted("hushed_texts_total"), 1);
}

#[test]
fn pages_of_a_friend_may_ask_and_others_may_not() {
    let server = Running::embeds();
    let keys = server.folder.path().join("keys");
    write_private(&keys, "a-key-of-sixteen-bytes");
    let door = Door::open(&server, |config| {
        config.origins = vec!["https://friend.example".to_owned()];
        config.api_keys = Some(keys);
    });
    let asks = |origin: &str| {
        door.send(&format!(
            "OPTIONS /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nOrigin: {origin}\r\n\
             Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization, content-type\r\n\r\n"
        ))
    };
    let friend = asks("https://friend.example");
    let header = |name| friend.header(name);
    assert_eq!(friend.status, 204);
    assert_eq!(header("access-control-allow-origin"), Some("https://friend.example"));
    assert_eq!(header("access-control-allow-headers"), Some("authorization, content-type"));
    let other = asks("https://evil.example");
    assert_eq!((other.status, other.header("access-control-allow-origin")), (403, None));
    let own = asks("http://localhost");
    assert_eq!((own.status, own.header("access-control-allow-origin")), (405, None));

    let key = "Authorization: Bearer a-key-of-sixteen-bytes\r\nOrigin: https://friend.example\r\n";
    let answer = door.send(&posted("/v1/embeddings", BODY, key));
    assert_eq!((answer.status, answer.header("access-control-allow-origin")), (200, Some("https://friend.example")));
}

#[test]
fn a_body_is_bounded() {
    let server = Running::embeds();
    let door = Door::open(&server, |_| ());
    let large = json!({ "input": "a".repeat(2 << 20) });
    let reply = door.post("/v1/embeddings", &large);
    assert_eq!((reply.status, reply.code().as_str()), (413, "body"));
    // Chunks, whose number is not announced.
    let mut socket = door.connect();
    let head = "POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\
                Connection: close\r\n\r\n";
    socket.write_all(head.as_bytes()).unwrap();
    let chunk = format!("10000\r\n{}\r\n", "a".repeat(0x10000));
    for _ in 0..40 {
        if socket.write_all(chunk.as_bytes()).is_err() {
            break;
        }
    }
    assert_eq!(read_reply(&mut socket).status, 413);
    assert_eq!(door.post("/embed", &json!({ "inputs": "a" })).status, 200);
}

#[test]
fn keys() {
    let server = Running::embeds();
    let keys = server.folder.path().join("keys");
    write_private(&keys, "# two\nfirst-key-of-sixteen\n\nsecond-key-of-sixteen\n");
    let door = Door::open(&server, |config| config.api_keys = Some(keys));
    let post = |key: &str| door.send(&posted("/v1/embeddings", BODY, key)).status;
    assert_eq!(post(""), 401);
    assert_eq!(post("Authorization: Bearer first-key-of-sixteen\r\n"), 200);
    assert_eq!(post("Authorization: Bearer second-key-of-sixteen\r\n"), 200);
    for wrong in ["Bearer first-key-of-sixtee", "Bearer ", "first-key-of-sixteen", "Basic first-key-of-sixteen"] {
        assert_eq!(post(&format!("Authorization: {wrong}\r\n")), 401, "{wrong}");
    }
    for fine in ["bearer first-key-of-sixteen", "BEARER   first-key-of-sixteen ", "Bearer\tfirst-key-of-sixteen"] {
        assert_eq!(post(&format!("Authorization: {fine}\r\n")), 200, "{fine}");
    }
    assert_eq!(post("Authorization: Bearerfirst-key-of-sixteen\r\n"), 401);
    // The page can ask for the key; its contents cannot be had without one.
    assert_eq!((door.get("/").status, door.get("/health").status), (200, 200));
    let head = "HEAD /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(door.send(head).status, 200);
    assert_eq!((door.get("/ledger").status, door.get("/metrics").status), (401, 401));
    assert_eq!(door.post("/", &json!({ "inputs": "a" })).status, 401);
}

#[test]
fn the_page_is_whole_and_loads_nothing() {
    let server = Running::embeds();
    let door = Door::open(&server, |_| ());
    let page = door.get("/");
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'sha256-"), "{policy}");
    assert!(!policy.contains("unsafe") && !policy.contains("http"));
    assert!(page.header("content-type").unwrap().starts_with("text/html"));
    assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
    assert!(page.body.contains("What left this machine"));
    assert!(page.header("access-control-allow-origin").is_none());
}

/// A file of digests holds no key: who reads it can show none. Keys are read again while the gateway runs.
#[test]
fn keys_may_be_hashed_and_are_read_again() {
    let server = Running::embeds();
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    // SHA-256 of "the-key-of-the-first-user".
    let digest = hushed_serve::Token::from_bytes(b"the-key-of-the-first-user").unwrap().digest();
    write_private(&keys, format!("sha256:{digest}\n"));
    let reload = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let door = Door::open(&server, |config| {
        config.api_keys = Some(keys.clone());
        config.reload = std::sync::Arc::clone(&reload);
    });
    let ask = |key: &str| {
        let header = format!("Authorization: Bearer {key}\r\n");
        door.post_with("/embed", &serde_json::json!({ "inputs": "a" }), &header).status
    };
    assert_eq!(ask("the-key-of-the-first-user"), 200);
    assert_eq!(ask(&format!("sha256:{digest}")), 401);
    let again = |text: &str| {
        write_private(&keys, text);
        reload.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    again("the-key-of-the-second-user\n");
    crate::common::eventually("the second key", || ask("the-key-of-the-second-user") == 200);
    assert_eq!(ask("the-key-of-the-first-user"), 401);
    // A file that cannot be used changes nothing.
    again("short\n");
    crate::common::eventually("it was read", || !reload.load(std::sync::atomic::Ordering::SeqCst));
    assert_eq!(ask("the-key-of-the-second-user"), 200);
}
