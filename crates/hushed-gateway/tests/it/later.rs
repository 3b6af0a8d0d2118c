//! Text continued with products prepared ahead of its tokens, and with drafts.

use std::io::{Read, Write};

use hushed_gateway::{Gateway, GatewayConfig};
use hushed_serve::{Category, Client, Drafted, GenerateOptions, ServerConfig};
use serde_json::{Value, json};

use crate::common::{Door, Running, eventually, posted};
use crate::completions::{PROMPT, events, expected};

fn asked(max_tokens: usize) -> Value {
    json!({ "prompt": PROMPT, "max_tokens": max_tokens, "temperature": 0 })
}

/// The text of an answer.
fn text(door: &Door, body: &Value) -> String {
    let reply = door.post("/v1/completions", body);
    assert_eq!(reply.status, 200, "{}", reply.body);
    let text = &reply.json()["choices"][0]["text"];
    text.as_str().unwrap().to_owned()
}

fn totals<const N: usize>(door: &Door, names: [&str; N]) -> [u64; N] {
    names.map(|name| door.total(name))
}

fn allowing(ahead: u16, drafts: u16) -> impl FnOnce(&mut ServerConfig) {
    move |config| {
        config.max_ahead = ahead;
        config.max_drafts = drafts;
    }
}

/// The text is the same; the ledger has what was prepared, each pass once, and what the server counted.
#[test]
fn products_are_made_before_an_answer() {
    let plain = Running::generates();
    let text_of_six = expected(&plain, 6);
    let by_plain = Door::open(&plain, |_| ());
    assert_eq!(text(&by_plain, &asked(6)), text_of_six);
    // Two answers of six tokens are all that a session accepts.
    let server = Running::allows(|config| {
        allowing(3, 0)(config);
        config.max_texts = 12;
    });
    let door = Door::open(&server, |config| config.ahead = 3);
    let names = ["sessions", "passes", "ahead", "texts", "counted", "failures"];
    assert_eq!(text(&door, &asked(6)), text_of_six);
    // Five later passes: three products, then the two that are left.
    assert_eq!(totals(&door, names), [1, 6, 5, 6, 6, 0]);
    let lines = door.get("/ledger").json()["lines"].clone();
    let lines: Vec<(&str, &Value, u64)> = lines
        .as_array()
        .unwrap()
        .iter()
        .rev()
        .map(|line| {
            let counted = line["counted"].as_u64().unwrap();
            (line["what"].as_str().unwrap(), &line["tokens"], counted)
        })
        .collect();
    let what: Vec<&str> = lines.iter().map(|line| line.0).collect();
    let expected = ["session", "ahead", "pass", "pass", "pass", "pass", "ahead", "pass", "pass"];
    assert_eq!(what, expected);
    assert_eq!((lines[1].1, lines[1].2), (&json!([3]), 3));
    assert_eq!((lines[3].1, lines[3].2), (&json!([1]), 0));
    assert_eq!((lines[6].1, lines[6].2), (&json!([2]), 2));
    // Its passes send less than those without; products are in the sums too.
    let bytes = |door: &Door, place: usize| {
        let lines = door.get("/ledger").json()["lines"].clone();
        let line = &lines[place];
        assert_eq!(line["what"], "pass");
        line["bytes_sent"].as_u64().unwrap()
    };
    assert!(bytes(&door, 0) < bytes(&by_plain, 0) / 2);

    // What one answer leaves, another uses: it is counted already, and made only once.
    let first: String = text_of_six.chars().take(1).collect();
    let mut stopped = asked(4);
    stopped["stop"] = json!(first);
    assert_eq!(text(&door, &stopped), "");
    let [passes, ahead, counted] = totals(&door, ["passes", "ahead", "counted"]);
    assert_eq!((ahead, counted), (8, 6 + 3 + passes - 6));
    assert!(text_of_six.starts_with(&text(&door, &asked(3))));
    let after = totals(&door, ["sessions", "ahead", "failures"]);
    assert_eq!(after, [1, 8, 0]);
    // The session's limit is the server's: another session begins, with nothing prepared.
    assert_eq!(text(&door, &asked(6)), text_of_six);
    assert_eq!(totals(&door, ["sessions", "ahead", "failures"]), [2, 13, 0]);
}

/// What the server itself gives with `draft` drafts, and what became of them.
fn drafted(server: &Running, draft: u16, max_tokens: usize) -> (String, Drafted) {
    let mut client = Client::connect(&server.client()).unwrap();
    let options = GenerateOptions { max_tokens, draft, ..GenerateOptions::default() };
    let mut generation = client.generate(PROMPT, &options).unwrap();
    let text = generation.by_ref().map(|token| token.unwrap().text);
    let (text, drafted) = (text.collect(), generation.drafted());
    drop(generation);
    client.close().unwrap();
    (text, drafted)
}

/// The text is the same in fewer passes, each of which is counted once, with all its rows.
#[test]
fn drafts_are_verified_and_counted() {
    let server = Running::allows(allowing(8, 3));
    let plain = expected(&server, TOKENS);
    let (same, drafted) = drafted(&server, 3, TOKENS);
    assert_eq!(same, plain);
    assert!(drafted.right > 0, "{drafted:?}");
    let (passes, drafts) = (drafted.passes as u64, drafted.drafts as u64);
    for ahead in [0, 8] {
        let door = Door::open(&server, |config| (config.ahead, config.draft) = (ahead, 3));
        let reply = door.post("/v1/completions", &asked(TOKENS));
        let answer = reply.json();
        assert_eq!(answer["choices"][0]["text"], json!(plain));
        assert_eq!(answer["usage"]["completion_tokens"], TOKENS);
        let prompt = answer["usage"]["prompt_tokens"].as_u64().unwrap();
        let [ran, rows, made, counted] = totals(&door, ["passes", "tokens", "ahead", "counted"]);
        match ahead {
            0 => {
                assert_eq!((ran, made), (passes, 0));
                assert_eq!(rows, prompt + (passes - 1) + drafts);
                // Every row that was opened counts, also those of wrong drafts.
                assert_eq!(counted, passes + drafts);
            }
            _ => {
                // One set per row, which counts when it is made: as many as were needed, or more.
                assert!(made > 0 && ran >= passes && counted == made + 1);
                assert!(rows <= prompt + made);
            }
        }
        // As a stream: one event per token.
        let mut streamed = asked(TOKENS);
        streamed["stream"] = json!(true);
        let events = events(&door.post("/v1/completions", &streamed));
        assert_eq!(events.len(), TOKENS + 1);
        let pieces = events[..TOKENS].iter().map(|event| {
            let chunk: Value = serde_json::from_str(event).unwrap();
            let text = &chunk["choices"][0]["text"];
            text.as_str().unwrap().to_owned()
        });
        assert_eq!(pieces.collect::<String>(), plain);
    }
}

const TOKENS: usize = 24;

/// Passes that are run to hide where a text ends have left the machine too.
#[test]
fn passes_after_the_end_are_in_the_ledger() {
    let server = Running::generates();
    let door = Door::open(&server, |config| config.pad_output = true);
    let first: String = expected(&server, 6).chars().take(1).collect();
    let mut stopped = asked(6);
    stopped["stop"] = json!(first);
    assert_eq!(text(&door, &stopped), "");
    assert_eq!(totals(&door, ["passes", "counted"]), [6, 6]);
}

/// Refused at once, by name, if the server allows none; answered without them if another server takes its place later.
#[test]
fn a_server_may_allow_neither() {
    let server = Running::generates();
    let refused = |change: fn(&mut GatewayConfig)| {
        let mut config = GatewayConfig::new(server.client());
        change(&mut config);
        let error = Gateway::bind(&config).err().unwrap();
        (error.name(), error.category())
    };
    assert_eq!(refused(|config| config.ahead = 2), ("too-far-ahead", Category::Refused));
    assert_eq!(refused(|config| config.draft = 2), ("too-many-drafts", Category::Refused));
    assert_eq!(refused(|config| (config.draft, config.pad_output) = (2, true)), ("limit", Category::Usage));

    let server = Running::allows(allowing(4, 3));
    let plain = expected(&server, TOKENS);
    let door = Door::open(&server, |config| (config.ahead, config.draft) = (4, 3));
    assert_eq!(text(&door, &asked(TOKENS)), plain);
    let [passes, made] = totals(&door, ["passes", "ahead"]);
    assert!(made > 0);
    let (folder, address) = server.end();
    let server = Running::again(folder, address);
    // The session is over, and no request finds out.
    assert_eq!(door.post("/v1/completions", &asked(TOKENS)).status, 200);
    assert_eq!(text(&door, &asked(TOKENS)), plain);
    let [again, still] = totals(&door, ["passes", "ahead"]);
    assert_eq!((again - passes, still), (2 * TOKENS as u64, made));

    // A server that ends in the middle of an answer: the failure covers only what came after the last pass.
    let mut streamed = asked(60);
    streamed["stream"] = json!(true);
    let mut socket = door.connect();
    socket.write_all(posted("/v1/completions", &streamed.to_string(), "").as_bytes()).unwrap();
    eventually("three passes", || door.total("passes") > again + 3);
    drop(server);
    let _ = socket.read_to_end(&mut Vec::new());
    let lines = door.get("/ledger").json()["lines"].clone();
    let sent = |what: &str| -> Vec<u64> {
        let lines = lines.as_array().unwrap().iter();
        let lines = lines.filter(|line| line["what"] == what);
        lines.map(|l| l["bytes_sent"].as_u64().unwrap()).collect()
    };
    // The server says that it stops, or is gone before the gateway has read it.
    let (failed, passes) = ([sent("stopping"), sent("peer-gone")].concat(), sent("pass"));
    assert!(failed[0] <= 2 * passes[0], "{failed:?} {passes:?}");
}
