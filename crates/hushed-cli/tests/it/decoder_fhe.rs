//! A decoder under encryption as a user runs it: what it would cost and reveal, its rungs up to ciphertexts, and what
//! is refused.
#![forbid(unsafe_code)]

use std::fs;

use crate::common::{error, hushed, json_lines};
use hushed_model::testing::tiny_golden;

const TEXTS: &str = "the sea is red\na b c d\nhello\nthe world is a sea\nb b b a c\nred sea\nthe the\nd a c\n";

#[test]
fn a_decoder_is_planned_and_verified() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let model = tiny_golden("bitnet-sigmoid");
    let dir = model.to_string_lossy().into_owned();
    let (sample, calibration) = (at("sample.txt"), at("calibration.json"));
    fs::write(&sample, TEXTS).expect("a sample");
    let calibrated = hushed(&[
        "calibrate",
        &dir,
        "--protocol",
        "fhe",
        "--input",
        &sample,
        "--rows",
        "16",
        "--cosine",
        "0.999",
        "--output",
        &calibration,
    ]);
    assert_eq!(calibrated.status.code(), Some(0), "{calibrated:?}");

    let plan = |more: &[&str]| {
        let mut args = vec!["plan", &dir, "--protocol", "fhe", "--rows", "16", "--json"];
        args.extend(more);
        hushed(&args)
    };
    let planned = plan(&["--calibration", &calibration, "--answer", "last"]);
    assert_eq!(planned.status.code(), Some(0), "{planned:?}");
    let rows = json_lines(&planned.stdout);
    let report = &rows[0]["plan"];
    assert_eq!((&report["answer"], &report["width"]), (&"last".into(), &16.into()));
    let maps = |at: usize, name: &str| report["ternary"][at][name].clone();
    assert_eq!((maps(0, "form"), maps(0, "count")), ("ternary".into(), 4.into()));
    assert_eq!(maps(0, "maps"), serde_json::json!(["attention.output", "feed_forward.down"]));
    assert_eq!((maps(1, "form"), maps(1, "count")), ("norm_before".into(), 10.into()));
    let shown = |more: &[&str]| {
        let args = ["plan", &dir, "--protocol", "fhe", "--rows", "16", "--calibration", &calibration];
        String::from_utf8_lossy(&hushed(&[&args, more].concat()).stdout).into_owned()
    };
    // The placements that were tried come only if they are asked for.
    let tried = report["alternatives"].as_array().map_or(0, Vec::len);
    assert_eq!(shown(&["--verbose"]).lines().count(), shown(&[]).lines().count() + tried);
    let shown = shown(&[]);
    let line = "4 stay ternary, which takes no level: attention.output, feed_forward.down";
    assert!(shown.contains(line), "{shown}");
    assert!(shown.contains(&format!("kept to {} bits", report["reply_bits"])), "{shown}");
    let seen = report["exposures"].to_string();
    assert!(seen.contains("hidden state of the last row, 16 numbers"), "{seen}");
    assert!(seen.contains("nothing of a text's length"), "{seen}");
    // All rows are the operator's choice: more is seen, and more ciphertexts are opened.
    let all = plan(&["--calibration", &calibration, "--answer", "rows"]);
    assert_eq!(all.status.code(), Some(0), "{all:?}");
    let all = json_lines(&all.stdout);
    let all = &all[0]["plan"];
    assert_eq!(all["answer"], "rows");
    assert_eq!((&all["reply"]["ciphertexts"], &report["reply"]["ciphertexts"]), (&8.into(), &1.into()));
    let seen = all["exposures"].to_string();
    assert!(seen.contains("hidden states of all rows, 16 numbers a token"), "{seen}");
    assert_eq!(all["work"]["bootstraps_wide"], report["work"]["bootstraps_wide"]);
    // What follows from a decrypted token must not go back.
    let pin = "0".repeat(64);
    let mut generate = vec!["generate", "--server", "127.0.0.1:1", "--pin", &pin, "a"];
    generate.extend(["--protocol", "fhe", "--json"]);
    for refused in [plan(&["--max-tokens", "2"]), hushed(&generate)] {
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let message = error(&refused)["message"].to_string();
        assert!(message.contains("would go back to the server"), "{message}");
    }
    // Biases would fill rows of padding.
    let other = tiny_golden("llama-tied").to_string_lossy().into_owned();
    let refused = hushed(&["plan", &other, "--protocol", "fhe", "--rows", "16", "--json"]);
    assert_eq!(refused.status.code(), Some(4));
    assert_eq!(error(&refused)["name"], "unsupported");

    let verified = hushed(&[
        "verify",
        &dir,
        "--protocol",
        "fhe",
        "--json",
        "--calibration",
        &calibration,
        "--input",
        &sample,
        "--encrypted",
        "--parameters",
        "insecure-test/9/14",
        "--steps",
    ]);
    assert_eq!(verified.status.code(), Some(0), "{verified:?}");
    let rows = json_lines(&verified.stdout);
    let of = |name: &str| rows.iter().filter(|r| !r[name].is_null()).count();
    // Two sums per layer, the second of which is its output.
    assert_eq!((of("layer"), of("step"), of("text_index")), (2, 2, 8));
    let end = rows.last().expect("a summary");
    for rung in ["polynomial", "predicted", "encrypted"] {
        let cosine = end[rung]["cosine_min"].as_f64().expect("a number");
        assert!(cosine > 0.999, "{end}");
        let next = &end[rung]["next"];
        assert_eq!((&next["texts"], &next["same"]), (&8.into(), &8.into()), "{end}");
    }
}

/// A ternary model's perplexity is shown twice, exact and with rounded activations; another's once.
#[test]
fn perplexity_in_the_clear_also_with_activations_of_8_bits() {
    let folder = tempfile::tempdir().expect("a folder");
    let texts = folder.path().join("texts.txt");
    fs::write(&texts, "the sea is red\nthe world is a sea\n").expect("texts");
    let clear = |model: &str, more: &[&str]| {
        let (dir, texts) = (tiny_golden(model), texts.to_string_lossy());
        let shown = hushed(&[&["clear", &dir.to_string_lossy(), "--perplexity", &texts], more].concat());
        assert_eq!(shown.status.code(), Some(0), "{shown:?}");
        shown.stdout
    };
    let rows = json_lines(&clear("bitnet", &["--json"]));
    assert_eq!(rows.len(), 3);
    for row in &rows {
        let [exact, rounded] = ["perplexity", "perplexity_int8"].map(|name| row[name].as_f64());
        let (exact, rounded) = (exact.expect("a number"), rounded.expect("a number"));
        let off = (rounded / exact - 1.0).abs();
        assert!((1e-6..0.1).contains(&off), "{row}");
    }
    assert_ne!(rows[0]["log_likelihood_int8"], rows[0]["log_likelihood"]);
    let shown = String::from_utf8(clear("bitnet", &[])).expect("UTF-8");
    assert_eq!(shown.matches("with activations of 8 bits").count(), 2, "{shown}");
    for row in json_lines(&clear("llama", &["--json"])) {
        assert!(row["perplexity_int8"].is_null() && row["perplexity"].as_f64().is_some(), "{row}");
    }
}

/// Items are read before anything else, and a line that is not an item is named.
#[test]
fn what_is_no_item_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let items = at("items.jsonl");
    fs::write(&items, "{\"prompt\": \"a\", \"endings\": [\" b\", \" c\"]}\na text\n").expect("items");
    let pin = "0".repeat(64);
    let files = ["--manifest", "none", "--public", "none", "--keys", "none"];
    let encrypt = [&["encrypt", "--choices", &items, "--out", "none"], &files[..]].concat();
    let decrypt = [&["decrypt", "--choices", &items, "--reply", "none"], &files[..]].concat();
    let score = ["score", "--choices", &items, "--server", "127.0.0.1:1", "--pin", &pin];
    let score = [&score[..], &["--keys", "none"]].concat();
    for args in [encrypt, decrypt, score] {
        let refused = hushed(&[&args[..], &["--json"]].concat());
        assert_eq!(refused.status.code(), Some(3), "{refused:?}");
        let error = error(&refused);
        assert_eq!(error["name"], "choices");
        assert!(error["message"].to_string().contains("line 2"), "{error}");
    }
}
