//! A network under encryption as a user runs it, from its folder to decrypted answers, and what is refused.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use crate::common::{command, error, hushed, json_lines};
use hushed_model::testing::tiny_golden;
use serde_json::Value;

/// Runs a verb with `--json`, which must succeed, and returns its lines.
fn rows(args: &[&str]) -> Vec<Value> {
    let output = hushed(&[args, &["--json"]].concat());
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    json_lines(&output.stdout)
}

/// The exit code and the message of a verb that is refused.
fn refused(args: &[&str]) -> (Option<i32>, String) {
    let output = hushed(&[args, &["--json"]].concat());
    (output.status.code(), error(&output)["message"].to_string())
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|v| v.as_f64().expect("a number")).collect()
}

#[test]
fn a_network_answers_under_a_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let dir = at("mlp");
    fs::create_dir(&dir).expect("a folder");
    let golden = tiny_golden("").join("../graphs/mlp");
    for name in ["graph.json", "model.safetensors"] {
        fs::copy(golden.join(name), Path::new(&dir).join(name)).expect("a copy");
    }
    let line = |seed: f64| format!("{:?}\n", (0..6).map(|i| (f64::from(i) * 1.7 + seed).sin()).collect::<Vec<_>>());
    let (samples, inputs) = (at("samples.jsonl"), at("inputs.jsonl"));
    fs::write(&samples, (0..20).map(|i| line(f64::from(i) * 0.37)).collect::<String>()).expect("samples");
    fs::write(&inputs, line(0.2) + &line(4.4)).expect("inputs");

    let (manifest, calibration) = (at("manifest.json"), at("mlp/calibration-fhe.json"));
    let planned = ["plan", &dir, "--protocol", "fhe", "--texts", "2"];
    let with = |more: &[&'static str]| -> Vec<String> {
        let more = more.iter().map(|&word| match word {
            "CALIBRATION" => calibration.clone(),
            "MANIFEST" => manifest.clone(),
            word => word.to_owned(),
        });
        planned.iter().map(|&word| word.to_owned()).chain(more).collect()
    };
    let words = |args: &[String]| -> Vec<Value> { rows(&args.iter().map(String::as_str).collect::<Vec<_>>()) };
    assert_eq!(hushed(&planned).status.code(), Some(8), "there is no calibration yet");
    let calibrated = rows(&["calibrate", &dir, "--protocol", "fhe", "--input", &samples]);
    assert_eq!(calibrated.last().expect("a summary")["inputs"], 20);
    let plan = &words(&with(&["--calibration", "CALIBRATION", "--manifest", "MANIFEST"]))[0]["plan"];
    assert_eq!((&plan["parameters"], &plan["inputs"]), (&"n15-shallow-16x40".into(), &2.into()));
    assert!(plan["exposures"].to_string().contains("the server sees when requests come"));
    let declared = plan["error"].as_f64().expect("a number");
    assert!(declared < 1e-2, "{declared:e}");

    let (keys, request, reply) = (at("keys"), at("request"), at("reply"));
    rows(&["keygen", "--manifest", &manifest, "--out", &keys]);
    let evaluation = at("keys/evaluation.keys");
    assert_eq!(fs::metadata(&evaluation).expect("keys").len(), plan["key_bytes"].as_u64().expect("a number"));
    let files = ["--manifest", &manifest, "--keys", &keys];
    let sent = rows(&[&["encrypt"], &files[..], &["--input", &inputs, "--out", &request]].concat());
    assert_eq!((&sent[0]["inputs"], &sent[0]["bytes"]), (&2.into(), &plan["request_bytes"]));
    let run = |keys: &str, request: &str, out: &str| -> Vec<String> {
        let args = ["run", &dir, "--manifest", &manifest, "--keys", keys, "--request", request, "--out", out];
        args.iter().map(|&word| word.to_owned()).collect()
    };
    let ran = words(&run(&evaluation, &request, &reply));
    assert_eq!((&ran[0]["request"], &ran[0]["bytes"]), (&sent[0]["request"], &plan["reply_bytes"]));
    // The same again is there already, and made anew it has the same bytes.
    assert_eq!(words(&run(&evaluation, &request, &reply))[0]["done_before"], true);
    words(&run(&evaluation, &request, &at("again")));
    assert_eq!(fs::read(&reply).expect("a reply"), fs::read(at("again")).expect("a reply"));

    let npy = at("answers.npy");
    let decrypt = [&["decrypt"], &files[..], &["--reply", &reply]].concat();
    let opened = rows(&[&decrypt[..], &["--npy", &npy]].concat());
    let clear = rows(&["clear", &dir, "--input", &inputs]);
    let mut all = Vec::new();
    for (found, exact) in opened.iter().zip(&clear).take(2) {
        let (found, exact) = (numbers(&found["outputs"]["last"]), numbers(&exact["outputs"]["last"]));
        assert!(found.iter().zip(&exact).all(|(a, b)| (a - b).abs() <= declared), "{found:?} {exact:?}");
        all.extend(found);
    }
    assert_eq!((&opened[2]["inputs"], &opened[2]["decryptions"]), (&2.into(), &2.into()));
    assert_eq!(fs::read(&npy).expect("an array"), hushed_model::graph::to_npy(&[2, 3], &all));

    // Bad files cost no decryption.
    let bytes = fs::read(&reply).expect("a reply");
    let spoiled = at("spoiled");
    for (name, bytes) in [("cut", &bytes[..bytes.len() - 1]), ("empty", &bytes[..0])] {
        fs::write(&spoiled, bytes).expect("a file");
        let (code, message) = refused(&[&decrypt[..3], &decrypt[3..5], &["--reply", &spoiled]].concat());
        assert!(code != Some(0) && message.contains("spoiled"), "{name}: {message}");
    }
    let (other, others) = (at("other"), at("other/evaluation.keys"));
    rows(&["keygen", "--manifest", &manifest, "--out", &other]);
    let refusal = |args: &[String]| refused(&args.iter().map(String::as_str).collect::<Vec<_>>()).1;
    assert!(refusal(&run(&others, &request, &at("none"))).contains("another key set"));
    let (_, message) = refused(&["decrypt", "--manifest", &manifest, "--keys", &other, "--reply", &reply]);
    assert!(message.contains("another key set"), "{message}");
    let far = at("far.jsonl");
    fs::write(&far, "[100, 0, 0, 0, 0, 0]\n").expect("inputs");
    let (code, message) = refused(&[&["encrypt"], &files[..], &["--input", &far, "--out", &at("no")]].concat());
    assert!(code != Some(0) && message.contains("number beyond") && !message.contains("100"), "{message}");
    assert!(!Path::new(&at("no")).exists());
    // What only a model of text has.
    let (code, message) = refused(&[&["encrypt"], &files[..], &["--choices", &inputs, "--out", &at("no")]].concat());
    assert!(code == Some(2) && message.contains("numbers"), "{message}");
    // Another network in the same folder.
    let weights = Path::new(&dir).join("model.safetensors");
    let mut changed = fs::read(&weights).expect("weights");
    *changed.last_mut().expect("a byte") ^= 1;
    fs::write(&weights, changed).expect("weights");
    assert!(refusal(&run(&evaluation, &request, &at("none"))).contains("another network"));
}

/// `verify` runs under a key that it makes, and says how far the answers are from those in the clear.
#[test]
fn a_network_is_verified() {
    let dir = tiny_golden("").join("../graphs/cnn").to_string_lossy().into_owned();
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (samples, calibration) = (at("samples.jsonl"), at("calibration.json"));
    let shape = rows(&["check", &dir])[0]["graph"]["inputs"][0]["shape"].clone();
    let size: u64 = shape.as_array().expect("a shape").iter().map(|v| v.as_u64().expect("a size")).product();
    let line =
        |seed: u64| format!("{:?}\n", (0..size).map(|i| (i as f64 * 1.7 + seed as f64).sin()).collect::<Vec<_>>());
    fs::write(&samples, (0..8).map(line).collect::<String>()).expect("samples");
    let fhe = ["--protocol", "fhe", "--input", &samples];
    rows(&[&["calibrate", &dir], &fhe[..], &["--output", &calibration]].concat());
    let set = ["--calibration", &calibration, "--parameters", "insecure-shallow/10/20"];
    let verified = rows(&[&["verify", &dir], &fhe[..], &set].concat());
    assert_eq!(verified[0]["insecure"], true);
    let end = verified.last().expect("a summary");
    assert_eq!((&end["inputs"], &end["other_largest"]), (&8.into(), &0.into()));
    assert!(end["error"].as_f64() <= end["declared"].as_f64());
    // A reader that is not a network's is told so.
    let plan = ["plan", &dir, "--protocol", "fhe", "--json"];
    let output = command(&plan).args(set).args(["--manifest", &at("m.json")]).output().expect("the binary starts");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let tokens = refused(&["plan", &tiny_golden("distilbert").to_string_lossy(), "--protocol", "fhe"]);
    assert!(tokens.0 == Some(2) && tokens.1.contains("--tokens"));
    let (manifest, keys, request) = (at("m.json"), at("k"), at("r"));
    let files = ["--manifest", &manifest, "--keys", &keys, "--out", &request, "--input", &samples];
    let (code, message) = refused(&[&["encrypt"], &files[..]].concat());
    assert!(code != Some(0) && message.contains("keygen"), "{message}");
}
