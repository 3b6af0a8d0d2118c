//! The binary as a user runs it: names, exit codes, and a case for which it starts itself twice.

use std::process::{Command, Output};

use serde_json::Value;

fn run(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hushed-bench"));
    let settings = std::env::vars().map(|(name, _)| name);
    for name in settings.filter(|n| n.starts_with("HUSHED_") && !n.starts_with("HUSHED_DENY_")) {
        command.env_remove(name);
    }
    command.args(args).output().expect("the binary starts")
}

fn objects(bytes: &[u8]) -> Vec<Value> {
    let text = String::from_utf8_lossy(bytes);
    text.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect()
}

#[test]
fn a_case_of_two_parties_gives_one_row() {
    let output = run(&["truncate", "--runs", "1", "--json"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let rows = objects(&output.stdout);
    assert!(!rows.is_empty());
    for row in rows {
        assert_eq!(row["name"], "truncate");
        assert!(row["seconds"].as_f64().is_some_and(|s| s > 0.0));
        assert!(row["bytes_up"].as_u64().is_some_and(|b| b > 0));
        assert!(row["cpu_seconds"]["server"].is_number());
        assert!(row["machine"]["cores"].is_number() && row["commit"].is_string());
    }
}

/// A network of any figures, with forms for it or for another.
#[test]
fn a_shaped_network_has_forms_of_its_own() {
    let network = ["--rtt", "2ms", "--bandwidth", "300mbit", "--runs", "1", "--json", "--only", "12"];
    let rows = |forms: &[&str]| {
        let output = run(&[&["softmax"], network.as_slice(), forms].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        objects(&output.stdout)
    };
    let (own, lan) = (rows(&[]), rows(&["--forms", "lan"]));
    assert!(!own.is_empty() && own.len() == lan.len());
    for (own, lan) in own.iter().zip(&lan) {
        assert_eq!((&own["net"], &own["forms"]), (&lan["net"], &"2ms/300mbit".into()));
        assert_eq!((&lan["net"], &lan["forms"]), (&"2ms/300mbit".into(), &"lan".into()));
        assert!(own["rounds"].as_u64() <= lan["rounds"].as_u64());
    }
    let refused = run(&["softmax", "--rtt", "2ms", "--bandwidth", "1kbit"]);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn an_unknown_name_is_wrong_usage() {
    let names = objects(&run(&["--list", "--json"]).stdout);
    assert!(names.iter().any(|suite| suite["name"] == "bootstrap"));
    let output = run(&["nothing", "--json"]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(objects(&output.stderr)[0]["error"]["name"], "usage");
    assert_eq!(run(&[]).status.code(), Some(2));
}

#[test]
fn wrong_usage_is_an_object_under_json() {
    for args in [&["--json"][..], &["softmax", "--runs", "-1", "--json"], &["softmax", "--no-such-option", "--json"]] {
        let output = run(args);
        let [object] = &objects(&output.stderr)[..] else { panic!("one object: {output:?}") };
        assert_eq!((output.status.code(), &object["error"]["name"]), (Some(2), &"usage".into()), "{args:?}");
        assert_eq!(object["error"]["exit_code"], 2);
    }
}
