//! Kinds of mistakes on the command line: each is called wrong usage, in every verb, and changes nothing.
#![forbid(unsafe_code)]

use std::fs;
use std::process::Output;

use crate::common::{Server, command, error, hushed, json_lines};
use hushed_model::testing::tiny_folder;

fn ended(output: &Output) -> (Option<i32>, String) {
    (output.status.code(), error(output)["name"].as_str().unwrap_or_default().to_owned())
}

fn usage(name: &str) -> (Option<i32>, String) {
    (Some(2), name.to_owned())
}

/// Arguments that cannot be read are an error like others: one object, with the same fields.
#[test]
fn wrong_usage_is_an_object_under_json() {
    let all = [
        hushed(&["--json"]),
        hushed(&["--json", "no-such-verb"]),
        hushed(&["clear", "--json"]),
        hushed(&["embed", "--no-such-option", "--json"]),
        hushed(&["generate", "--server", "a:1", "--pin", "00", "--max-tokens", "many", "a", "--json"]),
        command(&["clear"]).env("HUSHED_JSON", "1").output().expect("the binary starts"),
    ];
    for output in all {
        let [object] = &json_lines(&output.stderr)[..] else { panic!("one object: {output:?}") };
        let error = object["error"].as_object().expect("an error");
        assert_eq!(error.keys().collect::<Vec<_>>(), ["exit_code", "message", "name"]);
        assert_eq!((ended(&output), output.stdout.len()), (usage("usage"), 0), "{output:?}");
        let message = error["message"].as_str().expect("a text");
        assert!(!message.is_empty() && !message.contains('\n') && !message.starts_with("error"), "{message:?}");
    }
    // Behind `--` it is a text.
    let text = hushed(&["clear", "--no-such-option", "--", "--json"]);
    assert!(text.stderr.starts_with(b"error"), "{text:?}");
}

/// An address that is none is wrong usage wherever one is given; one where nobody listens is not.
#[test]
fn addresses_are_host_and_port() {
    let (pin, none) = ("0".repeat(64), "/no/such/folder");
    let client = |verb, rest: &[&'static str], address: &str| {
        let to = [verb, "--json", "--quiet", "--server", address, "--pin", &pin];
        hushed(&[&to[..], rest].concat())
    };
    for wrong in [":80000", ":80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:80000", "127.0.0.1:http", ""] {
        for (verb, rest) in [
            ("embed", &["a"][..]),
            ("classify", &["a"]),
            ("generate", &["a"]),
            ("search", &["a"]),
            ("gateway", &["--listen", "127.0.0.1:0"]),
            ("embed", &["--protocol", "fhe", "--keys", "/no/such/folder", "a"]),
        ] {
            assert_eq!(ended(&client(verb, rest, wrong)), usage("address"), "{verb} {wrong:?}");
        }
        for option in ["--listen", "--metrics"] {
            let served = hushed(&["serve", none, option, wrong, "--json", "--quiet"]);
            assert_eq!(ended(&served), usage("address"), "{option} {wrong:?}");
        }
        let to = ["gateway", "--server", "127.0.0.1:1", "--pin", &pin, "--json", "--quiet", "--listen", wrong];
        assert_eq!(ended(&hushed(&to)), usage("address"), "{wrong:?}");
    }
    assert_eq!(ended(&client("embed", &["a"], "127.0.0.1:1")), (Some(5), "unreachable".to_owned()));
}

/// A number out of range is refused before anything is sent.
#[test]
fn numbers_are_in_range() {
    let pin = "0".repeat(64);
    for (option, value) in [
        ("--temperature", "-1"),
        ("--temperature", "2.5"),
        ("--temperature", "nan"),
        ("--presence-penalty", "-3"),
        ("--frequency-penalty", "2.1"),
        ("--logit-bias", "7=-101"),
    ] {
        let args = ["generate", "--server", "127.0.0.1:1", "--pin", &pin, "a", "--json", option, value];
        assert_eq!(ended(&hushed(&args)), usage("limit"), "{option} {value}");
    }
    for (option, value) in [("--max-tokens", "-1"), ("--seed", "-1"), ("--draft", "-1"), ("--ahead", "1e3")] {
        let args = ["generate", "--server", "127.0.0.1:1", "--pin", &pin, "a", "--json", option, value];
        assert_eq!(ended(&hushed(&args)), usage("usage"), "{option} {value}");
    }
}

/// Every verb that writes a file leaves one that exists as it was, and says so before it begins to work.
#[test]
fn files_that_exist_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kept");
    let (kept, model) = (path.to_string_lossy(), folder.path().join("model"));
    tiny_folder(&model).expect("a model");
    let dir = model.to_string_lossy();
    let texts = folder.path().join("texts.txt");
    fs::write(&texts, "hello world\na private world\n").expect("texts");
    let texts = texts.to_string_lossy();
    let plan = ["plan", &dir, "--protocol", "fhe", "--rows", "16", "--calibration", "none", "--public-embedding"];
    let keyed = ["--manifest", "none", "--public", "none", "--keys", "none"];
    let all = [
        vec!["bundle", &dir, &kept],
        vec!["index", &dir, &texts, "--out", &kept],
        vec!["calibrate", &dir, "--input", &texts, "--output", &kept],
        vec!["calibrate", &dir, "--protocol", "fhe", "--input", &texts, "--output", &kept],
        [&plan[..], &["--manifest", &kept]].concat(),
        [&plan[..], &["--public-model", &kept]].concat(),
        vec!["verify", &dir, "--protocol", "fhe", "--input", &texts, "--plot", &kept],
        vec!["prune", &dir, "--layers", "1", "--input", &texts, "--out", &kept],
    ];
    for args in all {
        fs::write(&path, "the old one").expect("a file");
        let output = hushed(&[&args[..], &["--json"]].concat());
        assert_eq!(ended(&output), (Some(8), "file-exists".to_owned()), "{args:?}");
        assert_eq!(fs::read(&path).expect("the old file"), b"the old one", "{args:?}");
    }
    for args in [vec!["bundle", &dir, &kept], vec!["index", &dir, &texts, "--out", &kept]] {
        fs::write(&path, "the old one").expect("a file");
        let output = hushed(&[&args[..], &["--force", "--json"]].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_ne!(fs::read(&path).expect("the new file"), b"the old one", "{args:?}");
    }
    // Without keys, how to make them.
    for args in [["encrypt", "a text", "--out", "none"], ["decrypt", "--reply", "none", "--anyway"]] {
        let output = hushed(&[&args[..], &keyed, &["--json"]].concat());
        assert_eq!(ended(&output), usage("no-keys"), "{args:?}");
        let message = error(&output)["message"].to_string();
        assert!(message.contains("hushed keygen --manifest") && message.contains("--out"), "{message}");
    }
}

/// A batch for a server that cannot take it leaves no folder of keys behind.
#[test]
fn keys_are_not_begun_for_a_server_of_the_other_protocol() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("model");
    tiny_folder(&model).expect("a model");
    let server = Server::start(&model.to_string_lossy(), &[]);
    let keys = folder.path().join("keys");
    let folder = keys.to_string_lossy();
    let output = server.embed(&["--protocol", "fhe", "--keys", &folder, "--make-keys", "a text"]).output();
    let output = output.expect("the binary starts");
    assert_eq!(ended(&output), (Some(6), "other-protocol".to_owned()));
    assert!(error(&output)["message"].to_string().contains("leave out --protocol fhe"), "{output:?}");
    assert!(!keys.exists());
}
