//! Bad folders and bad texts, each with its typed error, from a tiny synthetic folder, so that nothing is fetched.

use std::fs;
use std::path::Path;

use hushed_model::testing::{
    TINY_LABELS, mutations, safetensors_of, tiny_classifier_folder, tiny_config, tiny_folder, tiny_golden,
};
use hushed_model::{
    Declared, FUNCTIONS, FolderError, Model, ModelError, NormReach, Problem, PublicFiles, TextError, TokenIds,
    Tolerance, TooLong, check, fuzz,
};
use serde_json::{Value, json};
use tempfile::TempDir;

fn folder() -> TempDir {
    let dir = TempDir::new().unwrap();
    tiny_folder(dir.path()).unwrap();
    dir
}

/// The problems after a change to the folder; `load` and `check` must agree on them.
fn problems(change: impl FnOnce(&Path)) -> Vec<Problem> {
    let dir = folder();
    change(dir.path());
    let report = check(dir.path());
    match Model::load(dir.path()) {
        Ok(_) => assert!(report.supported()),
        Err(ModelError::Folder(FolderError { problems, .. })) => {
            let text = |p: &[Problem]| p.iter().map(ToString::to_string).collect::<Vec<_>>();
            assert_eq!(text(&problems), text(&report.problems));
        }
        Err(other) => panic!("{other}"),
    }
    report.problems
}

/// Changes one JSON file.
fn edit(dir: &Path, name: &str, change: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_slice(&fs::read(dir.join(name)).unwrap()).unwrap();
    change(&mut value);
    fs::write(dir.join(name), value.to_string()).unwrap();
}

macro_rules! assert_problems {
    ($change:expr, $($pattern:pat),+) => {
        let found = problems($change);
        assert!(matches!(&found[..], [$($pattern),+]), "{found:#?}");
    };
}

#[test]
fn the_tiny_folder_is_supported() {
    assert_eq!(problems(|_| {}).len(), 0);
    let dir = folder();
    let model = Model::load(dir.path()).unwrap();
    let ids = |text| model.tokens(text, TooLong::Refuse).unwrap();
    let answers = model.embed(vec![ids("hello world"), ids("is the private world a 42?")]).unwrap();
    for answer in &answers {
        assert_eq!(answer.len(), 32);
        assert!((answer.iter().map(|v| v * v).sum::<f64>() - 1.0).abs() < 1e-12);
    }
    assert_ne!(answers[0], answers[1]);
}

#[test]
fn missing_files() {
    assert_problems!(|d| fs::remove_file(d.join("config.json")).unwrap(), Problem::MissingFile { .. });
    assert_problems!(|d| fs::remove_file(d.join("tokenizer.json")).unwrap(), Problem::MissingFile { .. });
    assert_problems!(|d| fs::remove_file(d.join("model.safetensors")).unwrap(), Problem::MissingFile { .. });
    assert_problems!(|d| fs::remove_file(d.join("1_Pooling/config.json")).unwrap(), Problem::MissingFile { .. });
    // Without modules.json the pooling is the mean, as in sentence-transformers.
    assert_eq!(problems(|d| fs::remove_file(d.join("modules.json")).unwrap()).len(), 0);
    let nothing = check(Path::new("/nonexistent/model"));
    assert!(matches!(nothing.problems[..], [Problem::MissingFile { .. }]));
    let empty = TempDir::new().unwrap();
    assert_eq!(check(empty.path()).problems.len(), 3);
}

#[test]
fn a_pickle_is_not_read() {
    let found = problems(|d| fs::rename(d.join("model.safetensors"), d.join("pytorch_model.bin")).unwrap());
    assert!(found[0].to_string().contains("never pickles"), "{}", found[0]);
}

#[test]
fn things_that_are_not_files() {
    assert_problems!(
        |d| {
            fs::remove_file(d.join("config.json")).unwrap();
            fs::create_dir(d.join("config.json")).unwrap();
        },
        Problem::Unreadable { .. }
    );
    assert_problems!(
        |d| fs::File::options().write(true).open(d.join("config.json")).unwrap().set_len((1 << 20) + 1).unwrap(),
        Problem::TooLarge { .. }
    );
}

#[test]
fn every_reason_at_once() {
    let found = problems(|d| {
        edit(d, "config.json", |c| {
            c["hidden_act"] = json!("mish");
        });
        edit(d, "modules.json", |m| m.as_array_mut().unwrap().push(json!({"type": "x.Dense", "path": "3_Dense"})));
        edit(d, "tokenizer.json", |t| t["model"]["type"] = json!("WordLevel"));
        fs::write(d.join("model.safetensors"), b"short").unwrap();
    });
    assert_eq!(found.len(), 4, "{found:#?}");
    let error = FolderError { folder: "m".into(), problems: found };
    assert_eq!(error.to_string().lines().count(), 5);
}

/// What its other files should be, nobody knows.
#[test]
fn of_an_unknown_architecture_nothing_else_is_said() {
    let found = problems(|d| {
        edit(d, "config.json", |c| *c = json!({"model_type": "gpt3", "n_embd": 7}));
        fs::remove_file(d.join("tokenizer.json")).unwrap();
        fs::write(d.join("model.safetensors"), b"short").unwrap();
    });
    assert!(matches!(&found[..], [Problem::UnsupportedValue { field: "model_type", .. }]), "{found:#?}");
}

#[test]
fn malformed_json() {
    for name in ["config.json", "tokenizer.json", "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"]
    {
        for bytes in [&b"{\"a\": "[..], b"", b"\xff\xfe", b"null"] {
            assert_problems!(|d: &Path| fs::write(d.join(name), bytes).unwrap(), Problem::NotJson { .. });
        }
    }
}

#[test]
fn weights_of_another_model() {
    let other = |change: fn(&mut hushed_model::NetworkConfig)| {
        move |d: &Path| {
            let mut config = tiny_config();
            change(&mut config);
            fs::write(d.join("model.safetensors"), safetensors_of(&config).unwrap()).unwrap();
        }
    };
    let found = problems(other(|c| c.layers = 1));
    assert_eq!(found.len(), 16, "{found:#?}");
    assert!(found.iter().all(|p| matches!(p, Problem::MissingTensor { .. })));
    let found = problems(other(|c| c.hidden = 60));
    assert!(found.len() == 6 && found.iter().all(|p| matches!(p, Problem::WrongShape { .. })), "{found:#?}");
    assert_eq!(problems(other(|c| c.layers = 3)).len(), 0); // more layers than needed do no harm
}

#[test]
fn truncated_and_padded_weights() {
    let resize = |by: i64| {
        move |d: &Path| {
            let file = fs::File::options().write(true).open(d.join("model.safetensors")).unwrap();
            file.set_len(file.metadata().unwrap().len().checked_add_signed(by).unwrap()).unwrap();
        }
    };
    assert_problems!(resize(-1), Problem::DataLength { .. });
    assert_problems!(resize(1), Problem::DataLength { .. });
    assert_problems!(|d| fs::write(d.join("model.safetensors"), [0xff; 4096]).unwrap(), Problem::TooLarge { .. });
}

#[test]
fn weights_that_are_not_numbers() {
    let dir = folder();
    let path = dir.path().join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len();
    bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    assert!(check(dir.path()).supported()); // the numbers themselves are read when loading
    let Err(ModelError::Folder(error)) = Model::load(dir.path()) else { panic!("loaded") };
    assert!(matches!(error.problems[..], [Problem::NotFinite { .. }]));
}

#[test]
fn a_wrong_tokenizer() {
    let with = |change: fn(&mut Value)| move |d: &Path| edit(d, "tokenizer.json", change);
    assert_problems!(with(|t| t["model"]["vocab"]["more"] = json!(30000)), Problem::ForeignTokenizer { id: 30000, .. });
    assert_problems!(with(|t| t["model"]["vocab"]["more"] = json!(-1)), Problem::WrongType { .. });
    assert_problems!(with(|t| t["model"]["unk_token"] = json!("<unk>")), Problem::NoSuchToken { .. });
    assert_problems!(with(|t| t["post_processor"]["cls"] = json!(["<s>", 2])), Problem::NoSuchToken { .. });
    assert_problems!(
        with(|t| t["post_processor"] = json!({"type": "RobertaProcessing"})),
        Problem::UnsupportedValue { .. }
    );
    assert_problems!(
        with(|t| t["pre_tokenizer"] = json!({"type": "Split", "pattern": {"Regex": "(a+)+$"}})),
        Problem::UnsupportedValue { .. }
    );
    assert_problems!(with(|t| t["normalizer"] = json!({"type": "NFX"})), Problem::UnsupportedValue { .. });
    assert_problems!(with(|t| t["added_tokens"][0]["special"] = json!(7)), Problem::Tokenizer { .. });
    assert_problems!(
        |d: &Path| edit(d, "config.json", |c| c["pad_token_id"] = json!(9)),
        Problem::SpecialTokenDiffers { config: 9, .. }
    );
}

#[test]
fn texts() {
    let dir = folder();
    let model = Model::load(dir.path()).unwrap();
    let refused = |text: &str| match model.tokens(text, TooLong::Refuse) {
        Err(ModelError::Text(error)) => error,
        _ => panic!("not refused"),
    };
    for empty in ["", " ", "\t\r\n", "\u{0}\u{1}", "\u{200b}"] {
        assert_eq!(refused(empty), TextError::Empty, "{empty:?}");
    }
    let long = "a ".repeat(60);
    assert_eq!(refused(&long), TextError::TooLong { tokens: 62, limit: 48 });
    assert_eq!(refused(&"a".repeat((1 << 20) + 1)), TextError::TooManyBytes { bytes: (1 << 20) + 1, limit: 1 << 20 });

    // Exactly the limit passes; the truncation and padding to 16 that tokenizer.json asks for are off.
    assert_eq!(model.tokens(&"a ".repeat(46), TooLong::Refuse).unwrap().ids().len(), 48);
    assert_eq!(model.tokens("a", TooLong::Refuse).unwrap().ids().len(), 3);
    let cut = model.tokens(&long, TooLong::Cut).unwrap();
    assert_eq!((cut.ids().len(), cut.ids()[0], cut.ids()[47]), (48, 2, 3));
}

#[test]
fn special_tokens_inside_a_text_are_text() {
    let dir = folder();
    let model = Model::load(dir.path()).unwrap();
    for text in ["[SEP]", "[CLS] hello [SEP]", "a[MASK]b", "[PAD][PAD]", "[UNK]"] {
        let ids = model.tokens(text, TooLong::Refuse).unwrap();
        let inside = &ids.ids()[1..ids.ids().len() - 1];
        assert!(!inside.is_empty() && inside.iter().all(|&id| id > 4), "{text}");
    }
}

/// A change to a folder that a library reads otherwise than its files say, or that is no folder at all, is named.
#[test]
fn what_is_in_the_place_of_a_folder_is_named() {
    let named = |change: &dyn Fn(&Path), expected: &str| {
        let found = problems(change);
        let text: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(text.len() == 1 && text[0].contains(expected), "{expected}: {text:#?}");
    };
    let pointer = format!("version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize 90868376\n", "0".repeat(64));
    for file in ["model.safetensors", "tokenizer.json", "config.json", "modules.json", "1_Pooling/config.json"] {
        named(&|d| fs::write(d.join(file), &pointer).unwrap(), "Git LFS");
        let page = "\n <!DOCTYPE html><html><body>Access is restricted</body></html>";
        named(&|d| fs::write(d.join(file), page).unwrap(), "a web page");
        {
            let lost = |d: &Path| {
                fs::remove_file(d.join(file)).unwrap();
                std::os::unix::fs::symlink("../blobs/nothing", d.join(file)).unwrap();
            };
            named(&lost, "a symbolic link to ../blobs/nothing");
        }
    }
    named(&|d| fs::write(d.join("model.safetensors"), b"PK\x03\x04 and more of a checkpoint").unwrap(), "zip archive");
    let adapter = |d: &Path| {
        fs::rename(d.join("model.safetensors"), d.join("adapter_model.safetensors")).unwrap();
        fs::write(d.join("adapter_config.json"), r#"{"peft_type":"LORA"}"#).unwrap();
    };
    named(&adapter, "adapter");
    // Even beside weights, which a library would change by it.
    named(&|d| fs::write(d.join("adapter_config.json"), "{}").unwrap(), "adapter");
}

/// A byte order mark before any file of a folder.
#[test]
fn files_may_begin_with_a_mark() {
    let dir = folder();
    let plain = Model::load(dir.path()).unwrap();
    fs::write(dir.path().join("tokenizer_config.json"), "{}").unwrap();
    for file in [
        "config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "modules.json",
        "1_Pooling/config.json",
        "sentence_bert_config.json",
    ] {
        let path = dir.path().join(file);
        let marked = [b"\xef\xbb\xbf", &fs::read(&path).unwrap()[..]].concat();
        fs::write(path, marked).unwrap();
    }
    let model = Model::load(dir.path()).unwrap();
    let ids = |model: &Model| model.tokens("hello world", TooLong::Refuse).unwrap();
    assert_eq!(model.embed(vec![ids(&model)]).unwrap(), plain.embed(vec![ids(&plain)]).unwrap());
}

/// The weights with other names for their tensors.
fn renamed(dir: &Path, name: impl Fn(&str) -> String) {
    let path = dir.join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    let data = 8 + length_of(&bytes);
    let header: serde_json::Map<String, Value> = serde_json::from_slice(&bytes[8..data]).unwrap();
    let header: serde_json::Map<String, Value> = header.into_iter().map(|(n, tensor)| (name(&n), tensor)).collect();
    let header = Value::from(header).to_string();
    let length = (header.len() as u64).to_le_bytes();
    fs::write(path, [&length, header.as_bytes(), &bytes[data..]].concat()).unwrap();
}

fn length_of(bytes: &[u8]) -> usize {
    u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize
}

#[test]
fn what_a_program_put_before_every_name_is_taken_off() {
    for prefix in ["_orig_mod.", "module.", "0.auto_model.", "model.bert.", "_orig_mod.module.bert.", "encoder."] {
        let found = problems(|d| renamed(d, |name| format!("{prefix}{name}")));
        assert!(found.is_empty(), "{prefix}: {found:#?}");
    }
    // Two models in one file: which one is it?
    let found = problems(|d| {
        let path = d.join("model.safetensors");
        renamed(d, |name| format!("query.{name}"));
        let bytes = fs::read(&path).unwrap();
        let mut header: Value = serde_json::from_slice(&bytes[8..8 + length_of(&bytes)]).unwrap();
        let end = header.as_object().unwrap().values().filter_map(|t| t["data_offsets"][1].as_u64()).max().unwrap();
        header["passage.embeddings.word_embeddings.weight"] =
            json!({"dtype": "F32", "shape": [1], "data_offsets": [end, end + 4]});
        let header = header.to_string();
        let data = &bytes[8 + length_of(&bytes)..];
        fs::write(&path, [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data, &[0; 4]].concat()).unwrap();
    });
    assert!(matches!(&found[..], [Problem::Prefixes { .. }]), "{found:#?}");
    assert!(found[0].to_string().contains("passage., query."), "{}", found[0]);
}

#[test]
fn the_same_tensor_twice_is_refused() {
    assert_problems!(
        |d: &Path| {
            let path = d.join("model.safetensors");
            let bytes = fs::read(&path).unwrap();
            let header: serde_json::Map<String, Value> =
                serde_json::from_slice(&bytes[8..8 + length_of(&bytes)]).unwrap();
            let (name, tensor) = header.iter().find(|(name, _)| *name != "__metadata__").unwrap();
            let text = Value::from(header.clone()).to_string();
            let text = format!("{},{}:{tensor}}}", text.strip_suffix('}').unwrap(), json!(name));
            let data = &bytes[8 + length_of(&bytes)..];
            fs::write(&path, [&(text.len() as u64).to_le_bytes(), text.as_bytes(), data].concat()).unwrap();
        },
        Problem::Header { .. }
    );
}

/// Models with other heads are no encoders, and a cross-encoder is none either.
#[test]
fn heads_that_are_not_read_are_refused_by_their_class() {
    let class = |name: &'static str, modules: bool| {
        move |d: &Path| {
            edit(d, "config.json", |c| c["architectures"] = json!([name]));
            if !modules {
                fs::remove_file(d.join("modules.json")).unwrap();
            }
        }
    };
    for name in [
        "BertForTokenClassification",
        "BertForQuestionAnswering",
        "BertForMultipleChoice",
        "BertForNextSentencePrediction",
        "RobertaForSequenceClassification",
    ] {
        let found = problems(class(name, false));
        assert!(matches!(&found[..], [problem] if problem.to_string().contains(name)), "{name}: {found:#?}");
    }
    for (name, modules) in [("BertModel", false), ("BertForMaskedLM", false), ("BertForTokenClassification", true)] {
        assert!(problems(class(name, modules)).is_empty(), "{name}");
    }
    // As sentence-transformers writes a cross-encoder: one module, and no pooling.
    let found = problems(|d| {
        class("BertForSequenceClassification", true)(d);
        edit(d, "modules.json", |m| m.as_array_mut().unwrap().truncate(1));
    });
    assert!(found.iter().any(|p| p.to_string().contains("cross-encoder")), "{found:#?}");
    let found = problems(|d| {
        fs::write(d.join("config_sentence_transformers.json"), r#"{"model_type":"CrossEncoder"}"#).unwrap();
        edit(d, "sentence_bert_config.json", |c| c["transformer_task"] = json!("sequence-classification"));
    });
    let text: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert!(text.len() == 2 && text[0].contains("transformer_task") && text[1].contains("model_type"), "{text:#?}");
}

/// As `sentence-transformers` 6.2 writes a folder.
#[test]
fn folders_of_newer_versions() {
    let newer = |d: &Path| {
        let pooling = json!({"embedding_dimension": 32, "pooling_mode": "cls", "include_prompt": true});
        fs::write(d.join("1_Pooling/config.json"), pooling.to_string()).unwrap();
        let sentence = json!({"transformer_task": "feature-extraction",
            "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
            "module_output_name": "token_embeddings"});
        fs::write(d.join("sentence_bert_config.json"), sentence.to_string()).unwrap();
        let config = json!({"model_max_length": 24, "tokenizer_class": "BertTokenizer", "do_lower_case": true, "x": 1});
        fs::write(d.join("tokenizer_config.json"), config.to_string()).unwrap();
        let published = json!({"model_type": "SentenceTransformer", "similarity_fn_name": "dot", "prompts": {"query": ""},
            "__version__": {"sentence_transformers": "6.2.0"}, "default_prompt_name": null});
        fs::write(d.join("config_sentence_transformers.json"), published.to_string()).unwrap();
    };
    let dir = folder();
    newer(dir.path());
    let report = check(dir.path());
    assert!(report.supported(), "{:#?}", report.problems);
    let summary = report.summary.unwrap();
    assert_eq!((summary.pooling, summary.similarity, summary.max_tokens), ("first", "dot", 24));
    // Nobody knows what the last field is for.
    let warnings: Vec<String> = report.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("tokenizer_config.json: the field `x`"), "{warnings:?}");
    // What a client gets says the same, and no more of the tokenizer's configuration.
    let files = PublicFiles::read(dir.path()).unwrap();
    assert_eq!(files.parse().unwrap().max_tokens, 24);
    let sent = files.iter().find(|(name, _)| *name == "tokenizer_config.json").unwrap();
    assert_eq!(sent.1, br#"{"model_max_length":24}"#);
    // The file's own length wins.
    edit(dir.path(), "sentence_bert_config.json", |c| c["max_seq_length"] = json!(40));
    assert_eq!(check(dir.path()).summary.unwrap().max_tokens, 40);
    // A class that would make another tokenizer of the same file.
    for (field, value) in
        [("do_lower_case", json!(false)), ("strip_accents", json!(true)), ("tokenize_chinese_chars", json!(false))]
    {
        let found = problems(|d| {
            newer(d);
            edit(d, "tokenizer_config.json", |c| c[field] = value.clone());
        });
        assert!(matches!(&found[..], [problem] if problem.to_string().contains(field)), "{found:#?}");
    }
}

/// The committed folders have no field that is not listed.
#[test]
fn nothing_unknown_is_in_our_own_folders() {
    let tiny = tiny_golden("gpt2");
    let mut checked = 0;
    for entry in fs::read_dir(tiny.parent().unwrap()).unwrap() {
        let report = check(&entry.unwrap().path());
        assert!(report.supported() && report.warnings.is_empty(), "{report:#?}");
        checked += 1;
    }
    assert!(checked > 8, "{checked}");
}

/// Before version 1, `tokenizer.json` had no type of its model.
#[test]
fn a_tokenizer_whose_type_follows_from_its_fields() {
    for name in ["roberta", "xlm-roberta", "distilbert", "gpt2", "llama"] {
        let (from, dir) = (tiny_golden(name), TempDir::new().unwrap());
        let bytes = fs::read(from.join("tokenizer.json")).unwrap();
        let config = fs::read(from.join("config.json")).unwrap();
        let read = |tokenizer: Vec<u8>| {
            fs::write(dir.path().join("config.json"), &config).unwrap();
            fs::write(dir.path().join("tokenizer.json"), tokenizer).unwrap();
            PublicFiles::read(dir.path()).unwrap().parse().unwrap()
        };
        let mut without: Value = serde_json::from_slice(&bytes).unwrap();
        without["model"].as_object_mut().unwrap().remove("type").unwrap();
        let (one, other) = (read(bytes), read(without.to_string().into_bytes()));
        let ids = |public: &hushed_model::Public| public.tokens("hello world", TooLong::Refuse).unwrap().ids().to_vec();
        assert_eq!(ids(&one), ids(&other), "{name}");
    }
}

/// Matrices that stay in the files give the same answers, as long as the files do not change.
#[test]
fn matrices_are_read_when_they_are_needed() {
    for name in ["gpt2", "gpt2-sharded", "llama", "llama-tied", "roberta", "vit", "bitnet"] {
        let golden = tiny_golden(name);
        let [held, stored] = [Model::load, Model::open].map(|read| read(&golden).unwrap());
        if let Some(embedding) = stored.embedding() {
            assert!(embedding.tokens.is_none() && embedding.stored.is_some());
            let ids = || vec![TokenIds::new(vec![3, 1, 4, 1, 5])];
            assert_eq!(held.embed(ids()).unwrap(), stored.embed(ids()).unwrap(), "{name}");
        }
    }
    let dir = folder();
    let model = Model::open(dir.path()).unwrap();
    let ids = model.tokens("hello", TooLong::Refuse).unwrap();
    model.embed(vec![ids.clone()]).unwrap();
    let path = dir.path().join("model.safetensors");
    let bytes = fs::read(&path).unwrap();
    // Truncated, then restored to the same length.
    for changed in [&bytes[..bytes.len() / 2], &bytes[..]] {
        fs::write(&path, changed).unwrap();
        let error = model.embed(vec![ids.clone()]).err().unwrap();
        let ModelError::Folder(error) = error else { panic!("{error}") };
        assert!(matches!(&error.problems[..], [Problem::Changed { file }] if file == "model.safetensors"));
    }
    // Opened again, it is a folder like any other.
    let again = Model::open(dir.path()).unwrap();
    again.embed(vec![ids]).unwrap();
}

#[test]
fn the_public_part_is_enough_for_shapes_but_not_for_numbers() {
    let dir = folder();
    let files = PublicFiles::read(dir.path()).unwrap();
    let carried = files.iter().map(|(name, bytes)| (name.to_owned(), bytes.to_vec()));
    let public = PublicFiles::from_files(carried).unwrap().parse().unwrap();
    let model = Model::shapes_only(&public);
    let layer = &model.encoder().unwrap().layers[1];
    let wide = layer.feed_forward.feed_forward().unwrap();
    assert_eq!((wide.up.inputs, wide.up.outputs), (32, 64));
    assert!(wide.up.weights.is_none());
    let ids = model.tokens("hello", TooLong::Refuse).unwrap();
    assert!(matches!(model.embed(vec![ids]), Err(ModelError::ShapesOnly { .. })));

    assert!(PublicFiles::from_files([("../../etc/passwd".to_owned(), vec![])]).is_err());
    assert!(PublicFiles::from_files([("config.json".to_owned(), vec![b' '; (1 << 20) + 1])]).is_err());
    assert_eq!(PublicFiles::from_files([]).unwrap().parse().err().unwrap().problems.len(), 2);
}

#[test]
fn ids_that_do_not_fit_are_refused() {
    let dir = folder();
    let model = Model::load(dir.path()).unwrap();
    let embed = |ids: Vec<u32>| model.embed(vec![TokenIds::new(ids)]);
    assert!(matches!(embed(vec![2, 100_000, 3]), Err(ModelError::TokenOutOfRange { .. })));
    assert!(matches!(embed(vec![]), Err(ModelError::Mismatch { .. })));
    assert!(matches!(embed(vec![2; 65]), Err(ModelError::Mismatch { .. })));
}

#[test]
fn a_text_does_not_depend_on_its_batch_or_its_padding() {
    let dir = folder();
    let model = Model::load(dir.path()).unwrap();
    let texts =
        ["hello", "a private world is the world, is it?", "42 + 1"].map(|t| model.tokens(t, TooLong::Refuse).unwrap());
    let together = model.embed(texts.to_vec()).unwrap();
    for (text, expected) in texts.iter().zip(&together) {
        assert_eq!(&model.embed(vec![text.clone()]).unwrap()[0], expected);
        let padded = model.embed(vec![text.clone().pad_to(40, 0)]).unwrap();
        let error = padded[0].iter().zip(expected).fold(0f64, |m, (a, b)| m.max((a - b).abs()));
        assert!(error < 1e-14, "{error}");
    }
}

#[test]
fn decoders_survive_mutations() {
    let dir = folder();
    let file = |name: &str| fs::read(dir.path().join(name)).unwrap();
    let count = 10_000;
    // With class names.
    let labelled = TempDir::new().unwrap();
    tiny_classifier_folder(labelled.path(), &TINY_LABELS).unwrap();
    let classifier = fs::read(labelled.path().join("config.json")).unwrap();
    let configs = [
        file("config.json"),
        file("1_Pooling/config.json"),
        b"{\"model_type\":\"bert\",\"hidden_size\":1e999}".to_vec(),
        classifier,
        fs::read(tiny_golden("gpt2-sharded").join("config.json")).unwrap(),
    ];
    mutations(&configs, count, 1, fuzz::config);
    let header = br#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[8,16]}}"#;
    let small = [&(header.len() as u64).to_le_bytes()[..], header, &[1; 16]].concat();
    let real = file("model.safetensors");
    let index = tiny_golden("gpt2-sharded").join("model.safetensors.index.json");
    let index = fs::read(index).unwrap();
    mutations(&[small, real[..4096].to_vec(), vec![0; 9], index], count, 2, fuzz::safetensors_header);
    mutations(
        &[
            file("modules.json"),
            file("1_Pooling/config.json"),
            file("sentence_bert_config.json"),
            Declared::from(tolerance()).to_json().into_bytes(),
        ],
        count,
        3,
        fuzz::ending,
    );
    mutations(&[file("tokenizer.json")], count, 4, fuzz::tokenizer);
    let bytes = fs::read(tiny_golden("gpt2").join("tokenizer.json")).unwrap();
    mutations(&[bytes], count / 20, 5, fuzz::tokenizer);
    let golden = |file: &str| fs::read(tiny_golden("llama").join(file)).unwrap();
    mutations(&[golden("tokenizer.json")], count / 20, 6, fuzz::tokenizer);
    mutations(&[golden("config.json")], count, 7, fuzz::config);
}

#[test]
fn a_classifier_is_one_by_its_configuration() {
    let classifier = || {
        let dir = TempDir::new().unwrap();
        tiny_classifier_folder(dir.path(), &TINY_LABELS).unwrap();
        dir
    };
    let dir = classifier();
    let summary = check(dir.path()).summary.unwrap();
    assert_eq!(summary.labels.unwrap(), TINY_LABELS);
    assert_eq!((summary.pooling, summary.normalised), ("first", false));
    let encoder = check(folder().path()).summary.unwrap().parameters;
    let head = 32 * 32 + 32 + 3 * 32 + 3;
    assert_eq!(summary.parameters, encoder + head);

    // The client's shapes have the same head.
    let model = Model::load(dir.path()).unwrap();
    let shapes = Model::shapes_only(&model.public);
    for network in [model.encoder().unwrap(), shapes.encoder().unwrap()] {
        assert_eq!(network.outputs(), 3);
        let head = network.classifier.as_ref().unwrap();
        assert_eq!((head.dense.outputs, head.classes.inputs), (32, 32));
    }

    // Names for another number of classes, and a head that is missing.
    edit(dir.path(), "config.json", |c| {
        c["id2label"] = json!({"0": "a", "1": "b"});
    });
    let found = check(dir.path()).problems;
    assert!(matches!(&found[..], [Problem::WrongShape { .. }, Problem::WrongShape { .. }]), "{found:#?}");
    let dir = classifier();
    let weights = safetensors_of(&tiny_config()).unwrap();
    fs::write(dir.path().join("model.safetensors"), weights).unwrap();
    let found = check(dir.path()).problems;
    assert_eq!(found.len(), 4, "{found:#?}");
    assert!(found.iter().all(|p| matches!(p, Problem::MissingTensor { .. })));

    // A sentence encoder derived from a classifier is an encoder.
    let dir = folder();
    edit(dir.path(), "config.json", |c| {
        c["architectures"] = json!(["BertForSequenceClassification"]);
    });
    let summary = check(dir.path()).summary.unwrap();
    assert_eq!((summary.labels, summary.pooling), (None, "mean"));
}

fn tolerance() -> Tolerance {
    Tolerance { reach: 11.1, error: 6e-4 }
}

/// What is declared about the activation travels with the public files, and a bad declaration is a problem like others.
#[test]
fn declared_functions() {
    let dir = TempDir::new().unwrap();
    tiny_folder(dir.path()).unwrap();
    let tolerance = tolerance();
    fs::write(dir.path().join(FUNCTIONS), Declared::from(tolerance).to_json()).unwrap();
    let model = Model::load(dir.path()).unwrap();
    assert_eq!(model.public.config.tolerance, Some(tolerance));
    let files = PublicFiles::read(dir.path()).unwrap();
    let copied = files.iter().map(|(name, bytes)| (name.to_owned(), bytes.to_vec()));
    let public = PublicFiles::from_files(copied).unwrap().parse().unwrap();
    let shapes = Model::shapes_only(&public);
    for layer in model.encoder().unwrap().layers.iter().chain(&shapes.encoder().unwrap().layers) {
        assert_eq!(layer.feed_forward.feed_forward().unwrap().tolerance, Some(tolerance));
    }
    // Norms by name: the model's own reach its program; other names are not norms of it.
    let mut declared = Declared::from(tolerance);
    let reach = NormReach { squares: 24, finer: 1 };
    declared.norms.insert("layer.1.attention.norm".to_owned(), reach);
    fs::write(dir.path().join(FUNCTIONS), declared.to_json()).unwrap();
    let program = Model::load(dir.path()).unwrap().program();
    let named = program.norms().filter(|(_, norm)| norm.reach.is_some());
    let named: Vec<_> = named.map(|(id, norm)| (id.to_string(), norm.reach)).collect();
    assert_eq!(named, [("layer.1.attention.norm".to_owned(), Some(reach))]);
    let bad = problems(|d| {
        let mut other = declared.clone();
        other.norms.insert("layer.2.attention.norm".to_owned(), reach);
        fs::write(d.join(FUNCTIONS), other.to_json()).unwrap();
    });
    assert!(matches!(&bad[..], [Problem::UnsupportedValue { field: "norms", .. }]));
    let bad = problems(|d| {
        fs::write(d.join(FUNCTIONS), "{\"version\": \"1\", \"activation_reach\": true}").unwrap();
        edit(d, "config.json", |c| c["hidden_act"] = json!("mish"));
    });
    assert_eq!(bad.len(), 3, "{bad:#?}");
}
