//! `hushed prune` as a user runs it.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;

use crate::common::{error, hushed, json_lines};
use hushed_model::testing::tiny_golden;
use serde_json::Value;

/// Texts of the tiny models' own words: enough rows for a fit.
fn texts() -> String {
    let words = ["the", "of", "and", "in", "to", "was", "is", "for", "on", "as"];
    let text = |i: usize| -> String {
        let word = |j: usize| words[(i * 7 + j * 3 + i * j) % words.len()];
        (0..6).map(|j| word(j).to_owned() + " ").collect()
    };
    (0..24).map(|i| text(i) + "\n").collect()
}

/// Prunes a layer of a tiny model, with a file of what is known as `option`.
fn known(work: &Path, model: &str, (option, lines): (&str, &str)) -> std::process::Output {
    let at = |name: &str| work.join(name).to_string_lossy().into_owned();
    let (dir, sample, known, to) = (tiny_golden(model), at("sample"), at("known"), at("pruned"));
    fs::write(&sample, texts()).expect("a sample");
    fs::write(&known, lines).expect("a file");
    let _ = fs::remove_dir_all(&to);
    let dir = dir.to_string_lossy();
    let args = ["prune", &dir, "--layers", "1", "--input", &sample, "--out", &to, option, &known, "--json"];
    hushed(&args)
}

fn end(output: &std::process::Output) -> Value {
    let rows = json_lines(&output.stdout);
    let text = String::from_utf8_lossy(&output.stderr);
    rows.last().unwrap_or_else(|| panic!("{text}")).clone()
}

/// The answers of `hushed clear` to texts, by a field.
fn clear(dir: &str, texts: &str, work: &Path) -> Vec<Vec<f64>> {
    let file = work.join("clear").to_string_lossy().into_owned();
    fs::write(&file, texts).expect("a file");
    let done = hushed(&["clear", dir, "--input", &file, "--json"]);
    let rows = json_lines(&done.stdout);
    let numbers = |row: &Value| {
        let all = row["embedding"].as_array().or(row["logits"].as_array())?;
        Some(all.iter().filter_map(Value::as_f64).collect())
    };
    rows.iter().filter_map(numbers).collect()
}

fn largest(numbers: &[f64]) -> usize {
    let all = numbers.iter().enumerate();
    all.max_by(|a, b| a.1.total_cmp(b.1)).expect("numbers").0
}

/// The accuracy of a classifier is what counting the answers of both folders gives.
#[test]
fn a_classifier_is_measured_on_labelled_texts() {
    let work = tempfile::tempdir().expect("a folder");
    let model = "roberta-classifier";
    let names = ["no", "perhaps", "yes"];
    let all = texts();
    let lines: Vec<&str> = all.lines().take(9).collect();
    let before = tiny_golden(model).to_string_lossy().into_owned();
    let answers = clear(&before, &lines.join("\n"), work.path());
    assert_eq!(answers.len(), 9);
    // Two of three labels are what the model answers.
    let class = |i: usize| match i % 3 {
        0 => (largest(&answers[i]) + 1) % 3,
        _ => largest(&answers[i]),
    };
    let labelled = lines.iter().enumerate();
    let labelled: String = labelled.map(|(i, text)| format!("{}\t{text}\n", names[class(i)])).collect();
    let done = known(work.path(), model, ("--labels", &labelled));
    let end = end(&done);
    assert_eq!(end["accuracy"]["over"], 9);
    let near = |value: &Value, share: f64| (value.as_f64().expect("a number") - share).abs() < 1e-9;
    assert!(near(&end["accuracy"]["before"], 6.0 / 9.0), "{end}");
    let pruned = work.path().join("pruned").to_string_lossy().into_owned();
    let answers = clear(&pruned, &lines.join("\n"), work.path());
    let right = answers.iter().enumerate().filter(|(i, a)| largest(a) == class(*i)).count();
    assert!(near(&end["accuracy"]["after"], right as f64 / 9.0), "{end}");

    for (bad, says) in [
        ("yes\ta\nmaybe\tb\n", "line 2: not a label of this model, which has no, perhaps, yes"),
        ("yes\ta\nwithout a label\n", "line 2: expected label and text"),
    ] {
        let refused = known(work.path(), model, ("--labels", bad));
        assert_eq!(refused.status.code(), Some(3), "{bad}");
        let error = error(&refused);
        assert_eq!(error["name"], "labels-malformed");
        assert!(error["message"].as_str().is_some_and(|m| m.contains(says)), "{error}");
        assert!(!work.path().join("pruned").exists());
    }
    let refused = known(work.path(), model, ("--perplexity", "a text\n"));
    assert_eq!((refused.status.code(), error(&refused)["name"].as_str()), (Some(2), Some("usage")));
}

/// Where several classes may be right, an answer is right with exactly those that were given.
#[test]
fn several_labels_of_a_text_are_measured_together() {
    let work = tempfile::tempdir().expect("a folder");
    let model = "multi-label";
    let names = ["complaint", "invoice", "notice", "question", "urgent"];
    let all = texts();
    let lines: Vec<&str> = all.lines().take(8).collect();
    let said = |folder: &Path| -> Vec<Vec<usize>> {
        let answers = clear(&folder.to_string_lossy(), &lines.join("\n"), work.path());
        answers.iter().map(|logits| (0..5).filter(|&class| logits[class] > 0.0).collect()).collect()
    };
    let before = said(&tiny_golden(model));
    assert!(before.iter().any(|classes| classes.len() > 1), "{before:?}");
    // Every fourth text is given class 2 if the model does not say it, and not if it does.
    let given = |i: usize| match i % 4 {
        0 => (0..5).filter(|class| before[i].contains(class) != (*class == 2)).collect(),
        _ => before[i].clone(),
    };
    let labelled = lines.iter().enumerate().map(|(i, text)| {
        let labels: Vec<&str> = given(i).into_iter().rev().map(|class| names[class]).collect();
        format!("{}\t{text}\n", labels.join("|"))
    });
    let labelled: String = labelled.collect();
    let done = end(&known(work.path(), model, ("--labels", &labelled)));
    assert_eq!((done["accuracy"]["over"].as_u64(), done["accuracy"]["before"].as_f64()), (Some(8), Some(6.0 / 8.0)));
    let after = said(&work.path().join("pruned"));
    let right = (0..8).filter(|&i| after[i] == given(i)).count();
    assert_eq!(done["accuracy"]["after"].as_f64(), Some(right as f64 / 8.0), "{done}");
    // Of the texts that were left out, those whose labels are all the same.
    assert!(done["compared"] == 6 && done["same"].as_u64().is_some_and(|same| same <= 6), "{done}");
    let refused = known(work.path(), model, ("--labels", "notice|other\ta\n"));
    assert_eq!(error(&refused)["name"], "labels-malformed");
}

/// A head of one number scores pairs, each of which it reads as one.
#[test]
fn scores_are_ranked_before_and_after() {
    let work = tempfile::tempdir().expect("a folder");
    let (model, all) = ("cross-encoder", texts());
    let lines: Vec<&str> = all.lines().collect();
    let file = work.path().join("documents").to_string_lossy().into_owned();
    fs::write(&file, lines[1..7].join("\n")).expect("a file");
    let query = work.path().join("query").to_string_lossy().into_owned();
    fs::write(&query, lines[0]).expect("a file");
    let dir = tiny_golden(model).to_string_lossy().into_owned();
    let scored = hushed(&["clear", &dir, "--query-file", &query, "--input", &file, "--json"]);
    let scores: Vec<f64> = json_lines(&scored.stdout).iter().filter_map(|row| row["logits"][0].as_f64()).collect();
    assert_eq!(scores.len(), 6);
    let pairs: String = (1..7).map(|i| format!("{}\t{}\t{}\n", lines[0], lines[i], scores[i - 1])).collect();
    let done = end(&known(work.path(), model, ("--labels", &pairs)));
    let ranks = &done["rank_correlation"];
    assert!(ranks["over"] == 6 && ranks["before"].as_f64().is_some_and(|r| r > 0.999), "{done}");
    // One number has no direction: that both folders give one of the same sign says nothing.
    assert!(done["difference_max"].as_f64() > done["difference_mean"].as_f64(), "{done}");
    assert!(done["difference_mean"].as_f64().is_some_and(|mean| mean > 0.0), "{done}");
    assert_eq!(error(&known(work.path(), model, ("--labels", "LABEL_0\ta\n")))["name"], "labels-malformed");

    let labels = work.path().join("known").to_string_lossy().into_owned();
    fs::write(&labels, &pairs).expect("a file");
    let verified = json_lines(&hushed(&["verify", &dir, "--labels", &labels, "--json"]).stdout);
    assert_eq!(verified.iter().filter(|row| row["difference"].as_f64().is_some_and(|d| d < 0.02)).count(), 6);
    let ranks = &verified.last().expect("an end")["rank_correlation"];
    assert!(ranks["clear"].as_f64().is_some_and(|r| r > 0.999), "{ranks}");
    assert!(ranks["private"].as_f64().is_some_and(|r| r.abs() <= 1.0), "{ranks}");
}

/// Scores that are the cosines themselves are ranked as they were before, and perhaps otherwise after.
#[test]
fn embeddings_are_measured_on_scored_pairs() {
    let work = tempfile::tempdir().expect("a folder");
    let all = texts();
    let lines: Vec<&str> = all.lines().collect();
    let before = tiny_golden("roberta").to_string_lossy().into_owned();
    let answers = clear(&before, &all, work.path());
    let cosine = |i: usize| hushed_model::cosine(&answers[2 * i], &answers[2 * i + 1]);
    let pairs: String = (0..12).map(|i| format!("{}\t{}\t{}\n", lines[2 * i], lines[2 * i + 1], cosine(i))).collect();
    let end = end(&known(work.path(), "roberta", ("--labels", &pairs)));
    let ranks = &end["rank_correlation"];
    assert_eq!(ranks["over"], 12, "{end}");
    assert!(ranks["before"].as_f64().is_some_and(|r| r > 0.999), "{end}");
    assert!(ranks["after"].as_f64().is_some_and(|r| r.abs() <= 1.0), "{end}");
    let refused = known(work.path(), "roberta", ("--labels", "a\tb\n"));
    assert_eq!(error(&refused)["name"], "labels-malformed");
}

/// A decoder is measured by the perplexity of other texts, as `clear --perplexity` has it, and by its choices.
#[test]
fn a_decoder_is_measured_on_texts_and_choices() {
    let work = tempfile::tempdir().expect("a folder");
    let (dir, held) = (tiny_golden("gpt2"), "the quick brown fox\nof the people\n");
    let file = work.path().join("held").to_string_lossy().into_owned();
    fs::write(&file, held).expect("a file");
    let clear = hushed(&["clear", &dir.to_string_lossy(), "--perplexity", &file, "--json"]);
    let clear = end(&clear)["perplexity"].as_f64().expect("a number");
    let done = end(&known(work.path(), "gpt2", ("--perplexity", held)));
    let before = done["perplexity"]["before"].as_f64().expect("a number");
    assert!((before / clear - 1.0).abs() < 1e-9, "{before} {clear}");
    assert_eq!(done["perplexity"]["over"], 2);
    let item = r#"{"prompt": "the", "endings": [" people", " quick brown fox"], "label": 1}"#;
    let done = end(&known(work.path(), "gpt2", ("--choices", item)));
    assert_eq!(done["accuracy"]["over"], 1);
    let other = item.replace(": 1}", ": 0}");
    let turned = end(&known(work.path(), "gpt2", ("--choices", &other)));
    let of = |end: &Value| end["accuracy"]["before"].as_f64().expect("a number");
    assert_eq!(of(&done) + of(&turned), 1.0);
    let unlabelled = item.replace(", \"label\": 1", "");
    for bad in [("--choices", unlabelled.as_str()), ("--labels", "a\tb\t1\n")] {
        let name = error(&known(work.path(), "gpt2", bad))["name"].clone();
        assert!(name == "labels-malformed" || name == "usage", "{name}");
    }
}

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
        let args = ["prune", &dir, "--layers", "1", "--input", &sample, "--out", &to, "--json"];
        hushed(&[&args, more].concat())
    };
    let refused = prune(3, &["--truncate"]);
    assert_eq!(refused.status.code(), Some(3));
    assert_eq!(error(&refused)["name"], "sample-too-small");
    assert_eq!(error(&prune(4, &[]))["name"], "text-refused");
    let done = prune(4, &["--truncate"]);
    let rows = json_lines(&done.stdout);
    let end = rows.last().expect("an end");
    assert_eq!(end["compared"], 1, "{}", String::from_utf8_lossy(&done.stderr));
    assert!(end["perplexity"]["after"].as_f64().expect("a number") > 1.0);
    assert!(work.path().join("pruned/config.json").is_file());
}
