//! The server chooses the tokenizer and the chat template and sees the number of tokens. With a vocabulary of its own
//! making that number is a function of the text, unless the client pins the published files.

use std::fs;
use std::path::Path;

use hushed_model::TooLong;
use hushed_model::testing::{tiny_folder, tiny_generator_folder};
use hushed_serve::{Bundle, BundlePin, Category, Client, ClientConfig, FilePins, ServeError, Unpinned};

use crate::common::{Running, get, refused};

/// Renames words in the vocabulary of a folder: a text with one of them is then spelled out.
fn rename(folder: &Path) {
    let path = folder.join("tokenizer.json");
    let mut tokenizer: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let words = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    let letters = |word: &str| word.bytes().all(|b| b.is_ascii_lowercase());
    let longer = words.keys().filter(|word| word.len() > 1 && letters(word));
    let longer: Vec<String> = longer.take(10).cloned().collect();
    assert!(longer.len() > 1, "a vocabulary with words");
    for word in longer {
        let id = words.remove(&word).unwrap();
        words.insert(format!("{word}{word}{word}"), id);
    }
    fs::write(path, tokenizer.to_string()).unwrap();
}

/// What the server sees of the texts.
fn counts(config: &ClientConfig, texts: &[&str]) -> Vec<usize> {
    let mut client = Client::connect(config).unwrap();
    let answers = client.embed(texts, TooLong::Refuse, None).unwrap();
    client.close().unwrap();
    answers.iter().map(|answer| answer.rows).collect()
}

/// The hashes that a publisher states.
fn published() -> Bundle {
    let folder = tempfile::tempdir().unwrap();
    tiny_folder(folder.path()).unwrap();
    Bundle::from_folder(folder.path()).unwrap()
}

#[test]
fn a_server_with_a_vocabulary_of_its_own_is_refused_before_any_text() {
    let server = Running::start(|config| {
        rename(&config.model);
        config.entrance.metrics_listen = Some("127.0.0.1:0".to_owned());
    });
    let texts = ["private", "brown fox"];
    let honest = Running::start(|_| ());

    // Unpinned it works, the server sees more than the length, and the client can say so.
    let mut config = server.client();
    assert_eq!(config.unpinned(false), Some(Unpinned::Tokenizer));
    let (seen, length) = (counts(&config, &texts), counts(&honest.client(), &texts));
    assert_eq!((length[0], seen[0]), (3, 9), "the word alone, and spelled out");
    assert_eq!(seen[1], length[1]);

    let bundle = published();
    let tokenizer = bundle.tokenizer_hash().unwrap();
    config.files.tokenizer = Some(tokenizer);
    assert_eq!(config.unpinned(false), None);
    // Fetched now, or kept from a session without a pin.
    for cache in [None, Some(server.folder.path().join("cache"))] {
        if cache.is_some() {
            let unpinned = ClientConfig { files: FilePins::default(), cache_dir: cache.clone(), ..config.clone() };
            counts(&unpinned, &[]);
        }
        config.cache_dir = cache;
        let error = refused(&config);
        assert_eq!((error.name(), error.category()), ("other-tokenizer", Category::Mismatch));
        match error {
            ServeError::OtherTokenizer { pinned, offered } => {
                assert_eq!(pinned, tokenizer);
                assert!(offered.is_some_and(|offered| offered != pinned));
            }
            other => panic!("{other}"),
        }
    }
    // The texts of the two unpinned calls, and no other.
    let metrics = get(server.metrics.unwrap(), "GET /metrics HTTP/1.1\r\n\r\n");
    assert!(metrics.contains("hushed_texts_total 2"), "{metrics}");

    config.files = FilePins::default();
    config.bundle = Some(BundlePin::Hash(bundle.hash()));
    assert_eq!(config.unpinned(true), None);
    assert_eq!(refused(&config).name(), "other-bundle");
}

#[test]
fn a_client_that_pins_the_published_files_is_served() {
    let server = Running::start(|_| ());
    let bundle = published();
    let mut config = server.client();
    config.files.tokenizer = bundle.tokenizer_hash();
    assert_eq!(counts(&config, &["hello"]).len(), 1);
    // This model has no chat template.
    config.files.template = bundle.tokenizer_hash();
    let error = refused(&config);
    assert_eq!(error.name(), "other-template");
    assert!(matches!(error, ServeError::OtherTemplate { offered: None, .. }));
}

#[test]
fn another_chat_template_is_refused() {
    let templates =
        ["{{ messages[0].content }}", "{{ messages[0].content }}{% if 'fox' in messages[0].content %}!!!{% endif %}"];
    let folder = tempfile::tempdir().unwrap();
    let with = |template: &str, end: &str| {
        tiny_generator_folder(folder.path()).unwrap();
        let chat = serde_json::json!({ "chat_template": template, "eos_token": end });
        let path = folder.path().join("tokenizer_config.json");
        fs::write(path, chat.to_string()).unwrap();
        Bundle::from_folder(folder.path()).unwrap()
    };
    let own = with(templates[1], "<|endoftext|>").template_hash();
    // A template may ask whether a message holds what it calls a special token.
    let token = with(templates[0], "fox").template_hash();
    let pinned = with(templates[0], "<|endoftext|>");
    let server = Running::start(|config| config.model = folder.path().to_owned());
    let mut config = server.client();
    config.files.tokenizer = pinned.tokenizer_hash();
    assert_eq!(config.unpinned(false), None);
    assert_eq!(config.unpinned(true), Some(Unpinned::Template));
    config.files.template = pinned.template_hash();
    assert_eq!(config.unpinned(true), None);
    Client::connect(&config).unwrap().close().unwrap();
    for other in [own, token] {
        assert!(other.is_some());
        config.files.template = other;
        assert_eq!(refused(&config).name(), "other-template");
    }
}
