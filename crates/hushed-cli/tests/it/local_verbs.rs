//! The verbs that need no second party, as a user runs them: output, exit codes, names of errors.
#![forbid(unsafe_code)]

use crate::common;
use crate::common::{command, embeddings, hushed, json_lines, model};
use hushed_model::cosine;
use hushed_model::testing::{TINY_LABELS, tiny_classifier_folder, tiny_folder, tiny_golden, variant_folder};
use serde_json::Value;

#[test]
fn help_and_version_say_what_they_should() {
    let help = hushed(&["--help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&help.stdout).contains("Exit codes"));
    let version = hushed(&["--version"]);
    assert!(String::from_utf8_lossy(&version.stdout).starts_with("hushed 0."));
}

#[test]
fn wrong_usage_ends_with_2() {
    assert_eq!(hushed(&[]).status.code(), Some(2));
    assert_eq!(hushed(&["clear"]).status.code(), Some(2));
    assert_eq!(hushed(&["no-such-verb"]).status.code(), Some(2));
}

#[test]
fn options_of_the_other_protocol_are_wrong_usage() {
    let keys = concat!(env!("CARGO_TARGET_TMPDIR"), "/no-keys");
    let pin = "0".repeat(64);
    let embed = |more: &[&str]| {
        // A port where nobody listens.
        let to = ["embed", "--json", "--server", "127.0.0.1:1", "--pin", &pin];
        let output = hushed(&[&to, more].concat());
        let error = json_lines(&output.stderr);
        let name = error.last().and_then(|e| e["error"]["name"].as_str());
        (output.status.code(), name.map(str::to_owned))
    };
    let usage = (Some(2), Some("usage".to_owned()));
    let fhe = ["--protocol", "fhe", "--keys", keys];
    assert_eq!(embed(&["--protocol", "fhe", "a text"]), usage);
    assert_eq!(embed(&["--job", "0123456789"]), usage);
    assert_eq!(embed(&["--detach", "a text"]), usage);
    assert_eq!(embed(&["--make-keys", "a text"]), usage);
    for option in [
        &["--bucket", "8"][..],
        &["--batch", "2"],
        &["--public-table"],
        &["--bundle", "model.bundle"],
        &["--bundle-sha256", &pin],
    ] {
        assert_eq!(embed(&[&fhe, option, &["a text"]].concat()), usage);
    }
    let gone = (Some(5), Some("unreachable".to_owned()));
    assert_eq!(embed(&[&fhe[..], &["a text"]].concat()), gone);
    let unknown = (Some(2), Some("no-such-job".to_owned()));
    assert_eq!(embed(&[&fhe[..], &["--job", "01234567"]].concat()), unknown);
    let serve = hushed(&["serve", "/no/such/folder", "--protocol", "fhe"]);
    assert_eq!(serve.status.code(), Some(2));
    let message = String::from_utf8_lossy(&serve.stderr);
    assert!(["--manifest", "--public", "--store"].iter().all(|flag| message.contains(flag)), "{message}");
}

#[test]
fn doctor_reports_one_object_a_check() {
    let rows = json_lines(&hushed(&["doctor", "--json"]).stdout);
    let checks: Vec<&str> = rows.iter().filter_map(|r| r["check"].as_str()).collect();
    assert!(checks.contains(&"kernels") && checks.contains(&"memory"), "{checks:?}");
}

#[test]
fn a_variable_stands_for_a_flag() {
    for (value, json) in [("1", true), ("true", true), ("", false), ("0", false), ("no", false)] {
        let output = command(&["doctor"]).env("HUSHED_JSON", value).output();
        let output = output.expect("the binary starts");
        assert_eq!(output.stdout.starts_with(b"{"), json, "{value:?}");
    }
    for (variable, args) in [("HUSHED_JSON", &["doctor"][..]), ("HUSHED_TRUNCATE", &["clear", "none", "a text"])] {
        let output = command(args).env(variable, "banana").output().expect("the binary starts");
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(message.contains(variable) && message.contains("banana"), "{message}");
    }
}

#[test]
fn an_unusable_folder_is_reported_whole() {
    let output = hushed(&["check", "/no/such/folder", "--json"]);
    assert_eq!(output.status.code(), Some(4));
    assert!(!json_lines(&output.stdout).is_empty());
    let [error] = &json_lines(&output.stderr)[..] else {
        panic!("one error object on standard error");
    };
    assert_eq!(error["error"]["name"], "model-folder");
    assert_eq!(error["error"]["exit_code"], 4);
}

#[test]
fn bad_input_ends_with_3_before_the_model_is_read() {
    let output = hushed(&["clear", "/no/such/folder", "--input", "/no/such/file", "--json"]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(json_lines(&output.stderr)[0]["error"]["name"], "input-unreadable");
}

/// `check` and `clear` on the committed folders of architectures beside BERT.
#[test]
fn other_architectures() {
    for (name, protocols) in [
        ("roberta", &["2pc", "fhe"][..]),
        ("xlm-roberta", &["2pc", "fhe"]),
        ("distilbert", &["2pc", "fhe"]),
        ("roberta-classifier", &["2pc", "fhe"]),
    ] {
        let dir = tiny_golden(name).to_string_lossy().into_owned();
        let check = hushed(&["check", &dir, "--json"]);
        assert_eq!(check.status.code(), Some(0), "{name}");
        let rows = json_lines(&check.stdout);
        assert_eq!(rows[0]["protocols"], serde_json::json!(protocols), "{name}");
        assert_eq!(rows[0]["model"]["max_tokens"], 64);
        let output = hushed(&["clear", &dir, "größer", "--json"]);
        assert_eq!(output.status.code(), Some(0), "{name}");
    }
    let plan = |name: &str| {
        let dir = tiny_golden(name).to_string_lossy().into_owned();
        hushed(&["plan", &dir, "--tokens", "16"]).status.code()
    };
    assert_eq!((plan("xlm-roberta"), plan("distilbert")), (Some(0), Some(0)));
}

/// `check` and `clear` of a network, and what other verbs say of one.
#[test]
fn a_network_is_checked_and_answers_in_the_clear() {
    let folder = tiny_golden("").join("../graphs/mlp");
    let dir = folder.to_string_lossy().into_owned();
    let check = hushed(&["check", &dir, "--json"]);
    assert_eq!(check.status.code(), Some(0));
    let rows = json_lines(&check.stdout);
    let protocols = serde_json::json!(["fhe"]);
    assert_eq!((&rows[0]["protocols"], &rows[0]["graph"]["nodes"]), (&protocols, &serde_json::json!(7)));
    let calls = hushed(&["check", &folder.join("../calls").to_string_lossy(), "--json"]);
    assert!(json_lines(&calls.stdout)[0]["details"]["fhe"]["reason"].to_string().contains("a network of 2 inputs"));
    assert_eq!(rows[0]["graph"]["outputs"][0], serde_json::json!({ "name": "last", "shape": [3] }));
    let text = hushed(&["check", &dir]);
    assert!(String::from_utf8_lossy(&text.stdout).contains("from x [6] to last [3]"));

    let cases: Value = serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let lines: Vec<String> = cases.as_array().unwrap().iter().map(|case| case["inputs"][0].to_string()).collect();
    let input = concat!(env!("CARGO_TARGET_TMPDIR"), "/network.jsonl");
    std::fs::write(input, lines.join("\n")).unwrap();
    let clear = hushed(&["clear", &dir, "--input", input, "--json"]);
    assert_eq!(clear.status.code(), Some(0), "{}", String::from_utf8_lossy(&clear.stderr));
    let rows = json_lines(&clear.stdout);
    for (row, case) in rows.iter().zip(cases.as_array().unwrap()) {
        let numbers = |value: &Value| value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect::<Vec<_>>();
        let (found, expected) = (numbers(&row["outputs"]["last"]), numbers(&case["outputs"][0]));
        assert!(found.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
    }
    assert_eq!(rows[3]["inputs"], 3);
    let failed = |args: &[&str]| {
        let output = hushed(&[args, &["--json"]].concat());
        let error = json_lines(&output.stderr).pop().unwrap()["error"].clone();
        (output.status.code(), error["name"].as_str().unwrap().to_owned(), error["message"].to_string())
    };
    let (code, name, _) = failed(&["clear", &dir, "[1, 2]"]);
    assert_eq!((code, name.as_str()), (Some(3), "inputs-refused"));
    assert_eq!(failed(&["clear", &dir, "--image", "cat.png"]).0, Some(2));
    assert_eq!(failed(&["clear", &dir, "--max-tokens", "3", "[1, 2]"]).0, Some(2));
    for verb in [&["plan", &dir, "--tokens", "4"][..], &["bundle", &dir, "/nowhere"]] {
        let (code, _, message) = failed(verb);
        assert!(code == Some(4) && message.contains("as a graph"), "{verb:?}: {message}");
    }
}

/// Forms for a network, and seconds over the same one or another.
#[test]
fn a_plan_is_for_a_network() {
    let dir = tiny_golden("distilbert").to_string_lossy().into_owned();
    let plan = |more: &[&str]| {
        let output = hushed(&[&["plan", &dir, "--tokens", "16", "--json"], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        json_lines(&output.stdout)[0]["plan"].clone()
    };
    let number = |plan: &serde_json::Value, name: &str| plan[name].as_f64().expect("a number");
    let lan = plan(&[]);
    assert_eq!((&lan["link"], &lan["network"]), (&"lan".into(), &"lan".into()));
    let far = plan(&["--rtt", "80ms", "--bandwidth", "200mbit"]);
    assert_eq!((&far["link"], &far["network"]), (&"80ms/200mbit".into(), &"80ms/200mbit".into()));
    assert_eq!(far["rounds"], plan(&["--net", "80ms/200mbit"])["rounds"]);
    // The forms of a LAN over the same network take longer, with more messages.
    let usual = plan(&["--net", "lan", "--rtt", "80ms", "--bandwidth", "200mbit"]);
    assert_eq!((&usual["link"], &usual["rounds"]), (&"lan".into(), &lan["rounds"]));
    assert!(number(&far, "rounds") < number(&usual, "rounds"));
    let waits = |plan| number(plan, "seconds_in_all") - number(plan, "seconds");
    assert!(waits(&far) < waits(&usual) && waits(&lan) < waits(&far));
    for wrong in [["--net", "fast"], ["--rtt", "40"], ["--bandwidth", "1kbit"]] {
        let output = hushed(&[&["plan", &dir, "--tokens", "16"], &wrong[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

/// Short texts that share places cost less each, and nobody but a batch with public lengths has such places.
#[test]
fn a_plan_of_texts_that_share_places() {
    let dir = tiny_golden("distilbert").to_string_lossy().into_owned();
    let folder = tempfile::tempdir().expect("a folder");
    let counts = folder.path().join("counts.txt");
    let path = counts.to_string_lossy().into_owned();
    std::fs::write(&counts, "5\n16\n3\n\n7\n4\n5\n").expect("a file");
    let plan = |more: &[&str]| {
        let output = hushed(&[&["plan", &dir, "--protocol", "fhe", "--json"], more].concat());
        (output.status.code(), json_lines(&output.stdout).first().map(|line| line["plan"].clone()))
    };
    let of_counts = |more: &[&str]| {
        let (code, plan) = plan(&[&["--token-counts", &path], more].concat());
        assert_eq!(code, Some(0), "{more:?}");
        plan.expect("a plan")
    };
    let number = |plan: &serde_json::Value, name: &str| plan[name].as_u64().expect("a number");
    let (alone, shared) = (of_counts(&[]), of_counts(&["--pack", "4"]));
    // Six texts of 40 tokens in three places of 16 rows.
    let places = number(&alone, "places");
    assert_eq!((number(&alone, "rows"), number(&alone, "texts")), (16, places));
    assert_eq!((number(&shared, "texts"), number(&shared, "places")), (2 * places, 4 * places));
    // Each plan measures the machine's pace anew.
    let of = |value: &serde_json::Value| value.as_f64().expect("a number");
    let seconds = |plan: &serde_json::Value| of(&plan["per_text"]["seconds"]) / of(&plan["prices"]["pace"]);
    assert!(seconds(&shared) < 0.7 * seconds(&alone));
    assert!(number(&shared, "bytes_down") >= 4 * number(&alone, "bytes_down") / 2);
    assert!(shared["exposures"].to_string().contains("share the rows of a place"));
    // Without counts a place has one text.
    let (_, usual) = plan(&["--rows", "16", "--pack", "4"]);
    assert_eq!(number(&usual.expect("a plan"), "texts"), places);
    assert_ne!(plan(&["--rows", "16", "--pack", "4", "--lengths", "private"]).0, Some(0));
    assert_eq!(plan(&["--rows", "16", "--pack", "4", "--texts", "1"]).0, Some(2));
    for wrong in ["", "5\nfive\n", "5\n0\n", "-1"] {
        std::fs::write(&counts, wrong).expect("a file");
        assert_eq!(plan(&["--token-counts", &path]).0, Some(3), "{wrong:?}");
    }
}

/// One machine takes what the plan says, more of them less time and more bytes, and a slow network makes them useless.
#[test]
fn a_plan_for_several_machines() {
    let dir = tiny_golden("distilbert").to_string_lossy().into_owned();
    let run = |more: &[&str]| {
        let plan = ["plan", &dir, "--protocol", "fhe", "--rows", "16", "--json"];
        hushed(&[&plan[..], more].concat())
    };
    let rows = |net: &str, cores: &str| {
        let output = run(&["--machines", "1,2,8", "--cores", cores, "--net", net, "--core-hour", "0.5"]);
        assert_eq!(output.status.code(), Some(0));
        json_lines(&output.stdout)
    };
    let quick = rows("10gbit", "1");
    let seconds = |row: &serde_json::Value| row["on_machines"]["seconds"].as_f64().expect("a number");
    let planned = quick[0]["plan"]["work"]["seconds"].as_f64().expect("a number");
    assert!((seconds(&quick[1]) / planned - 1.0).abs() < 1e-6);
    assert!(seconds(&quick[3]) < seconds(&quick[2]) && seconds(&quick[2]) < seconds(&quick[1]));
    assert_eq!(quick[1]["on_machines"]["moved"], 0);
    assert!(quick[2]["on_machines"]["moved"].as_u64() > quick[0]["plan"]["bytes_up"].as_u64());
    let hours = quick[2]["on_machines"]["core_hours"].as_f64().expect("a number");
    assert!((quick[2]["money"].as_f64().expect("a number") - 0.5 * hours).abs() < 1e-12);
    // So slow beside so many cores that no machine's pace makes up for it.
    let slow = rows("1mbit", "256");
    assert_eq!((&slow[3]["on_machines"]["used"], &slow[3]["on_machines"]["machines"]), (&1.into(), &8.into()));
    assert_eq!(seconds(&slow[3]), seconds(&slow[1]));
    for wrong in [&["--machines", "0"][..], &["--machines", "2", "--net", "10"], &["--core-hour", "1"]] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// What `check` says of a protocol is what that protocol accepts.
#[test]
fn each_protocol_is_named_where_it_runs() {
    for (name, protocols) in [
        ("camembert", &["2pc", "fhe"][..]),
        ("distilbert-classifier", &["2pc"]),
        ("electra-classifier", &["2pc"]),
        ("albert", &["2pc"]),
        ("nomic", &["2pc"]),
        ("mistral", &["2pc"]),
        ("qwen3", &["2pc"]),
        ("olmo2", &["2pc"]),
    ] {
        let folder = variant_folder(name, |_| ());
        let dir = folder.path().to_string_lossy().into_owned();
        let rows = json_lines(&hushed(&["check", &dir, "--json"]).stdout);
        assert_eq!(rows[0]["protocols"], serde_json::json!(protocols), "{name}: {}", rows[0]["details"]);
    }
}

#[test]
fn a_classifier_prints_logits_and_names() {
    let folder = std::env::temp_dir().join(format!("hushed-classifier-{}", std::process::id()));
    tiny_classifier_folder(&folder, &TINY_LABELS).expect("a folder");
    let dir = folder.to_string_lossy().into_owned();
    let check = hushed(&["check", &dir, "--json"]);
    let rows = json_lines(&check.stdout);
    assert_eq!(rows[0]["protocols"], serde_json::json!(["2pc", "fhe"]));
    assert_eq!(rows[0]["model"]["labels"], serde_json::json!(TINY_LABELS));

    let output = hushed(&["clear", &dir, "a private world", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let rows = json_lines(&output.stdout);
    let logits = rows[0]["logits"].as_array().expect("logits");
    assert!(logits.len() == 3 && rows[0]["embedding"].is_null());
    let value = |i: usize| logits[i].as_f64().expect("a number");
    let largest = (0..3).max_by(|&a, &b| value(a).total_cmp(&value(b)));
    assert_eq!(rows[0]["label"], TINY_LABELS[largest.expect("three")]);
    let text = hushed(&["clear", &dir, "a private world"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(TINY_LABELS.iter().all(|name| text.contains(name)), "{text}");

    let plan = hushed(&["plan", &dir, "--tokens", "8", "--json"]);
    let plan = &json_lines(&plan.stdout)[0]["plan"];
    assert!(plan["bytes_up"].as_u64() > Some(0));
    assert!(plan["exposures"].to_string().contains("the class of its text"));
    std::fs::remove_dir_all(&folder).expect("the folder was there");
}

/// `check` says per protocol what runs, and what it does not know.
#[test]
fn check_speaks_of_each_protocol() {
    let folder = std::env::temp_dir().join(format!("hushed-check-{}", std::process::id()));
    let dir = folder.to_string_lossy().into_owned();
    let shown = || {
        let output = hushed(&["check", &dir]);
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    tiny_classifier_folder(&folder, &["one"]).expect("a folder");
    let text = shown();
    assert!(text.contains("- 2pc: the score, one number; texts or pairs of texts of up to "), "{text}");
    assert!(text.contains("- fhe: all logits"), "{text}");
    let rows = json_lines(&hushed(&["check", &dir, "--json"]).stdout);
    assert_eq!(rows[0]["details"]["2pc"]["supported"], true);
    assert_eq!(rows[0]["protocols"], serde_json::json!(["2pc", "fhe"]));
    let plan = |rest: &[&str]| hushed(&[&["plan", &dir, "--tokens", "8"], rest].concat()).status.code();
    assert_eq!((plan(&[]), plan(&["--answers", "logits"]), plan(&["--answers", "label"])), (Some(0), Some(0), Some(3)));

    tiny_classifier_folder(&folder, &TINY_LABELS).expect("a folder");
    let path = folder.join("config.json");
    let config = std::fs::read_to_string(&path).expect("a file");
    let mut config: serde_json::Value = serde_json::from_str(&config).expect("JSON");
    config["problem_type"] = "multi_label_classification".into();
    config["a_new_field"] = 7.into();
    std::fs::write(&path, config.to_string()).expect("a file");
    let text = shown();
    assert!(text.contains("- warning: config.json: the field `a_new_field` is unknown"), "{text}");
    assert!(text.contains("- 2pc: each label whose probability is above one half"), "{text}");
    let checked = json_lines(&hushed(&["check", &dir, "--json"]).stdout);
    let problem_type = &checked.last().expect("a row")["model"]["problem_type"];
    assert_eq!(problem_type, "multi_label_classification", "{checked:?}");
    let rows = json_lines(&hushed(&["clear", &dir, "a private world", "--json"]).stdout);
    let numbers = |field: &str| -> Vec<f64> {
        let list = rows[0][field].as_array().expect("a list").iter();
        list.map(|number| number.as_f64().expect("a number")).collect()
    };
    let (logits, probabilities) = (numbers("logits"), numbers("probabilities"));
    let above = (0..3).filter(|&i| probabilities[i] > 0.5).map(|i| TINY_LABELS[i]);
    let mut named: Vec<&str> =
        rows[0]["labels"].as_array().expect("labels").iter().filter_map(|l| l.as_str()).collect();
    named.sort_by_key(|name| TINY_LABELS.iter().position(|label| label == name));
    assert_eq!(named, above.collect::<Vec<_>>());
    assert!(logits.iter().zip(&probabilities).all(|(x, p)| (p - 1.0 / (1.0 + (-x).exp())).abs() < 1e-12));
    let shown = hushed(&["clear", &dir, "a private world"]).stdout;
    assert!(String::from_utf8_lossy(&shown).contains("(probabilities: "));
    let answers = |answers: &str| plan(&["--answers", answers]);
    assert_eq!(
        (plan(&[]), answers("above:0.3"), answers("logits"), answers("label")),
        (Some(0), Some(0), Some(0), Some(3))
    );
    std::fs::remove_dir_all(&folder).expect("the folder was there");
}

/// Images in place of texts: checked, planned, calibrated and classified in the clear.
#[test]
fn images_are_classified() {
    let dir = tiny_golden("vit").to_string_lossy().into_owned();
    let image = |name: &str| format!("{dir}/images/{name}");
    let check = hushed(&["check", &dir, "--json"]);
    let rows = json_lines(&check.stdout);
    assert_eq!(rows[0]["protocols"], serde_json::json!(["2pc"]));
    assert_eq!(rows[0]["model"]["image_side"], 32);
    let shown = hushed(&["check", &dir]).stdout;
    let shown = String::from_utf8_lossy(&shown).into_owned();
    assert!(shown.contains("images of 32 × 32 points"), "{shown}");

    let (wide, gray) = (image("wide.png"), image("gray.png"));
    let images = ["--image", &wide, "--image", &gray, "--json"];
    let clear = hushed(&[&["clear", &dir], &images[..]].concat());
    let rows = json_lines(&clear.stdout);
    assert_eq!((rows.len(), &rows[1]["tokens"]), (3, &17.into()));
    assert_eq!(rows[1]["logits"].as_array().expect("logits").len(), 5);
    let plan = hushed(&["plan", &dir, "--images", "2", "--json"]);
    let plan = &json_lines(&plan.stdout)[0]["plan"];
    assert_eq!(plan["tokens"], serde_json::json!([17, 17]));
    assert!(plan["exposures"].to_string().contains("that they are images"));
    let encrypted = ["plan", &dir, "--protocol", "fhe", "--images", "2", "--json"];
    let plan = &json_lines(&hushed(&encrypted).stdout)[0]["plan"];
    assert_eq!((&plan["rows"], &plan["logits"]), (&32.into(), &5.into()));
    let model = std::env::temp_dir().join("hushed-vit.public").to_string_lossy().into_owned();
    let offered = hushed(&[&encrypted[..], &["--public-embedding", "--public-model", &model]].concat());
    assert_eq!((offered.status.code(), &common::error(&offered)["name"]), (Some(4), &"unsupported".into()));

    let verified = json_lines(&hushed(&[&["verify", &dir], &images[..]].concat()).stdout);
    assert_eq!(verified[0]["same_label"], true);
    assert!(verified[1]["cosine"].as_f64() > Some(0.999));
    assert_eq!(verified.last().expect("an end")["texts"], 2);

    let written = std::env::temp_dir().join(format!("hushed-vit-{}.json", std::process::id()));
    let output = written.to_string_lossy().into_owned();
    let calibrate = [&["calibrate", &dir, "--output", &output], &images[..]].concat();
    let rows = json_lines(&hushed(&calibrate).stdout);
    assert_eq!(rows.last().expect("a summary")["beyond"], 0);
    assert!(written.is_file());
    std::fs::remove_file(&written).expect("it was written");

    // A text, an image that is not one, images for a model of texts, tokens for images.
    let encoder = tiny_golden("roberta").to_string_lossy().into_owned();
    let config = format!("{dir}/config.json");
    for (arguments, name) in [
        (["clear", &dir, "a text", "--json"].as_slice(), "text-refused"),
        (&["clear", &dir, "--image", &config, "--json"], "image-refused"),
        (&["clear", &encoder, "--image", &wide, "--json"], "image-refused"),
        (&["verify", &encoder, "--image", &wide, "--json"], "image-refused"),
        (&["plan", &dir, "--tokens", "17", "--json"], "tokens"),
        (&["plan", &encoder, "--images", "1", "--json"], "tokens"),
    ] {
        let output = hushed(arguments);
        assert_eq!(output.status.code(), Some(3), "{arguments:?}");
        assert_eq!(common::error(&output)["name"], name, "{arguments:?}");
    }
}

/// The text is shown as it comes, with its ids under --json.
#[test]
fn a_generator_continues_a_text() {
    let dir = tiny_golden("gpt2-sharded").to_string_lossy().into_owned();
    let check = hushed(&["check", &dir, "--json"]);
    let rows = json_lines(&check.stdout);
    assert_eq!(rows[0]["model"]["task"], "generate");
    assert_eq!(rows[0]["protocols"], serde_json::json!(["2pc", "fhe"]));

    let clear = |more: &[&str]| hushed(&[&["clear", &dir, "Hello world", "--max-tokens"], more].concat());
    let rows = json_lines(&clear(&["7", "--json"]).stdout);
    let ids = rows[0]["ids"].as_array().expect("ids");
    assert_eq!((ids.len(), &rows[0]["ending"]), (7, &"max-tokens".into()));
    let text = rows[0]["generated"].as_str().expect("a text");
    let shown = clear(&["7"]).stdout;
    let escape = |c: char| match c.is_control() && c != '\n' && c != '\t' {
        true => c.escape_unicode().collect::<Vec<_>>(),
        false => vec![c],
    };
    let escaped: String = text.chars().flat_map(escape).collect();
    assert_eq!(String::from_utf8_lossy(&shown), escaped + "\n");
    // Texts and positions: 160 of them.
    let rows = json_lines(&clear(&["500", "--json"]).stdout);
    let made = rows[0]["ids"].as_array().expect("ids").len() as u64;
    assert_eq!(rows[0]["ending"], "positions");
    assert_eq!(rows[0]["tokens"].as_u64().expect("a number") + made, 160);

    assert_eq!(clear(&["0"]).status.code(), Some(2));
    let encoder = tiny_golden("roberta").to_string_lossy().into_owned();
    let output = hushed(&["clear", &encoder, "x", "--max-tokens", "3", "--json"]);
    assert_ne!(output.status.code(), Some(0));
    assert!(common::error(&output)["message"].to_string().contains("does not generate"));
    // One plan per token, of which the first and the last are shown, and their sum.
    let plan = |more: &[&str]| hushed(&[&["plan", &dir, "--json", "--tokens"], more].concat());
    let rows = json_lines(&plan(&["8", "--max-tokens", "3"]).stdout);
    assert_eq!(rows.len(), 3);
    let up = |row: &serde_json::Value| row["bytes_up"].as_u64().expect("bytes");
    let (first, last) = (up(&rows[0]["plan"]), up(&rows[1]["last_token"]));
    assert!(last < first && up(&rows[2]["all"]) > first + last);
    for wrong in [&["159", "--max-tokens", "3"][..], &["0"], &["3,4"]] {
        let refused = plan(wrong);
        assert_eq!(refused.status.code(), Some(3), "{wrong:?}");
        assert_eq!(common::error(&refused)["name"], "tokens");
    }
}

/// The same for a decoder with relative positions: checked, measured, planned, continued; planned with `fhe`.
#[test]
fn a_decoder_with_relative_positions_is_a_generator() {
    let folder = std::env::temp_dir().join(format!("hushed-relative-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for entry in std::fs::read_dir(tiny_golden("llama")).expect("a folder") {
        let entry = entry.expect("a file");
        std::fs::copy(entry.path(), folder.join(entry.file_name())).expect("a copy");
    }
    let dir = folder.to_string_lossy().into_owned();
    let rows = json_lines(&hushed(&["check", &dir, "--json"]).stdout);
    assert_eq!(rows[0]["protocols"], serde_json::json!(["2pc", "fhe"]));

    let sample = folder.join("sample.txt");
    std::fs::write(&sample, "Hello world\nA private text\n".repeat(4)).expect("a file");
    let sample = sample.to_string_lossy().into_owned();
    let calibrate = hushed(&["calibrate", &dir, "--input", &sample, "--declare", "--json"]);
    let rows = json_lines(&calibrate.stdout);
    assert_eq!(rows.last().expect("an end")["beyond"], 0);
    let product = rows.iter().find(|r| r["fit"]["site"] == "layer.0.feed_forward.product");
    assert_eq!(product.expect("a product")["fits"], true);
    assert!(folder.join("functions.json").is_file());

    let clear = hushed(&["clear", &dir, "Hello world", "--max-tokens", "4", "--json"]);
    let rows = json_lines(&clear.stdout);
    assert_eq!(rows[0]["ids"].as_array().expect("ids").len(), 4);
    let plan = hushed(&["plan", &dir, "--tokens", "8", "--max-tokens", "2", "--json"]);
    assert!(json_lines(&plan.stdout)[0]["plan"]["bytes_up"].as_u64() > Some(0));
    // Under encryption a batch of such texts is read at its logits; a single text has no circuit.
    let fhe = ["plan", &dir, "--tokens", "8", "--protocol", "fhe", "--json"];
    let rows = json_lines(&hushed(&fhe).stdout);
    assert_eq!(rows[0]["plan"]["answer"], "logits");
    let refused = hushed(&[&fhe[..], &["--texts", "1"]].concat());
    assert_eq!(refused.status.code(), Some(4));
    let error = common::error(&refused);
    assert_eq!(error["name"], "unsupported");
    assert!(error["message"].to_string().contains("softmax"), "{error}");
    std::fs::remove_dir_all(&folder).expect("the folder was there");
}

/// A few texts at a time are answered soonest; a batch takes the fewest seconds per text.
#[test]
fn goals_choose_different_numbers_of_texts() {
    let folder = tempfile::tempdir().expect("a folder");
    tiny_folder(folder.path()).expect("a model");
    let dir = folder.path().to_string_lossy();
    let chosen = |goal: &str| {
        let plan = ["plan", &dir, "--protocol", "fhe", "--rows", "16", "--json"];
        let goal = ["--threads", "1", "--goal", goal];
        let rows = json_lines(&hushed(&[&plan[..], &goal].concat()).stdout);
        let points = rows.iter().map(|row| &row["curve"]);
        let chosen: Vec<&Value> = points.filter(|point| point["chosen"] == true).collect();
        assert_eq!(chosen.len(), 1, "{rows:?}");
        let plan = &rows.last().expect("a plan")["plan"];
        assert_eq!(plan["texts"], chosen[0]["texts"]);
        let columns = &plan["placement"]["columns"];
        (chosen[0]["texts"].as_u64(), columns.as_u64())
    };
    assert_eq!(chosen("latency"), (Some(128), Some(16)));
    assert_eq!(chosen("throughput"), (Some(2048), None));
}

#[test]
fn clear_embeds_and_similar_texts_are_similar() {
    let Some(model) = model() else { return };
    let file = std::env::temp_dir().join(format!("hushed-clear-{}.txt", std::process::id()));
    std::fs::write(&file, "A happy person\nA happy human being\nIt rains in Spain\n").expect("a file");
    let output = hushed(&["clear", &model, "--input", &file.to_string_lossy(), "--json"]);
    std::fs::remove_file(&file).expect("the file was there");
    assert_eq!(output.status.code(), Some(0));

    let rows = json_lines(&output.stdout);
    let vectors = embeddings(&rows);
    assert_eq!(vectors.len(), 3);
    let length: f64 = vectors[0].iter().map(|x| x * x).sum();
    assert!((length - 1.0).abs() < 1e-9, "unit length");
    let (near, far) = (cosine(&vectors[0], &vectors[1]), cosine(&vectors[0], &vectors[2]));
    assert!(near > 0.7 && far < 0.4, "{near} {far}");
}

#[test]
fn a_refused_text_is_named_by_its_index_and_not_shown() {
    let Some(model) = model() else { return };
    let long = "secretword ".repeat(400);
    let output = hushed(&["clear", &model, &long, "--json"]);
    assert_eq!(output.status.code(), Some(3));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("text 0") && !stderr.contains("secretword"), "{stderr}");
    let cut = hushed(&["clear", &model, &long, "--json", "--truncate"]);
    assert_eq!(cut.status.code(), Some(0));
    assert_eq!(json_lines(&cut.stdout)[0]["tokens"], 256);
}

/// The folder is reached through links, so that what is written beside the model stays here.
#[test]
fn calibrate_chooses_a_function_and_declares_it() {
    let Some(model) = model() else { return };
    let dir = std::env::temp_dir().join(format!("hushed-calibrate-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let model = std::fs::canonicalize(model).expect("the model");
    for entry in std::fs::read_dir(&model).expect("its files").flatten() {
        if entry.file_name() != "functions.json" {
            std::os::unix::fs::symlink(entry.path(), dir.join(entry.file_name())).expect("a link");
        }
    }
    let sample = dir.join("sample.txt");
    std::fs::write(&sample, "Which planet is the largest?\nBread.\n").expect("a sample");
    let (folder, sample) = (dir.to_string_lossy(), sample.to_string_lossy());
    let calibrate = |more: &[&str]| {
        let output = dir.join("out.json");
        let mut args = vec!["calibrate", &folder, "--input", &sample, "--json", "--force", "--output"];
        let output = output.to_string_lossy();
        args.push(&output);
        args.extend(more);
        json_lines(&hushed(&args).stdout)
    };
    let file = dir.join("functions.json");
    let rows = calibrate(&[]);
    let trial = rows.iter().rfind(|r| r["keeps"] == true).expect("a trial");
    assert_eq!(trial["trial"]["function"], "gelu8");
    assert!(!file.exists(), "nothing is declared unasked");

    let hash = || json_lines(&hushed(&["bundle", &folder, &format!("{folder}/b"), "--force", "--json"]).stdout);
    let before = hash();
    let rows = calibrate(&["--declare"]);
    let declared = &rows.last().expect("a summary")["declared"];
    let file: Value = serde_json::from_slice(&std::fs::read(&file).expect("written")).expect("JSON");
    assert_eq!(file["activation_reach"], declared["reach"]);
    assert_eq!(hushed(&["check", &folder]).status.code(), Some(0));
    assert_ne!(hash(), before, "the declaration is part of the bundle");
    std::fs::remove_dir_all(&dir).expect("the folder goes");
}
