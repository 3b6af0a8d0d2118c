use serde_json::{Value, json};

use super::*;
use crate::arch::Architecture;
use crate::arch::config::NetworkConfig;
use crate::arch::kind::MODEL_TYPES;
use crate::error::Problem;
use crate::folder::config::{CONFIG, scores};
use crate::folder::pooling::matryoshka;

/// What versions of the libraries write (scripts/published_fields.py).
fn published() -> Map<String, Value> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/fields.json");
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// The tables of a file other than `config.json`.
fn tables_of(file: &str) -> Vec<Table> {
    let table = match file {
        "generation_config.json" => GENERATION,
        "tokenizer_config.json" => TOKENIZER_CONFIG,
        "preprocessor_config.json" => PREPROCESSOR,
        "1_Pooling/config.json" => POOLING,
        "2_Normalize/config.json" => NORMALIZE,
        "sentence_bert_config.json" => SENTENCE,
        other => panic!("{other}"),
    };
    vec![table.into()]
}

fn architecture(config: &Value) -> Architecture {
    let name = config["model_type"].as_str().unwrap();
    MODEL_TYPES.iter().find(|(of, _)| *of == name).unwrap().1
}

/// The fields that [`refuse`] reports.
fn refused(object: &Value, tables: &[Table]) -> Vec<&'static str> {
    let mut problems = Vec::new();
    let object = object.as_object().unwrap();
    refuse(&mut Fields::new(CONFIG, object, &mut problems), tables);
    let field = |problem| match problem {
        Problem::UnsupportedValue { field, .. } => field,
        other => panic!("{other}"),
    };
    problems.into_iter().map(field).collect()
}

#[test]
fn every_field_that_a_library_writes_is_listed_and_its_default_is_accepted() {
    let mut compared = 0;
    for (version, files) in published() {
        for (file, written) in files.as_object().unwrap() {
            let objects: Vec<(Vec<Table>, Value)> = match (file.as_str(), written) {
                ("config.json", Value::Object(classes)) => {
                    classes.values().map(|written| (architecture(written).fields(), written.clone())).collect()
                }
                ("tokenizer_config.json", Value::Object(classes)) => {
                    classes.values().map(|written| (tables_of(file), written.clone())).collect()
                }
                // A list of names without defaults.
                (_, Value::Array(names)) => {
                    let names = names.iter().map(|n| (n.as_str().unwrap().to_owned(), json!(null)));
                    vec![(tables_of(file), names.collect::<Map<_, _>>().into())]
                }
                (_, written) => vec![(tables_of(file), written.clone())],
            };
            for (tables, object) in objects {
                let none = Vec::<&str>::new();
                let unknown: Vec<&str> = unknown(object.as_object().unwrap(), &tables).collect();
                assert_eq!(unknown, none, "{version}: {file}");
                assert_eq!(refused(&object, &tables), none, "{version}: {file}");
                compared += 1;
            }
        }
    }
    assert!(compared > 50, "{compared}");
}

/// The configuration of every architecture by the defaults of the newest version, with what it needs beside them.
fn configurations() -> Vec<Value> {
    let published = published();
    let newest = published.iter().rfind(|(version, _)| version.starts_with("transformers"));
    let classes = newest.unwrap().1["config.json"].as_object().unwrap().clone();
    let mut all: Vec<Value> = classes.into_values().collect();
    for config in &mut all {
        if config["model_type"] == "vit" {
            config["architectures"] = json!(["ViTForImageClassification"]);
        }
        let mut problems = Vec::new();
        assert!(NetworkConfig::parse(config.to_string().as_bytes(), &mut problems).is_some(), "{problems:?}");
    }
    all
}

#[test]
fn a_value_that_changes_answers_is_refused_by_its_name() {
    let mut checked = 0;
    for whole in configurations() {
        for (field, found) in architecture(&whole).fields().iter().flat_map(|table| table.iter()).copied() {
            let first = find(&architecture(&whole).fields(), field);
            let (Only(neutral, _), Some(Only(..))) = (found, first) else {
                continue;
            };
            let mut config = whole.clone();
            for value in neutral.iter().copied().chain(["null"]) {
                config[field] = serde_json::from_str(value).unwrap();
                assert!(NetworkConfig::parse(config.to_string().as_bytes(), &mut Vec::new()).is_some());
            }
            config[field] = json!({ "not": "neutral" });
            let mut problems = Vec::new();
            assert!(NetworkConfig::parse(config.to_string().as_bytes(), &mut problems).is_none());
            let named = |p: &Problem| p.to_string().contains(&format!("`{field}`"));
            assert!(problems.iter().all(named), "{field}: {problems:?}");
            checked += 1;
        }
    }
    assert!(checked > 40, "{checked}");
}

/// What a table says is read is read: a value of the wrong type is a problem, or gives another configuration.
#[test]
fn what_is_read_has_an_effect() {
    for whole in configurations() {
        let mut whole = whole;
        let architecture = architecture(&whole);
        if let Some(encoder) = architecture.encoder() {
            whole["architectures"] = json!(encoder.head.architectures[..1]);
        }
        let parse = |config: &Value| NetworkConfig::parse(config.to_string().as_bytes(), &mut Vec::new());
        let plain = parse(&whole);
        let tables = architecture.fields();
        let reads = tables.iter().flat_map(|table| table.iter()).filter(|(_, found)| matches!(found, Read));
        for (field, _) in reads {
            let mut config = whole.clone();
            if *field == "num_labels" {
                config.as_object_mut().unwrap().remove("id2label");
            }
            if find(&architecture.fields(), field).is_some_and(|first| !matches!(first, Read)) {
                continue;
            }
            // Not sound as an object, nor as a list.
            config[*field] = json!([{ "wrong": "type" }]);
            // Read by an encoder of another kind of model only.
            let elsewhere = match *field {
                "problem_type" | "id2label" | "num_labels" => plain.as_ref().unwrap().labels.is_none(),
                // Read beside the pooling.
                "is_matryoshka" | "matryoshka_dimensions" => {
                    let mut problems = Vec::new();
                    matryoshka(config.to_string().as_bytes(), 1, &mut problems);
                    !problems.is_empty()
                }
                // Read with the classifier of a folder.
                "sentence_transformers" | "sbert_ce_default_activation_function" => {
                    let mut problems = Vec::new();
                    scores::parse(config.to_string().as_bytes(), None, &mut problems);
                    !problems.is_empty()
                }
                _ => false,
            };
            assert!(elsewhere || parse(&config) != plain, "{architecture:?}: {field}");
        }
    }
}

#[test]
fn other_files_refuse_by_name() {
    for file in [
        "generation_config.json",
        "tokenizer_config.json",
        "preprocessor_config.json",
        "1_Pooling/config.json",
        "sentence_bert_config.json",
    ] {
        let tables = tables_of(file);
        for (field, found) in tables.iter().flat_map(|table| table.iter()) {
            let expected = match *found {
                Only(..) => vec![*field],
                Read | Nothing => Vec::new(),
            };
            let object = json!({ *field: { "not": "neutral" } });
            assert_eq!(refused(&object, &tables), expected, "{file}");
        }
    }
}

#[test]
fn no_field_is_listed_twice_in_a_table_of_its_own() {
    for (_, architecture) in MODEL_TYPES {
        for table in architecture.fields() {
            for (place, (field, _)) in table.iter().enumerate() {
                assert!(table[..place].iter().all(|(other, _)| other != field), "{field}");
            }
        }
    }
}

/// Numbers are compared by their value.
#[test]
fn one_is_one() {
    let tables = [GENERATION.into()];
    for (value, accepted) in [(json!(1), true), (json!(1.0), true), (json!(1.1), false)] {
        let found = refused(&json!({ "repetition_penalty": value }), &tables);
        assert_eq!(found.is_empty(), accepted);
    }
}
