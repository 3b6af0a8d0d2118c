//! API keys with names: what each is shown, and what the operator's is shown.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use hushed_gateway::{Gateway, GatewayConfig};
use serde_json::{Value, json};

use crate::common::{Door, Reply, Running, write_private};

const FILE: &str =
    "\u{feff}operator the-key-of-the-operator\r\nann the-key-of-ann-herself\r\nthe-key-of-nobody-named\r\n";

fn get(door: &Door, path: &str, key: &str) -> Reply {
    let head = "Host: localhost\r\nConnection: close\r\n";
    door.send(&format!("GET {path} HTTP/1.1\r\n{head}Authorization: Bearer {key}\r\n\r\n"))
}

fn embed(door: &Door, text: &str, key: &str) {
    let header = format!("Authorization: Bearer {key}\r\n");
    assert_eq!(door.post_with("/embed", &json!({ "inputs": text }), &header).status, 200);
}

/// A user sees what left the machine of her own texts, and neither lengths nor times of others'.
#[test]
fn the_ledger_shows_a_key_its_own_passes() {
    let server = Running::embeds();
    let keys = server.folder.path().join("keys");
    write_private(&keys, FILE);
    let door = Door::open(&server, |config| config.api_keys = Some(keys));
    embed(&door, "a text of ann", "the-key-of-ann-herself");
    embed(&door, "one", "the-key-of-nobody-named");
    let ledger = |key: &str| get(&door, "/ledger", key).json();
    let tokens = |ledger: &Value| -> Vec<Value> {
        let lines = ledger["lines"].as_array().unwrap();
        lines.iter().filter(|line| line["what"] == "pass").map(|line| line["tokens"].clone()).collect()
    };
    let (ann, other) = (ledger("the-key-of-ann-herself"), ledger("the-key-of-nobody-named"));
    assert_eq!((tokens(&ann).len(), tokens(&other).len()), (1, 1));
    assert_ne!(tokens(&ann), tokens(&other));
    assert_eq!((ann["total"]["texts"].clone(), ann["total"]["sessions"].clone()), (json!(1), json!(0)));
    assert_eq!(ann["of"], "this key");
    let all = ledger("the-key-of-the-operator");
    assert_eq!((tokens(&all).len(), all["of"].clone()), (2, json!("everybody")));
    assert_eq!(all["total"]["sessions"], json!(1));
}

#[test]
fn metrics_name_the_keys_and_are_the_operators() {
    let server = Running::embeds();
    let keys = server.folder.path().join("keys");
    write_private(&keys, FILE);
    let door = Door::open(&server, |config| config.api_keys = Some(keys.clone()));
    embed(&door, "a text of ann", "the-key-of-ann-herself");
    embed(&door, "another of hers", "the-key-of-ann-herself");
    embed(&door, "one", "the-key-of-nobody-named");
    let refused = get(&door, "/metrics", "the-key-of-ann-herself");
    assert_eq!(refused.status, 403, "{}", refused.body);
    let text = get(&door, "/metrics", "the-key-of-the-operator").body;
    for line in [
        "hushed_gateway_key_passes_total{key=\"ann\"} 2",
        "hushed_gateway_key_passes_total{key=\"unnamed\"} 1",
        "hushed_gateway_key_counted_texts_total{key=\"ann\"} 2",
        "hushed_gateway_request_seconds_count{route=\"/embed\"} 3",
        "hushed_gateway_build_info{version=",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    assert!(!text.contains("certificate_expiry") && !text.contains("the-key-of"), "{text}");
    drop(door);

    // Without an operator's key each key reads the sums, and none reads another's.
    write_private(&keys, "ann the-key-of-ann-herself\nthe-key-of-nobody-named\n");
    let door = Door::open(&server, |config| config.api_keys = Some(keys));
    embed(&door, "one", "the-key-of-nobody-named");
    let text = get(&door, "/metrics", "the-key-of-ann-herself").body;
    assert!(text.contains("hushed_gateway_passes_total 1") && !text.contains("key_passes"), "{text}");
}

#[test]
fn a_file_of_keys_that_others_can_read_is_refused() {
    let server = Running::embeds();
    let keys = server.folder.path().join("keys");
    write_private(&keys, FILE);
    set_permissions(&keys, Permissions::from_mode(0o644)).unwrap();
    let mut config = GatewayConfig::new(server.client());
    config.api_keys = Some(keys);
    let error = Gateway::bind(&config).err().unwrap();
    assert_eq!((error.name(), error.category().exit_code()), ("not-private", 8));
}

/// A key with a limit is refused what goes beyond it, with the time until tomorrow; others are not. What was refused is
/// not counted.
#[test]
fn a_key_has_so_many_texts_a_day() {
    let server = Running::embeds();
    let keys = server.folder.path().join("keys");
    write_private(&keys, "ann the-key-of-ann-herself texts=2\nthe-key-of-nobody-named\n");
    let door = Door::open(&server, |config| config.api_keys = Some(keys));
    let ask = |texts: Value, key: &str| {
        door.post_with("/embed", &json!({ "inputs": texts }), &format!("Authorization: Bearer {key}\r\n"))
    };
    let refused = ask(json!(["one", "two", "three"]), "the-key-of-ann-herself");
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(refused.body.contains("2 more today, and the request has 3"), "{}", refused.body);
    assert!(refused.head.to_ascii_lowercase().contains("retry-after: "), "{}", refused.head);
    assert_eq!(ask(json!(["one", "two"]), "the-key-of-ann-herself").status, 200);
    assert_eq!(ask(json!("three"), "the-key-of-ann-herself").status, 429);
    assert_eq!(ask(json!(["one", "two", "three"]), "the-key-of-nobody-named").status, 200);
}
