//! `hushed prune` as a user runs it.
#![forbid(unsafe_code)]

use crate::common::{error, hushed, json_lines};
use hushed_model::testing::tiny_golden;

/// Texts that are too long are cut for fitting and for scoring, and what cannot be compared is refused at once.
#[test]
fn a_decoder_is_pruned_on_texts_that_are_cut() {
    let work = tempfile::tempdir().expect("a folder");
    let at = |name: &str| work.path().join(name).to_string_lossy().into_owned();
    let (dir, sample, to) = (tiny_golden("gpt2"), at("sample.txt"), at("pruned"));
    let dir = dir.to_string_lossy();
    let long = format!("{}\n", "Hello world, a private text. ".repeat(80));
    let prune = |texts: usize, more: &[&str]| {
        std::fs::write(&sample, long.repeat(texts)).expect("a sample");
        let args = [
            "prune", &dir, "--layers", "1", "--input", &sample, "--out", &to, "--json",
        ];
        hushed(&[&args, more].concat())
    };
    let refused = prune(3, &["--truncate"]);
    assert_eq!(refused.status.code(), Some(3));
    assert_eq!(error(&refused)["name"], "sample-too-small");
    assert_eq!(error(&prune(4, &[]))["name"], "text-refused");
    let done = prune(4, &["--truncate"]);
    let rows = json_lines(&done.stdout);
    let end = rows.last().expect("an end");
    assert_eq!(
        end["compared"],
        1,
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    assert!(end["perplexity"]["after"].as_f64().expect("a number") > 1.0);
    assert!(work.path().join("pruned/config.json").is_file());
}
