//! Decoders from other libraries: logits, token ids and texts as `transformers` computes them
//! (scripts/tiny_decoders.py), and folders that are refused.

use std::fs;
use std::path::Path;

use hushed_model::folder::weight_files;
use hushed_model::testing::{data_lines, tiny_generator_folder, tiny_golden};
use hushed_model::{
    Ending, Model, ModelError, Problem, PublicFiles, TextError, TokenIds, Tokenizer, TooLong, check, greedy, largest,
    plain,
};
use serde_json::{Value, json};
use tempfile::TempDir;

const FOLDERS: [&str; 2] = ["gpt2", "gpt2-sharded"];

pub fn expected(name: &str) -> Value {
    let bytes = fs::read(tiny_golden(name).join("expected.json")).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

pub fn ids_of(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn ids_and_logits_equal_the_reference() {
    for name in FOLDERS {
        let model = Model::load(&tiny_golden(name)).unwrap();
        for case in expected(name)["texts"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let ids = model.tokens(text, TooLong::Refuse).unwrap();
            assert_eq!(ids.ids(), ids_of(&case["ids"]), "{name}: {text}");
            assert_logits(&model, ids, &case["answer"], &format!("{name}: {text}"));
        }
    }
}

/// Checks the answer to one text, to far less than the error of f32.
fn assert_logits(model: &Model, ids: TokenIds, answer: &Value, about: &str) {
    let answer: Vec<f64> = serde_json::from_value(answer.clone()).unwrap();
    let found = plain::run(&model.program(), vec![ids], |_, _| ()).unwrap();
    let found = found.values.row(0);
    assert_eq!(found.len(), answer.len());
    for (found, answer) in found.iter().zip(&answer) {
        assert!((found - answer).abs() < 1e-7, "{about}: {found} {answer}");
    }
    assert_eq!(largest(found), largest(&answer));
}

/// The Fowler–Noll–Vo hash, as the script computes it.
fn fnv1a(text: &str) -> String {
    let step = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

/// The token ids of all lines of data/*.txt, with the patterns of three published families.
#[test]
fn token_ids_of_the_data_equal_the_reference() {
    let expected = expected("gpt2");
    let file = fs::read(tiny_golden("gpt2").join("tokenizer.json")).unwrap();
    let file: Value = serde_json::from_slice(&file).unwrap();
    for (family, files) in expected["lines"].as_object().unwrap() {
        let mut changed = file.clone();
        if let Some(pattern) = pattern(family) {
            changed["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false},
                {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
            ]});
        }
        let tokenizer = tokenizer(&changed).ok().unwrap();
        agree_on_lines(&tokenizer, files, family, 0);
    }
}

/// Checks the token ids of every line of the files in data/, after the `before` ids that precede each line.
pub fn agree_on_lines(tokenizer: &Tokenizer, files: &Value, family: &str, before: usize) {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data");
    for entry in fs::read_dir(data).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(!name.ends_with(".txt") || files.get(&name).is_some(), "{name}");
    }
    for (name, hashes) in files.as_object().unwrap() {
        let lines: Vec<String> = data_lines(name).unwrap();
        let text = lines.join("\n") + "\n";
        assert_eq!(fnv1a(&text), hashes["text"], "{name} changed: run scripts/tiny_decoders.py");
        let ids = lines.iter().map(|line| match tokenizer.encode(line, 1 << 20, TooLong::Refuse) {
            Ok(ids) => ids.ids()[before..].iter().map(u32::to_string).collect::<Vec<_>>().join(" "),
            Err(TextError::Empty) => String::new(),
            Err(other) => panic!("{other}"),
        });
        let ids = ids.collect::<Vec<_>>().join("\n") + "\n";
        assert_eq!(fnv1a(&ids), hashes["ids"], "{family}: {name}");
    }
}

fn pattern(family: &str) -> Option<String> {
    let llama3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
    match family {
        "llama3" => Some(llama3.to_owned()),
        "qwen2" => Some(llama3.replace("{1,3}", "")),
        _ => None,
    }
}

fn tokenizer(file: &Value) -> Result<Tokenizer, Vec<Problem>> {
    let mut problems = Vec::new();
    let task = hushed_model::Task::Generate;
    Tokenizer::parse(file.to_string().as_bytes(), 400, None, task, &mut problems).ok_or(problems)
}

/// Randomly drawn ids, so that characters are cut and bytes are not UTF-8.
#[test]
fn decoded_texts_equal_the_reference() {
    let model = Model::load(&tiny_golden("gpt2")).unwrap();
    let mut replaced = 0;
    for case in expected("gpt2")["decoded"].as_array().unwrap() {
        let mut decoder = model.public.tokenizer().unwrap().decoder().unwrap();
        let mut text = String::new();
        for id in ids_of(&case["ids"]) {
            text += &decoder.push(id);
        }
        text += decoder.finish();
        assert_eq!(text, case["text"].as_str().unwrap());
        replaced += text.matches('\u{fffd}').count();
    }
    assert!(replaced > 20, "the cases have characters that are cut");
}

/// Tensors are found with and without `transformer.` before their names.
#[test]
fn names_without_their_prefix() {
    let dir = TempDir::new().unwrap();
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        fs::copy(tiny_golden("gpt2").join(file), dir.path().join(file)).unwrap();
    }
    let path = dir.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    let bare = tensors.iter().map(|(name, view)| {
        let bare = name.strip_prefix("transformer.").unwrap().to_owned();
        (bare, view)
    });
    fs::write(&path, safetensors::serialize(bare, None).unwrap()).unwrap();
    let (bare, model) = (Model::load(dir.path()).unwrap(), Model::load(&tiny_golden("gpt2")).unwrap());
    assert_eq!(bare.program().linears().count(), model.program().linears().count());
    for (a, b) in bare.program().linears().zip(model.program().linears()) {
        assert!(a.weights == b.weights && a.bias == b.bias);
    }
}

#[test]
fn greedy_generation_ends_as_it_says() {
    let model = Model::load(&tiny_golden("gpt2")).unwrap();
    let prompt = TokenIds::new(ids_of(&expected("gpt2")["texts"][0]["ids"]));
    let run = |model: &Model, prompt: &TokenIds, most| {
        let mut ids = Vec::new();
        let ending = greedy(model, prompt, most, |id| ids.push(id));
        ending.map(|ending| (ending, ids))
    };
    let (ending, ids) = run(&model, &prompt, 5).unwrap();
    assert_eq!((ending, ids.len()), (Ending::Most, 5));
    // Each token has the largest logit after the previous ones.
    let mut text = prompt.ids().to_vec();
    for &id in &ids {
        let logits = plain::run(&model.program(), vec![TokenIds::new(text.clone())], |_, _| ()).unwrap();
        assert_eq!(largest(logits.values.row(0)), id);
        text.push(id);
    }
    // The end token is not part of the text.
    let mut ends = model.clone();
    ends.public.end_tokens = vec![u32::MAX, ids[0]];
    assert_eq!(run(&ends, &prompt, 5).unwrap(), (Ending::EndToken, Vec::new()));
    // No token beyond the position table.
    let long = |tokens: usize| TokenIds::new(vec![7; tokens]);
    let (ending, ids) = run(&model, &long(158), 5).unwrap();
    assert_eq!((ending, ids.len()), (Ending::Positions, 2));
    assert!(matches!(run(&model, &long(160), 5), Err(ModelError::Text(TextError::NoRoom { tokens: 160, limit: 160 }))));
    let encoder = Model::load(&tiny_golden("roberta")).unwrap();
    assert!(matches!(run(&encoder, &prompt, 1), Err(ModelError::NotAGenerator)));
}

/// The problems of a folder after a change; `load` and `check` must agree on them.
pub fn problems(from: &Path, change: impl FnOnce(&Path)) -> Vec<Problem> {
    let dir = TempDir::new().unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.path().is_file() {
            fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
        }
    }
    change(dir.path());
    let report = check(dir.path());
    assert_eq!(Model::load(dir.path()).is_ok(), report.supported());
    report.problems
}

pub fn edit(dir: &Path, name: &str, change: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_slice(&fs::read(dir.join(name)).unwrap()).unwrap();
    change(&mut value);
    fs::write(dir.join(name), value.to_string()).unwrap();
}

#[test]
fn configurations_that_are_refused() {
    let dir = TempDir::new().unwrap();
    tiny_generator_folder(dir.path()).unwrap();
    assert_eq!(problems(dir.path(), |_| ()).len(), 0);
    let changes: [(&str, Value); 14] = [
        ("scale_attn_weights", json!(false)),
        ("scale_attn_by_inverse_layer_idx", json!(true)),
        ("reorder_and_upcast_attn", json!(true)),
        ("add_cross_attention", json!(true)),
        ("quantization_config", json!({"bits": 4})),
        ("architectures", json!(["GPT2ForSequenceClassification"])),
        ("activation_function", json!("mish")),
        ("layer_norm_epsilon", json!(-1.0)),
        ("eos_token_id", json!(263)),
        ("tie_word_embeddings", json!("no")),
        ("n_head", json!(5)),
        ("n_inner", json!(0)),
        ("n_positions", json!(1)),
        ("n_layer", Value::Null),
    ];
    for (field, value) in &changes {
        let found = problems(dir.path(), |d| {
            edit(d, "config.json", |c| c[*field] = value.clone());
        });
        assert_eq!(found.len(), 1, "{field}: {found:?}");
    }
    // All at once; five heads are not reported if the width is missing.
    let found = problems(dir.path(), |d| {
        edit(d, "config.json", |c| {
            changes.iter().for_each(|(field, value)| c[*field] = value.clone());
        });
    });
    assert_eq!(found.len(), changes.len(), "{found:#?}");
    // The modules of a sentence encoder beside it.
    let found = problems(dir.path(), |d| fs::write(d.join("modules.json"), b"[]").unwrap());
    assert!(!found.is_empty());
}

/// A table whose sizes differ from the configuration, the older name of a field, and defaults.
#[test]
fn shapes_and_defaults() {
    let dir = TempDir::new().unwrap();
    tiny_generator_folder(dir.path()).unwrap();
    let found = problems(dir.path(), |d| edit(d, "config.json", |c| c["n_inner"] = json!(64)));
    let wrong = found.iter().filter(|p| matches!(p, Problem::WrongShape { .. }));
    assert_eq!((wrong.count(), found.len()), (6, 6));
    let found = problems(dir.path(), |d| {
        edit(d, "config.json", |c| c["tie_word_embeddings"] = json!(false));
    });
    assert!(matches!(&found[..], [Problem::MissingTensor { name }] if name == "lm_head.weight"));
    let found = problems(dir.path(), |d| {
        edit(d, "config.json", |c| {
            let c = c.as_object_mut().unwrap();
            c.insert("n_ctx".to_owned(), json!(64));
            for field in ["n_positions", "n_inner", "activation_function", "layer_norm_epsilon", "architectures"] {
                c.remove(field);
            }
        });
    });
    assert_eq!(found.len(), 0, "{found:?}");
}

#[test]
fn tokenizers_that_are_refused() {
    let dir = TempDir::new().unwrap();
    tiny_generator_folder(dir.path()).unwrap();
    let evil = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": false},
        {"type": "ByteLevel", "use_regex": false},
    ]});
    let surrounds = json!({"type": "RobertaProcessing", "sep": ["x", 1], "cls": ["y", 0]});
    for (part, value) in [
        ("pre_tokenizer", evil),
        ("pre_tokenizer", json!({"type": "Digits", "individual_digits": true})),
        ("decoder", Value::Null),
        ("decoder", json!({"type": "Metaspace"})),
        ("post_processor", surrounds),
        ("model", json!({"type": "WordLevel"})),
    ] {
        let found = problems(dir.path(), |d| edit(d, "tokenizer.json", |t| t[part] = value.clone()));
        assert!(matches!(&found[..], [Problem::UnsupportedValue { .. }]), "{part} {value}: {found:?}");
    }
}

#[test]
fn indices_and_shards_that_are_refused() {
    const INDEX: &str = "model.safetensors.index.json";
    const FIRST: &str = "model-00001-of-00003.safetensors";
    let from = tiny_golden("gpt2-sharded");
    assert_eq!(problems(&from, |_| ()).len(), 0);
    assert_eq!(weight_files(&from).unwrap().len(), 3);
    let moved =
        |to: &'static str| move |d: &Path| edit(d, INDEX, |i| i["weight_map"]["transformer.wte.weight"] = json!(to));
    for name in ["../model.safetensors", "/etc/passwd", "x/y.safetensors", "tokenizer.json"] {
        let found = problems(&from, moved(name));
        assert!(matches!(&found[..], [Problem::UnsupportedValue { field: "weight_map", .. }]), "{name}: {found:?}");
    }
    // A file without the tensor, and one that is missing.
    let found = problems(&from, moved("model-00003-of-00003.safetensors"));
    assert!(matches!(&found[..], [Problem::MissingTensor { .. }]), "{found:?}");
    let found = problems(&from, moved("model-00004-of-00003.safetensors"));
    assert!(matches!(&found[..], [Problem::MissingFile { .. }]), "{found:?}");
    // Truncated, replaced, and both at once.
    let cut = |d: &Path| {
        let file = fs::File::options().write(true).open(d.join(FIRST)).unwrap();
        file.set_len(fs::metadata(d.join(FIRST)).unwrap().len() - 1).unwrap();
    };
    let found = problems(&from, cut);
    assert!(matches!(&found[..], [Problem::DataLength { file, .. }] if file == FIRST), "{found:?}");
    let found = problems(&from, |d| {
        cut(d);
        fs::remove_file(d.join("model-00002-of-00003.safetensors")).unwrap();
        fs::write(d.join("model-00003-of-00003.safetensors"), b"short").unwrap();
    });
    assert_eq!(found.len(), 3, "{found:?}");
    let found = problems(&from, |d| fs::write(d.join(INDEX), b"{}").unwrap());
    assert!(matches!(&found[..], [Problem::WrongType { .. }]), "{found:?}");
    let found = problems(&from, |d| fs::remove_file(d.join(INDEX)).unwrap());
    assert!(matches!(&found[..], [Problem::MissingFile { .. }]), "{found:?}");
}

/// The trained model of data/: token ids of the data, logits, and greedy continuations.
#[test]
fn the_small_model_continues_texts_as_the_reference() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let model = Model::load(&root.join("../../data/gpt2-small")).unwrap();
    let golden = fs::read(root.join("tests/golden/gpt2-small.json")).unwrap();
    let golden: Value = serde_json::from_slice(&golden).unwrap();
    agree_on_lines(model.public.tokenizer().unwrap(), &golden["lines"], "gpt2-small", 0);
    for case in golden["texts"].as_array().unwrap() {
        let text = case["text"].as_str().unwrap();
        let ids = model.tokens(text, TooLong::Refuse).unwrap();
        assert_eq!(ids.ids(), ids_of(&case["ids"]), "{text}");
        assert_logits(&model, ids.clone(), &case["answer"], text);
        let mut continued = Vec::new();
        greedy(&model, &ids, 24, |id| continued.push(id)).unwrap();
        // The reference keeps the end token.
        let mut expected = ids_of(&case["continued"]);
        expected.retain(|id| !model.public.end_tokens.contains(id));
        assert_eq!(continued, expected, "{text}");
    }
}

/// Several tokens end a text; those of `generation_config.json` take precedence, and reach a client.
#[test]
fn every_end_token_ends_a_text() {
    let dir = TempDir::new().unwrap();
    tiny_generator_folder(dir.path()).unwrap();
    let write = |name: &str, value: serde_json::Value| {
        fs::write(dir.path().join(name), value.to_string()).unwrap();
    };
    let ends = || {
        let files = PublicFiles::read(dir.path()).unwrap();
        files.parse().map(|public| public.end_tokens)
    };
    assert_eq!(ends().unwrap(), [262]);
    write("generation_config.json", json!({"do_sample": true, "temperature": 0.6}));
    assert_eq!(ends().unwrap(), [262]);
    write("generation_config.json", json!({"eos_token_id": [262, 13], "bos_token_id": 0}));
    assert_eq!(ends().unwrap(), [262, 13]);
    for wrong in [
        json!({"eos_token_id": [262, 9999]}),
        json!({"eos_token_id": []}),
        json!({"eos_token_id": "</s>"}),
        json!({"repetition_penalty": 1.1}),
        json!({"stop_strings": ["\n"]}),
    ] {
        write("generation_config.json", wrong.clone());
        let error = ends().err().unwrap().to_string();
        let field = wrong.as_object().unwrap().keys().next().unwrap();
        assert!(error.contains("generation_config.json") && error.contains(field), "{error}");
    }
}
