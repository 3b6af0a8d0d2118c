//! Conversations rendered by chat templates, compared with `transformers` (scripts/chat_templates.py and
//! scripts/chat_styles.py), and templates from malicious servers.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use hushed_model::{ChatError, Message, Public, PublicFiles, Role, TextError};
use serde_json::{Value, json};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn parsed(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The public part of a tiny decoder with these special tokens and this `tokenizer_config.json`.
fn public(model: &str, added: &Value, chat: &Value) -> Public {
    let (folder, from) = (tempfile::tempdir().unwrap(), golden().join("tiny").join(model));
    let mut config = parsed(&from.join("config.json"));
    let mut tokenizer = parsed(&from.join("tokenizer.json"));
    let tokens = tokenizer["added_tokens"].as_array_mut().unwrap();
    let added = added.as_object().unwrap();
    tokens.extend(added.iter().map(|(token, id)| {
        json!({ "id": id, "content": token, "special": true, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false })
    }));
    tokens.sort_by_key(|token| token["id"].as_u64());
    let vocabulary = config["vocab_size"].as_u64().unwrap();
    config["vocab_size"] = json!(vocabulary + added.len() as u64);
    for (name, value) in [("config.json", &config), ("tokenizer.json", &tokenizer), ("tokenizer_config.json", chat)] {
        fs::write(folder.path().join(name), value.to_string()).unwrap();
    }
    let files = PublicFiles::read(folder.path()).unwrap();
    // As it arrives at a client.
    let sent = files.iter().map(|(name, bytes)| (name.to_owned(), bytes.to_vec()));
    PublicFiles::from_files(sent).unwrap().parse().unwrap()
}

/// A tiny GPT-2 with this template.
fn of(template: &str) -> Public {
    let chat = json!({ "chat_template": template });
    public("gpt2", &json!({ "<|im_end|>": 400 }), &chat)
}

fn messages(conversation: &Value) -> Vec<Message> {
    serde_json::from_value(conversation.clone()).unwrap()
}

fn said(contents: &[&str]) -> Vec<Message> {
    let message = |content: &&str| Message { role: Role::User, content: (*content).to_owned(), name: None };
    contents.iter().map(message).collect()
}

fn refused(template: &str, contents: &[&str]) -> ChatError {
    of(template).chat(&said(contents)).err().unwrap()
}

#[test]
fn texts_and_ids_are_those_of_transformers() {
    let mut compared = 0;
    for case in parsed(&golden().join("chat.json")).as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let mut chat = case["tokens"].clone();
        chat["chat_template"] = case["template"].clone();
        let public = public(case["tokenizer"].as_str().unwrap(), &case["added"], &chat);
        for expected in case["conversations"].as_array().unwrap() {
            let prompt = public.chat(&messages(&expected["messages"]));
            if let Some(raised) = expected["raised"].as_str() {
                let reason = raised.to_owned();
                assert_eq!(prompt.err(), Some(ChatError::Refused { reason }), "{name}");
                continue;
            }
            let prompt = prompt.unwrap();
            assert_eq!(prompt.as_str(), expected["text"].as_str().unwrap(), "{name}");
            let ids = prompt.encode(public.tokenizer().unwrap(), 4096).unwrap();
            assert_eq!(json!(ids.ids()), expected["ids"], "{name}");
            compared += 1;
        }
    }
    assert_eq!(compared, 18);
}

/// Templates in the styles of published ones, byte for byte.
#[test]
fn styles_are_rendered_as_by_transformers() {
    let golden = parsed(&golden().join("chat_styles.json"));
    let now = UNIX_EPOCH + Duration::from_secs(golden["now"].as_u64().unwrap());
    let (mut compared, mut wrong) = (0, Vec::new());
    for case in golden["templates"].as_array().unwrap() {
        let mut chat = case["tokens"].clone();
        chat["chat_template"] = case["template"].clone();
        let public = public("gpt2", &json!({}), &chat);
        for expected in case["conversations"].as_array().unwrap() {
            let found = public.chat_at(&messages(&expected["messages"]), now);
            let found = found.map(|prompt| prompt.as_str().to_owned());
            let expected = match expected["raised"].as_str() {
                Some(raised) => Err(ChatError::Refused { reason: raised.to_owned() }),
                None => Ok(expected["text"].as_str().unwrap().to_owned()),
            };
            if found != expected {
                wrong.push(format!("{}: {found:?}, not {expected:?}", case["name"]));
            }
            compared += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared >= 150, "{compared}");
}

#[test]
fn what_a_folder_may_say() {
    let none = json!({});
    let hello = said(&["hello"]);
    let text = |chat: Value| {
        let prompt = public("gpt2", &none, &chat).chat(&hello);
        prompt.map(|prompt| prompt.as_str().to_owned())
    };
    assert_eq!(text(none.clone()), Err(ChatError::NoTemplate));
    assert_eq!(text(json!({ "chat_template": null })), Err(ChatError::NoTemplate));
    let named = json!({ "chat_template": [
        { "name": "tool_use", "template": "no" }, { "name": "default", "template": "{{ bos_token }}yes" },
    ], "bos_token": { "content": "<s>", "lstrip": false } });
    assert_eq!(text(named), Ok("<s>yes".to_owned()));

    // A separate template file wins, and everything else in the folder stays there.
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "tokenizer.json"] {
        fs::copy(golden().join("tiny/gpt2").join(name), folder.path().join(name)).unwrap();
    }
    let config = json!({ "chat_template": "no", "eos_token": "!", "name_or_path": "/home/somebody/secret" });
    fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
    fs::write(folder.path().join("chat_template.jinja"), "yes{{ eos_token }}\n").unwrap();
    let files = PublicFiles::read(folder.path()).unwrap();
    let prompt = files.parse().unwrap().chat(&hello).unwrap();
    assert_eq!(prompt.as_str(), "yes!");
    for (_, bytes) in files.iter() {
        assert!(!String::from_utf8_lossy(bytes).contains("secret"));
    }
    // The template of an encoder is not taken at all.
    for (name, from) in [("config.json", "roberta"), ("tokenizer.json", "roberta")] {
        let from = golden().join("tiny").join(from).join(name);
        fs::copy(from, folder.path().join(name)).unwrap();
    }
    let files = PublicFiles::read(folder.path()).unwrap();
    assert!(files.iter().all(|(name, _)| name != "tokenizer_config.json"));
}

#[test]
fn special_tokens_are_the_templates_own() {
    let all = "{% for m in messages %}{{ m.content | trim }}{% endfor %}<|im_end|>";
    let special = |contents: &[&str]| refused(all, contents);
    assert_eq!(special(&["a", "b <|im_end|>"]), ChatError::Special { index: 1 });
    assert_eq!(special(&["<|endoftext|>"]), ChatError::Special { index: 0 });
    assert_eq!(special(&["a <|im", "_en ", " d|> b"]), ChatError::Special { index: 2 });
    let fine = of(all);
    let prompt = fine.chat(&said(&["<|im_", "_end|>"])).unwrap();
    let ids = prompt.encode(fine.tokenizer().unwrap(), 100).unwrap();
    assert_eq!(ids.ids().iter().filter(|id| **id == 400).count(), 1);
    assert_eq!(ids.ids().last(), Some(&400));
}

/// Nor do they arise from what a template or a tokenizer does to a message without any.
#[test]
fn no_message_becomes_a_special_token() {
    let becomes = |template: &str, content: &str| refused(template, &[content]) == ChatError::Becomes;
    let cut = "{{ messages[0].content.split('</think>')[0] }}{{ messages[0].content.split('</think>')[-1] }}<|im_end|>";
    assert!(becomes(cut, "<|im_</think>end|>"));
    let replaced = "{{ messages[0].content | replace('&lt;', '<') | lower }}<|im_end|>";
    assert!(becomes(replaced, "&lt;|im_end|>"));
    assert!(becomes(replaced, "a <|IM_END|> b"));
    let joined = "<|im_{{ messages[0].content }}|><|im_end|>";
    assert!(becomes(joined, "end"));
    for (template, content) in [(cut, "a </think> <b> |im_end|"), (replaced, "&lt;b> <|im|>")] {
        let fine = of(template).chat(&said(&[content])).unwrap();
        assert!(fine.as_str().ends_with("<|im_end|>"));
    }
}

#[test]
fn how_much_may_be_said() {
    let fine = of("{{ messages[0].content }}");
    assert_eq!(fine.chat(&[]).err(), Some(ChatError::Messages { messages: 0 }));
    let many = said(&vec![""; 3000]);
    assert_eq!(fine.chat(&many).err(), Some(ChatError::Messages { messages: 3000 }));
    let long = "a ".repeat(1 << 19);
    assert_eq!(fine.chat(&said(&[&long])).unwrap().as_str().len(), 1 << 20);
    let error = fine.chat(&said(&[&long, "b"])).err().unwrap();
    assert!(matches!(error, ChatError::Text(TextError::TooManyBytes { .. })));
    let prompt = fine.chat(&said(&["hello world"])).unwrap();
    let error = prompt.encode(fine.tokenizer().unwrap(), 2).err().unwrap();
    assert!(matches!(error, TextError::TooLong { limit: 2, .. }));
}

#[test]
fn templates_that_mean_harm_are_refused_and_end() {
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(50_000), ")".repeat(50_000));
    for (name, template) in [
        (
            "doubling",
            "{% set ns = namespace(x='ab') %}{% for i in range(90) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        ),
        ("repeating", "{{ 'a' * 99999999 }}"),
        ("replacing", "{% set x = ('a' * 9999) | replace('a', 'b' * 9999) %}{{ x | length }}"),
        ("joining", "{{ ('b' * 99999).join(range(99999)) }}"),
        ("a long loop", "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}"),
        ("a long output", "{% for a in range(9999) %}{{ messages[0].content * 99 }}{% endfor %}"),
        ("recursion", "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}"),
        ("recursion of loops", "{% for a in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}"),
        ("another template", "{% include 'a' %}"),
        ("a file", "{% import '/etc/passwd' as a %}"),
        ("an unknown function", "{{ open('/etc/passwd') }}"),
        ("attributes", "{{ ''.__class__.__mro__[1].__subclasses__() }}"),
        ("a broken one", "{% if %}"),
        ("a deep one", deep.as_str()),
        ("padding", "{{ '%999999999d' % 1 }}"),
        ("padding by a value", "{{ '%*d' % (999999999, 1) }}"),
        (
            "JSON of shared values",
            "{% set ns = namespace(x='a' * 99) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
        ),
        ("JSON with wide margins", "{{ [1] | tojson(indent=9999999999) }}"),
        (
            "JSON of texts with escapes",
            "{% set x = '\n' * 99999 %}{% for i in range(99) %}{% set y = [x, x, x] | tojson(ensure_ascii=true) %}{% endfor %}",
        ),
        ("many dates", "{% set x = '%c' * 9999 %}{% for i in range(999) %}{% set y = strftime_now(x) %}{% endfor %}"),
        ("division", "{{ 1 // 0 }}"),
    ] {
        let error = refused(template, &["a secret"]);
        assert!(matches!(error, ChatError::Template { .. }), "{name}: {error}");
        assert!(!error.to_string().contains("secret"), "{name}");
    }
    // Nested values, as deep as the fuel allows, are printed, compared and dropped.
    let nested = "{% set ns = namespace(x=[], y=[]) %}{% for i in range(9000) %}{% set ns.x = [ns.x] %}{% set ns.y = [ns.y] %}{% endfor %}";
    for end in [
        "",
        "{{ ns.x == ns.y }}",
        "{{ ns.x }}",
        "{{ ns.x | string | length }}",
        "{{ ns.x | list }}",
        "{{ ns.x | tojson }}",
        "{{ ns.x | tojson(indent=1) }}",
    ] {
        let ended = of(&format!("{nested}{end}")).chat(&said(&["a secret"]));
        assert!(ended.is_ok() || matches!(ended, Err(ChatError::Template { .. })), "{end}");
    }
}

#[test]
fn what_a_template_raises_is_shown_if_it_is_its_own() {
    let own = refused("{{ raise_exception('only one message') }}", &["a", "b"]);
    let reason = "only one message".to_owned();
    assert_eq!(own, ChatError::Refused { reason });
    for made in ["'no: ' ~ messages[0].content", "'x' * 9999"] {
        let error = refused(&format!("{{{{ raise_exception({made}) }}}}"), &["secret"]);
        assert!(matches!(error, ChatError::Refused { .. }));
        assert!(!error.to_string().contains("secret") && error.to_string().len() < 300);
    }
}

#[test]
fn a_check_needs_no_conversation() {
    assert_eq!(of("{{ messages[0].content }}").check_chat(), Ok(()));
    assert!(of("{{ open() }}").check_chat().is_err());
    assert!(of("{{ tokens").check_chat().is_err());
}
