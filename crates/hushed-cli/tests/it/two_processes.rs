//! Server and client as two processes over TLS: right answers, and clear ends when something is wrong.
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::time::Duration;

use crate::common::{Server, command, embeddings, error, hushed, json_lines, model, write_private};
use hushed_model::cosine;
use serde_json::Value;

const SENTENCES: &str = "Is it safe to take ibuprofen with a stomach ulcer?
Yes.
Der Mietvertrag endet am 31. Dezember, wenn niemand ihn verlängert.
for (i, x) in values.iter().enumerate() { println!(\"{i}: {x}\"); }
A small boat crossed the bay before sunrise, carrying two lanterns and a crate of oranges.
";

#[test]
fn five_sentences_come_back_as_in_the_clear() {
    let Some(model) = model() else { return };
    let server = Server::start(&model, &[]);
    let mut child = server
        .embed(&["--input", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the client starts");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(SENTENCES.as_bytes()).expect("it reads");
    drop(input);
    let output = child.wait_with_output().expect("the client ends");
    assert!(output.status.success());

    let rows = json_lines(&output.stdout);
    let private = embeddings(&rows);
    let clear: Vec<Vec<f64>> = SENTENCES
        .lines()
        .flat_map(|text| embeddings(&json_lines(&hushed(&["clear", &model, text, "--json"]).stdout)))
        .collect();
    assert_eq!((private.len(), clear.len()), (5, 5));
    for (i, (private, clear)) in private.iter().zip(&clear).enumerate() {
        let cosine = cosine(private, clear);
        assert!(cosine >= 0.999, "sentence {i}: {cosine}");
    }
    let session = rows.last().expect("the session's row");
    assert_eq!(session["texts"], 5);
    for counter in ["bytes_up", "bytes_down", "rounds"] {
        assert!(session[counter].as_u64() > Some(0), "{counter}");
    }
}

/// The small GPT-2 of the repository gives the tokens of the clear model.
#[test]
fn a_prompt_is_continued_as_in_the_clear() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/gpt2-small");
    let prompt = "The server never sees";
    let server = Server::start(model, &["--max-ahead", "8"]);
    assert_eq!(server.hello["verb"], "generate");
    let connection = ["--server", &server.address, "--pin", &server.pin, "--json", "--max-tokens", "6"];
    let generated = |more: &[&str]| {
        let output = hushed(&[&["generate", prompt], &connection[..], more].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let mut rows = json_lines(&output.stdout);
        let session = rows.pop().expect("the session's row");
        let ids: Vec<u64> = rows.iter().filter_map(|row| row["id"].as_u64()).collect();
        (ids, session)
    };
    let (ids, session) = generated(&[]);
    let clear = hushed(&["clear", model, prompt, "--max-tokens", "6", "--json"]);
    let clear = json_lines(&clear.stdout);
    let expected: Vec<u64> =
        clear[0]["ids"].as_array().map_or(Vec::new(), |ids| ids.iter().filter_map(Value::as_u64).collect());
    assert_eq!(ids, expected);
    let (far, over) = generated(&["--net", "internet"]);
    assert_eq!(far, expected);
    assert!(over["rounds"].as_u64() < session["rounds"].as_u64(), "{over} {session}");
    assert_eq!(session["text"], clear[0]["generated"]);
    assert_eq!(session["tokens"], 6);
    let (padded, session) = generated(&["--bucket", "16"]);
    assert_eq!((&padded, &session["padded_prompt_tokens"]), (&ids, &Value::from(16)));
    // Three of the five later tokens, and then two more.
    let (ahead, session) = generated(&["--ahead", "3"]);
    assert_eq!((ahead, &session["ahead"]["tokens"]), (ids, &Value::from(5)));
    let made = hushed(&["plan", model, "--tokens", "5", "--max-tokens", "6", "--ahead", "5", "--json"]);
    let made = json_lines(&made.stdout);
    let made = made.iter().find_map(|row| row["ahead"]["bytes_up"].as_u64());
    assert!(made > Some(0));

    // The other verb is refused before it costs anything.
    let output = server.embed(&["short"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(error(&output)["name"], "other-task");
}

/// Behind a public prefix: the tokens of the clear model, and passes as large as planned.
#[test]
fn a_prompt_is_continued_behind_a_public_prefix() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/gpt2-small");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (prefix, other) = (path("prefix.txt"), path("other.txt"));
    std::fs::write(&prefix, "Who sees what of a text that is private?\n").expect("it is written");
    std::fs::write(&other, "Something else\n").expect("it is written");
    let prompt = "The server never sees";
    let behind = ["--public-prefix", &prefix, "--max-tokens", "3", "--json"];
    let clear = hushed(&[&["clear", model, prompt], &behind[..]].concat());
    let clear = json_lines(&clear.stdout);
    let tokens = clear[0]["tokens"].to_string();
    let plan = hushed(&[&["plan", model, "--tokens", &tokens], &behind[..]].concat());
    let plan = json_lines(&plan.stdout);
    let server = Server::start(model, &["--public-prefix", &prefix]);
    let connection = ["--server", &server.address, "--pin", &server.pin];
    let output = hushed(&[&["generate", prompt], &connection[..], &behind[..]].concat());
    let rows = json_lines(&output.stdout);
    let session = rows.last().expect("the session's row");
    assert_eq!(session["prefix_tokens"], server.hello["prefix_tokens"]);
    assert_eq!(session["prompt_tokens"].to_string(), tokens);
    assert_eq!(session["text"], clear[0]["generated"]);
    let all = &plan.last().expect("a sum")["all"];
    // Without headers, requests and the making of OTs.
    let (planned, sent) = (all["bytes_up"].as_u64(), session["bytes_up"].as_u64());
    assert!(planned > Some(0) && planned < sent, "{planned:?} {sent:?}");
    let expects = [&connection[..], &["--public-prefix", &other, "--json"]].concat();
    let refused = hushed(&[&["generate", prompt], &expects[..]].concat());
    assert_eq!((refused.status.code(), &error(&refused)["name"]), (Some(6), &"other-prefix".into()));
}

/// Documents are indexed, served and searched; the nearest is the one that a search in the clear gives.
#[test]
fn documents_are_found_by_a_private_query() {
    let Some(model) = model() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (documents, index) = (path("documents.jsonl"), path("documents.index"));
    let text = |text: &str| format!("{{\"text\": {}}}\n", Value::from(text));
    let lines: String = SENTENCES.lines().map(text).collect();
    std::fs::write(&documents, &lines).expect("it is written");
    let made = hushed(&["index", &model, &documents, "--out", &index, "--json"]);
    assert!(made.status.success());
    assert_eq!(json_lines(&made.stdout)[0]["documents"], 5);

    let server = Server::start(&model, &["--index", &index, "--search-scores"]);
    let connection = ["--server", &server.address, "--pin", &server.pin, "--json"];
    let query = "Can I take painkillers with a bad stomach?";
    let output = hushed(&[&["search", query, "--top", "2", "--scores"], &connection[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = json_lines(&output.stdout);
    assert_eq!((&rows[0]["rank"], &rows[0]["place"]), (&Value::from(1), &Value::from(0)));
    assert_eq!(rows[0]["text"], SENTENCES.lines().next().unwrap_or_default());
    assert_eq!((rows.len(), &rows[2]["found"]), (3, &Value::from(2)));
    let [first, second] = [0, 1].map(|rank| rows[rank]["score"].as_f64().unwrap_or(2.0));
    assert!(second < 0.5 && 0.5 < first && first < 1.0, "{first} {second}");

    std::fs::write(&documents, format!("{lines}no object\n")).expect("it is written");
    let refused = hushed(&["index", &model, &documents, "--out", &index, "--json"]);
    assert_eq!(refused.status.code(), Some(3));
    assert_eq!(error(&refused)["name"], "not-a-document");
}

/// A query and documents of the client's own, in the order of their scores, which are those of a run in the clear.
#[test]
fn documents_are_sorted_by_a_private_query() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let model = hushed_model::testing::tiny_golden("cross-encoder").to_string_lossy().into_owned();
    let (query, documents) = (path("query.txt"), path("documents.txt"));
    std::fs::write(&query, "notice period\n").expect("it is written");
    std::fs::write(&documents, "the weather\nthree months\na\n").expect("it is written");
    let given = ["--query-file", &query, "--input", &documents, "--json"];
    let clear = hushed(&[&["clear", &model], &given[..]].concat());
    let clear: Vec<f64> = json_lines(&clear.stdout).iter().filter_map(|row| row["score"].as_f64()).collect();
    assert_eq!(clear.len(), 3);
    let server = Server::start(&model, &[]);
    let connection = ["--server", &server.address, "--pin", &server.pin];
    let output = hushed(&[&["rerank", "--batch", "3"], &given[..], &connection[..]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows = json_lines(&output.stdout);
    let (end, ranked) = rows.split_last().expect("the session's row");
    assert_eq!((ranked.len(), &end["texts"]), (3, &Value::from(3)));
    let mut last = f64::INFINITY;
    for (rank, row) in ranked.iter().enumerate() {
        let (score, place) = (row["score"].as_f64().unwrap_or(9.0), row["document_index"].as_u64().unwrap_or(9));
        assert_eq!(row["rank"], rank + 1);
        assert!(score <= last && (score - clear[place as usize]).abs() < 0.005, "{row} {clear:?}");
        last = score;
    }
    let shown = hushed(&[&["rerank", "--top", "1"], &given[..4], &connection[..]].concat());
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.starts_with("1. ") && shown.lines().count() == 1, "{shown}");
    for wrong in [&["--input", "-", "--query-file", "-"][..], &["--input", &documents]] {
        let refused = hushed(&[&["rerank", "--json"], wrong, &connection[..]].concat());
        assert_eq!((refused.status.code(), &error(&refused)["name"]), (Some(2), &Value::from("usage")), "{wrong:?}");
    }
}

/// Images of other sizes and formats than the model reads get the labels of the clear model.
#[test]
fn images_get_the_labels_of_the_clear_model() {
    let folder = hushed_model::testing::tiny_golden("vit");
    let model = folder.to_string_lossy().into_owned();
    let files = ["wide.png", "half.jpg", "alpha.png"].map(|name| {
        let path = folder.join("images").join(name);
        path.to_string_lossy().into_owned()
    });
    let images: Vec<&str> = files.iter().flat_map(|f| ["--image", f]).collect();
    let server = Server::start(&model, &[]);
    assert_eq!(server.hello["verb"], "classify");
    let connection = ["--server", &server.address, "--pin", &server.pin, "--json"];
    let labels = |arguments: &[&str]| {
        let rows = json_lines(&hushed(arguments).stdout);
        let labels = rows.iter().filter_map(|row| row["label"].as_str());
        labels.map(str::to_owned).collect::<Vec<_>>()
    };
    let clear = labels(&[&["clear", &model, "--json"], &images[..]].concat());
    assert_eq!(clear.len(), 3);
    let classify = [&["classify"], &connection[..], &images[..]].concat();
    assert_eq!(labels(&classify), clear);
    let batch = [&classify[..], &["--batch", "3"]].concat();
    assert_eq!(labels(&batch), clear);
    let output = hushed(&[&classify[..], &["--bucket", "8"]].concat());
    assert_eq!(output.status.code(), Some(2));
    let open = Server::start(&model, &["--answers", "logits"]);
    let connection_to = ["--server", &open.address, "--pin", &open.pin, "--json"];
    let rows = json_lines(&hushed(&[&["classify"], &connection_to[..], &images[..]].concat()).stdout);
    let logits = rows.iter().filter_map(|row| row["logits"].as_array());
    assert_eq!(logits.count(), 3);
    let two = Server::start(&model, &["--answers", "top:2"]);
    let to_two = ["--server", &two.address, "--pin", &two.pin, "--json"];
    let ranked = json_lines(&hushed(&[&["classify"], &to_two[..], &images[..]].concat()).stdout);
    for (row, label) in ranked.iter().zip(&clear) {
        let top = row["top"].as_array().expect("names");
        assert!(top.len() == 2 && top[0] == **label && top[1] != top[0]);
    }
    assert_eq!(rows.iter().filter_map(|row| row["label"].as_str()).collect::<Vec<_>>(), clear);
    let output = hushed(&[&["classify"], &connection[..], &["a text"]].concat());
    assert_eq!((output.status.code(), &error(&output)["name"]), (Some(3), &"text-refused".into()));
}

#[test]
fn a_client_that_does_not_fit_is_told_why() {
    let Some(model) = model() else { return };
    let server = Server::start(&model, &["--max-tokens", "6"]);

    let wrong_pin = "0".repeat(64);
    let args = ["embed", "--server", &server.address, "--json", "--pin", &wrong_pin, "text"];
    let output = hushed(&args);
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(error(&output)["name"], "wrong-pin");

    let long = "one two three four five six seven";
    let output = server.embed(&[long]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(error(&output)["name"], "too-long");

    let output = server.embed(&[""]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(error(&output)["name"], "text-refused");

    // The server is unaffected.
    let output = server.embed(&["short"]).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_pinned_bundle_is_the_only_model_accepted() {
    let Some(model) = model() else { return };
    let server = Server::start(&model, &[]);
    let file = std::env::temp_dir().join(format!("hushed-{}.bundle", std::process::id()));
    let path = file.to_string_lossy().into_owned();
    let output = hushed(&["bundle", &model, &path, "--json"]);
    assert!(output.status.success());
    assert_eq!(json_lines(&output.stdout)[0]["bundle"], server.hello["bundle"]);
    let output = server.embed(&["short", "--bundle", &path]).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_file(&file).expect("it was written");
}

/// The hashes that are printed are those that the client computes, of the files as published; without one of them it
/// says that the server chose the tokenizer.
#[test]
fn printed_hashes_are_what_a_client_accepts() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../hushed-model/tests/golden/tiny/roberta");
    let printed = json_lines(&hushed(&["bundle", model, "--json"]).stdout).remove(0);
    let hash = |name: &str| printed[name].as_str().expect("a hash").to_owned();
    let text = hushed(&["bundle", model]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains(&format!("{}  tokenizer.json", hash("tokenizer"))));
    assert_eq!((&printed["template"], &printed["written"]), (&Value::Null, &Value::Null));

    let server = Server::start(model, &[]);
    assert_eq!(printed["bundle"], server.hello["bundle"]);
    let said = |more: &[&str]| {
        let connection = ["--server", &server.address, "--pin", &server.pin];
        let output = hushed(&[&["embed", "a"], &connection[..], more].concat());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    let notices = |more: &[&str]| {
        let (code, said) = said(more);
        assert_eq!(code, Some(0), "{said}");
        said.matches("the server chose the tokenizer").count()
    };
    let (bundle, tokenizer) = (hash("bundle"), hash("tokenizer"));
    assert_eq!(notices(&[]), 1);
    for silent in [&["--tokenizer-sha256", &tokenizer][..], &["--bundle-sha256", &bundle], &["--quiet"], &["--json"]] {
        assert_eq!(notices(silent), 0, "{silent:?}");
    }
    for (other, name) in [
        (&["--tokenizer-sha256", &bundle][..], "tokenizer.json"),
        (&["--bundle-sha256", &tokenizer], "bundle"),
        (&["--template-sha256", &tokenizer], "chat template"),
    ] {
        let (code, said) = said(other);
        assert_eq!(code, Some(6), "{said}");
        assert!(said.contains(name), "{said}");
    }
    let (code, said) = said(&["--tokenizer-sha256", "9f86"]);
    assert_eq!(code, Some(2), "{said}");
}

#[test]
fn nobody_there_is_a_network_error() {
    // A port that was free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    let address = port.expect("a port").to_string();
    let pin = "0".repeat(64);
    let output = hushed(&["embed", "--server", &address, "--pin", &pin, "--json", "text"]);
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(error(&output)["name"], "unreachable");
}

#[test]
fn a_port_in_use_and_an_open_door_are_refused() {
    let Some(model) = model() else { return };
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("its address").to_string();
    let output = hushed(&["serve", &model, "--listen", &address, "--json", "--quiet"]);
    assert_eq!(output.status.code(), Some(5));
    assert_eq!(error(&output)["name"], "address-in-use");

    let output = hushed(&["serve", &model, "--listen", "0.0.0.0:0", "--json", "--quiet"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(error(&output)["name"], "open-to-strangers");
}

#[test]
fn the_certificate_must_be_known() {
    let output = hushed(&["embed", "--server", "127.0.0.1:1", "text"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--pin"));
}

#[test]
fn a_killed_server_is_reported() {
    let Some(model) = model() else { return };
    let server = Server::start(&model, &[]);
    let text = "word ".repeat(60);
    let client =
        server.embed(&[&text]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the client starts");
    // Somewhere in the run: sixty words take longer than this on any machine.
    std::thread::sleep(Duration::from_millis(1500));
    server.signal("KILL");
    let output = client.wait_with_output().expect("the client ends");
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stdout.is_empty());
}

#[test]
fn a_killed_client_leaves_the_server_serving_and_sigterm_ends_it() {
    let Some(model) = model() else { return };
    let mut server = Server::start(&model, &[]);
    let text = "word ".repeat(60);
    let mut client =
        server.embed(&[&text]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the client starts");
    std::thread::sleep(Duration::from_millis(1500));
    client.kill().expect("it was running");
    client.wait().expect("it has ended");

    let output = server.embed(&["short"]).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    server.signal("TERM");
    let status = server.child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0));
}

/// A client that is killed between tokens leaves its place to another, and a server that is killed is reported.
#[test]
fn a_text_ends_with_either_of_them() {
    let model = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/gpt2-small");
    let server = Server::start(model, &["--max-sessions", "1"]);
    let connection = ["--server", &server.address, "--pin", &server.pin, "--json"];
    let generate = |tokens: &str| {
        let text = ["generate", "The server", "--max-tokens", tokens];
        command(&[&text[..], &connection[..]].concat())
    };
    let under_way = || {
        let mut client = generate("200").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let out = client.stdout.as_mut().expect("piped");
        BufReader::new(out).read_line(&mut line).expect("a token");
        assert!(line.contains("\"token\""), "{line}");
        client
    };
    let mut client: Child = under_way();
    client.kill().expect("it was running");
    client.wait().expect("it has ended");
    // There is room for one client, and the server may not have noticed yet.
    let served = |_| {
        let output = generate("2").output().expect("it starts");
        output.status.success().then_some(output)
    };
    let output = (0..50).find_map(served).expect("its place is free");
    let rows = json_lines(&output.stdout);
    assert_eq!(rows.last().expect("the session's row")["tokens"], 2);

    let client = under_way();
    server.signal("KILL");
    let output = client.wait_with_output().expect("the client ends");
    assert_eq!(output.status.code(), Some(5));
}

/// A folder with an activation of 3·10^3 at every row: refused, measured, declared, and then served.
#[test]
fn wide_activations_are_declared_and_then_served() {
    let folder = tempfile::tempdir().expect("a folder");
    hushed_model::testing::tiny_generator_folder(folder.path()).expect("room on the disk");
    let weights = folder.path().join("model.safetensors");
    let mut bytes = std::fs::read(&weights).expect("it was written");
    let header = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    let data = 8 + header as usize;
    let header: Value = serde_json::from_slice(&bytes[8..data]).expect("a header");
    let bias = header["h.0.mlp.c_proj.bias"]["data_offsets"][0].as_u64();
    let fifth = data + bias.expect("an offset") as usize + 4 * 5;
    bytes[fifth..fifth + 4].copy_from_slice(&3000f32.to_le_bytes());
    std::fs::write(&weights, bytes).expect("room on the disk");
    let sample = folder.path().join("sample.txt");
    std::fs::write(&sample, "the thing\nsome other thing\n").expect("room on the disk");
    let [dir, sample] = [folder.path(), &sample].map(|path| path.to_string_lossy().into_owned());

    let refused = hushed(&["check", &dir]);
    assert_eq!(refused.status.code(), Some(4));
    let said = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(said.contains("squares of a row in a norm above"), "{said}");
    let declared = hushed(&["calibrate", &dir, "--input", &sample, "--declare", "--json"]);
    let rows = json_lines(&declared.stdout);
    assert_eq!(rows.last().expect("an end")["beyond"], 0);
    let norms = rows.iter().filter_map(|row| row["squares_log2"].as_u64());
    assert!(norms.clone().count() > 0 && norms.max() >= Some(24));
    assert!(hushed(&["check", &dir]).status.success());

    let server = Server::start(&dir, &[]);
    let connection = ["--server", &server.address, "--pin", &server.pin, "--json"];
    let text = ["generate", "the thing", "--max-tokens", "3"];
    let output = hushed(&[&text[..], &connection[..]].concat());
    let rows = json_lines(&output.stdout);
    assert_eq!(rows.last().expect("the session's row")["tokens"], 3);
}

#[test]
fn tokens_are_asked_for_and_checked() {
    let Some(model) = model() else { return };
    let dir = std::env::temp_dir();
    let file = |name: &str| dir.join(format!("hushed-{name}-{}", std::process::id()));
    let (accepted, wrong) = (file("tokens"), file("wrong"));
    write_private(&accepted, "a-token-of-sixteen-or-more\n");
    write_private(&wrong, "another-token-of-sixteen\n");
    let server = Server::start(&model, &["--tokens", &accepted.to_string_lossy()]);
    let with = |path: &std::path::Path| {
        let path = path.to_string_lossy().into_owned();
        server.embed(&["short", "--token-file", &path]).output().expect("it starts")
    };
    let none = server.embed(&["short"]).output().expect("it starts");
    assert_eq!((none.status.code(), &error(&none)["name"]), (Some(7), &"no-token".into()));
    let refused = with(&wrong);
    assert_eq!((refused.status.code(), &error(&refused)["name"]), (Some(7), &"bad-token".into()));
    assert!(with(&accepted).status.success());
    for path in [accepted, wrong] {
        std::fs::remove_file(path).expect("it was written");
    }
}

#[test]
fn plan_needs_no_weights_and_says_who_sees_what() {
    let Some(model) = model() else { return };
    let output = command(&["plan", &model, "--tokens", "16", "--json"]).output();
    let output = output.expect("it starts");
    assert!(output.status.success());
    let plan = &json_lines(&output.stdout)[0]["plan"];
    assert_eq!(plan["tokens"], serde_json::json!([16]));
    assert!(plan["failure_log2"].as_f64() <= Some(-40.0));
    assert!(plan["exposures"].as_array().is_some_and(|e| e.len() > 3));
    let output = hushed(&["plan", &model, "--tokens", "100000", "--json"]);
    assert_eq!((output.status.code(), &error(&output)["name"]), (Some(3), &"tokens".into()));
}
