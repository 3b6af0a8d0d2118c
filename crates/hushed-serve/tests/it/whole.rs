//! The whole path over TLS on loopback: a client gets what the model gives in the clear.

use std::fs;
use std::sync::{Arc, Mutex};

use crate::common::Running;
use hushed_model::testing::{TINY_LABELS, tiny_classifier_folder, tiny_golden};
use hushed_model::{Model, cosine};
use hushed_mpc::Answers;
use hushed_serve::{Bundle, BundlePin, Category, Options, Progress, Refusal, ServeError, ServerConfig, Task, TooLong};
use serde_json::Value;

const TEXTS: [&str; 3] = ["a", "hello private world", "the quick brown fox, and 123 more!"];

#[test]
fn embeddings_are_those_of_the_clear_model() {
    let server = Running::start(|_| ());
    let mut client = server.connect().unwrap();
    let seen: Arc<Mutex<Vec<Progress>>> = Arc::default();
    let progress = Arc::clone(&seen);
    let answers =
        client.embed(&TEXTS, TooLong::Refuse, Some(Box::new(move |p| progress.lock().unwrap().push(p)))).unwrap();

    let model = Model::load(&server.folder.path().join("model")).unwrap();
    for (text, answer) in TEXTS.iter().zip(&answers) {
        let ids = model.tokens(text, TooLong::Refuse).unwrap();
        assert_eq!(answer.tokens, ids.rows().total);
        let clear = model.embed(vec![ids]).unwrap().remove(0);
        let c = cosine(&clear, &answer.values);
        assert!(c > 0.999, "cosine {c}");
        // The steps are all that a text costs, apart from its request and the opening of the answer.
        let steps: u64 = answer.pass.sites.iter().map(|s| s.stats.bytes_sent).sum();
        assert!(steps > 0 && steps <= answer.pass.cost.stats.bytes_sent);
        println!(
            "{:2} tokens: {:.3} s, {} up, {} down, {} rounds",
            answer.tokens,
            answer.pass.cost.time.as_secs_f64(),
            answer.pass.cost.stats.bytes_sent,
            answer.pass.cost.stats.bytes_received,
            answer.pass.cost.stats.rounds
        );
    }
    let setup = client.setup();
    println!(
        "set-up: {:.3} s, {} up, {} down, {} rounds",
        setup.time.as_secs_f64(),
        setup.stats.bytes_sent,
        setup.stats.bytes_received,
        setup.stats.rounds
    );
    let seen = seen.lock().unwrap();
    assert_eq!(seen.iter().filter(|p| p.text == 2).count(), answers[2].pass.sites.len());
    assert!(seen.iter().all(|p| p.texts == 3 && p.layers == 2 && p.layer < 2));
    let total = client.close().unwrap();
    assert!(total.bytes_sent > setup.stats.bytes_sent);
}

#[test]
fn a_bundle_is_fetched_once_and_can_be_pinned() {
    let server = Running::start(|_| ());
    let cache = server.folder.path().join("cache");
    let mut config = server.client();
    config.cache_dir = Some(cache.clone());
    let received = |config: &_| {
        let mut client = hushed_serve::Client::connect(config).unwrap();
        let answers = client.embed(&["hello"], TooLong::Refuse, None).unwrap();
        assert_eq!(answers.len(), 1);
        let (bytes, hash) = (client.setup().stats.bytes_received, client.bundle_hash());
        client.close().unwrap();
        (bytes, hash)
    };
    let bundle = Bundle::from_folder(&server.folder.path().join("model")).unwrap();
    let (first, hash) = received(&config);
    assert_eq!(hash, bundle.hash());
    let (second, _) = received(&config);
    // The bundle's frame is gone, and nothing else has changed.
    assert_eq!(first - second, bundle.bytes().len() as u64 + 20);

    // A damaged file is fetched again, and mended.
    let file = cache.join(format!("{hash}.bundle"));
    std::fs::write(&file, b"damaged").unwrap();
    assert_eq!(received(&config).0, first);
    assert_eq!(received(&config).0, second);

    let pinned = server.folder.path().join("pinned.bundle");
    bundle.write(&pinned).unwrap();
    config.cache_dir = None;
    config.bundle = Some(BundlePin::File(pinned));
    assert_eq!(received(&config), (second, hash));
    config.bundle = Some(BundlePin::Hash(hash));
    assert_eq!(received(&config), (first, hash));
}

#[test]
fn several_clients_at_once_get_each_their_own_answer() {
    let server = Running::start(|c| c.entrance.max_sessions = 3);
    let model = Model::load(&server.folder.path().join("model")).unwrap();
    std::thread::scope(|scope| {
        for text in TEXTS {
            let (server, model) = (&server, &model);
            scope.spawn(move || {
                let mut client = server.connect().unwrap();
                for text in [text, "and one more"] {
                    let answer = client.embed(&[text], TooLong::Refuse, None).unwrap();
                    let ids = model.tokens(text, TooLong::Refuse).unwrap();
                    let clear = model.embed(vec![ids]).unwrap().remove(0);
                    assert!(cosine(&clear, &answer[0].values) > 0.999);
                }
                client.close().unwrap();
            });
        }
    });
}

/// In batches and padded to a bucket, several texts per pass and one alone, the answers are the same.
#[test]
fn batches_and_buckets_change_no_answer() {
    let server = Running::start(|c| c.max_pass_tokens = 48);
    let model = Model::load(&server.folder.path().join("model")).unwrap();
    let texts: Vec<&str> = TEXTS.into_iter().chain(["b", "another one"]).collect();
    let mut client = server.connect().unwrap();
    for (bucket, batch, passes) in [(None, 8, 2), (Some(16), 2, 3), (Some(1000), 8, 5)] {
        let options = Options { bucket, batch, ..Options::default() };
        let answers = client.embed(&texts, options, None).unwrap();
        let mut firsts: Vec<usize> = answers.iter().map(|a| a.pass.first).collect();
        firsts.dedup();
        assert_eq!(firsts.len(), passes, "{firsts:?}");
        for (text, answer) in texts.iter().zip(&answers) {
            let ids = model.tokens(text, TooLong::Refuse).unwrap();
            assert_eq!(answer.tokens, ids.rows().total);
            match bucket {
                None => assert_eq!(answer.rows, answer.tokens),
                Some(n) => assert_eq!(answer.rows, answer.tokens.next_multiple_of(n).min(48)),
            }
            let clear = model.embed(vec![ids]).unwrap().remove(0);
            let c = cosine(&clear, &answer.values);
            assert!(c > 0.999, "cosine {c}");
        }
    }
    client.close().unwrap();
}

/// The table is fetched once, kept, fetched again when damaged, and refused if it is private.
#[test]
fn a_public_table_is_used_where_its_operator_allows_it() {
    let options = Options { public_table: true, ..Options::default() };
    let private = Running::start(|_| ());
    let mut client = private.connect().unwrap();
    let error = client.embed(&TEXTS, options, None).err().unwrap();
    assert_eq!(error.name(), "private-table");

    let server = Running::start(|c| c.public_table = true);
    let folder = server.folder.path();
    let model = Model::load(&folder.join("model")).unwrap();
    let cache = folder.join("cache");
    let mut config = server.client();
    config.cache_dir = Some(cache.clone());
    let received = || {
        let mut client = hushed_serve::Client::connect(&config).unwrap();
        let before = client.stats().bytes_received;
        let answers = client.embed(&TEXTS, options, None).unwrap();
        for (text, answer) in TEXTS.iter().zip(&answers) {
            let lookup = &answer.pass.sites[0].stats;
            assert_eq!(lookup.bytes_sent + lookup.bytes_received, 0);
            let ids = model.tokens(text, TooLong::Refuse).unwrap();
            let clear = model.embed(vec![ids]).unwrap().remove(0);
            assert!(cosine(&clear, &answer.values) > 0.999);
        }
        let passes: u64 = answers.iter().map(|a| a.pass.cost.stats.bytes_received).sum();
        let fetched = client.stats().bytes_received - before - passes;
        client.close().unwrap();
        fetched
    };
    let e = model.embedding().unwrap();
    let table = (4 * e.vocabulary * e.width) as u64;
    let first = received();
    assert!(first >= table && first < table + 100, "{first} for {table}");
    assert_eq!(received(), 0);
    let kept = std::fs::read_dir(&cache).unwrap().map(|f| f.unwrap().path());
    let kept: Vec<_> = kept.filter(|p| p.extension() == Some("table".as_ref())).collect();
    assert_eq!(kept.len(), 1);
    std::fs::write(&kept[0], b"damaged").unwrap();
    assert_eq!((received(), received()), (first, 0));
}

#[test]
fn labels_are_those_of_the_clear_model() {
    let folder = tempfile::tempdir().unwrap();
    let server = Running::start(|config| {
        tiny_classifier_folder(folder.path(), &TINY_LABELS).unwrap();
        config.model = folder.path().to_owned();
    });
    let mut client = server.connect().unwrap();
    let refused = client.embed(&TEXTS, TooLong::Refuse, None).err().unwrap();
    assert!(matches!(refused, ServeError::Refused(Refusal::OtherTask { task: Task::Classify })));
    let batch = Options { batch: 3, bucket: Some(8), ..Options::default() };
    let mut found = Vec::new();
    client.classify_each(&TEXTS, batch, None, |_, answer| found.push(answer.values.name().to_owned())).unwrap();
    client.close().unwrap();
    let model = Model::load(folder.path()).unwrap();
    for (text, label) in TEXTS.iter().zip(&found) {
        let ids = model.tokens(text, TooLong::Refuse).unwrap();
        let logits = model.embed(vec![ids]).unwrap().remove(0);
        let place = TINY_LABELS.iter().position(|name| name == label).unwrap();
        let largest = logits.iter().copied().fold(f64::MIN, f64::max);
        assert!(largest - logits[place] < 0.02, "{label} {logits:?}");
    }
}

/// Embeddings with eight bits a number, which both parties and the count of opened bits agree on.
#[test]
fn embeddings_have_as_many_bits_as_the_operator_opens() {
    let opened = |answers| {
        let server = Running::start(|config| config.answers = Some(answers));
        let mut client = server.connect().unwrap();
        assert_eq!(client.answers(), answers);
        let mut found = Vec::new();
        client.embed_each(&TEXTS, TooLong::Refuse, None, |_, answer| found.push(answer.values)).unwrap();
        found
    };
    let (usual, coarse) = (opened(Answers::Label), opened(Answers::Bits(8)));
    for (usual, coarse) in usual.iter().zip(&coarse) {
        let cosine = cosine(usual, coarse);
        assert!((0.99..0.999_999).contains(&cosine), "{cosine}");
    }
}

/// If the operator allows it: the names of the largest logits in order, each of which counts as a text.
#[test]
fn the_largest_classes_are_opened_where_the_operator_says_so() {
    let folder = tempfile::tempdir().unwrap();
    tiny_classifier_folder(folder.path(), &TINY_LABELS).unwrap();
    let server = Running::start(|config| {
        config.model = folder.path().to_owned();
        config.answers = Some(Answers::Top(2));
        config.max_texts = 2 * TEXTS.len() + 1;
    });
    let mut client = server.connect().unwrap();
    assert_eq!(client.texts_left(), TEXTS.len());
    let mut found = Vec::new();
    client.classify_each(&TEXTS, TooLong::Refuse, None, |_, answer| found.push(answer.values.top)).unwrap();
    assert_eq!(client.texts_left(), 0);
    let model = Model::load(folder.path()).unwrap();
    for (text, top) in TEXTS.iter().zip(&found) {
        let ids = model.tokens(text, TooLong::Refuse).unwrap();
        let logits = model.embed(vec![ids]).unwrap().remove(0);
        let of = |name: &String| logits[TINY_LABELS.iter().position(|label| label == name).unwrap()];
        let mut order = logits.clone();
        order.sort_by(|a, b| b.total_cmp(a));
        assert!(top.len() == 2 && top[0] != top[1]);
        for (name, logit) in top.iter().zip(&order) {
            assert!(logit - of(name) < 0.02, "{top:?} {logits:?}");
        }
    }
    for (answers, model) in [
        (Answers::Top(4), folder.path().to_owned()),
        (Answers::Top(1), tiny_golden("roberta")),
        (Answers::Bits(8), folder.path().to_owned()),
    ] {
        let mut config = ServerConfig::local(model, folder.path().join("certificates"));
        config.answers = Some(answers);
        let refused = hushed_serve::Server::bind(&config).err().unwrap();
        assert_eq!(refused.name(), "limit");
    }
}

/// Where several classes or none may be right: those above the operator's threshold, together one text.
#[test]
fn classes_above_a_threshold_are_opened() {
    let folder = tiny_golden("multi-label");
    let server = Running::start(|config| {
        config.model = folder.clone();
        config.max_texts = TEXTS.len();
    });
    let mut client = server.connect().unwrap();
    assert_eq!((client.answers(), client.texts_left()), (Answers::Above(500), TEXTS.len()));
    let mut found = Vec::new();
    client.classify_each(&TEXTS, TooLong::Refuse, None, |_, answer| found.push(answer.values)).unwrap();
    assert_eq!(client.texts_left(), 0);
    let model = Model::load(&folder).unwrap();
    let names = model.public.labels().unwrap();
    for (text, class) in TEXTS.iter().zip(&found) {
        assert!(class.logits.is_none());
        let ids = model.tokens(text, TooLong::Refuse).unwrap();
        let logits = model.embed(vec![ids]).unwrap().remove(0);
        for (name, logit) in names.iter().zip(&logits) {
            assert!(class.top.contains(name) == (*logit > 0.0) || logit.abs() < 0.02, "{:?} {logits:?}", class.top);
        }
    }
}

/// The largest of several logits that may all be right is no answer.
#[test]
fn classes_that_do_not_exclude_each_other_have_no_largest() {
    let folder = tempfile::tempdir().unwrap();
    tiny_classifier_folder(folder.path(), &TINY_LABELS).unwrap();
    let path = folder.path().join("config.json");
    let plain: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    for (problem, answers, starts) in [
        ("multi_label_classification", Answers::Label, false),
        ("multi_label_classification", Answers::Top(2), false),
        ("regression", Answers::Label, false),
        ("multi_label_classification", Answers::Logits, true),
        ("multi_label_classification", Answers::Above(300), true),
        ("single_label_classification", Answers::Above(500), false),
        ("regression", Answers::Above(500), false),
        ("single_label_classification", Answers::Label, true),
    ] {
        let mut config = plain.clone();
        config["problem_type"] = problem.into();
        fs::write(&path, config.to_string()).unwrap();
        let certificates = folder.path().join("certificates");
        let mut config = ServerConfig::local(folder.path().to_owned(), certificates);
        config.answers = Some(answers);
        match hushed_serve::Server::bind(&config) {
            Ok(_) => assert!(starts, "{problem} {answers}"),
            Err(error) => assert!(!starts && error.to_string().contains("problem_type"), "{error}"),
        }
    }
}

/// If the operator allows it: all logits, each of which counts as a text.
#[test]
fn logits_are_opened_where_the_operator_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let classes = TINY_LABELS.len();
    let server = Running::start(|config| {
        tiny_classifier_folder(folder.path(), &TINY_LABELS).unwrap();
        config.model = folder.path().to_owned();
        config.answers = Some(Answers::Logits);
        config.max_texts = TEXTS.len() * classes + classes - 1;
    });
    let mut client = server.connect().unwrap();
    assert_eq!(client.answers(), Answers::Logits);
    let mut found = Vec::new();
    let batch = Options { batch: 2, ..Options::default() };
    client.classify_each(&TEXTS, batch, None, |_, answer| found.push(answer.values)).unwrap();
    let model = Model::load(folder.path()).unwrap();
    for (text, class) in TEXTS.iter().zip(&found) {
        let ids = model.tokens(text, TooLong::Refuse).unwrap();
        let clear = model.embed(vec![ids]).unwrap().remove(0);
        let logits = class.logits.as_ref().unwrap();
        let off = logits.iter().zip(&clear).map(|(a, b)| (a - b).abs());
        assert!(off.fold(0.0, f64::max) < 0.01);
        let place = TINY_LABELS.iter().position(|name| *name == class.name());
        let largest = logits.iter().copied().fold(f64::MIN, f64::max);
        assert!(logits[place.unwrap()] >= largest);
    }
    // Not one more answer is left, for this client or for one that ignores what the welcome said.
    assert_eq!(client.texts_left(), 0);
    let refused = client.classify_each(&["a"], TooLong::Refuse, None, |_, _| ());
    assert!(matches!(refused.err().unwrap(), ServeError::TooManyTexts { .. }));
    client.close().unwrap();

    let refused = |change: &dyn Fn(&mut ServerConfig)| {
        let mut config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
        config.answers = Some(Answers::Logits);
        change(&mut config);
        hushed_serve::Server::bind(&config).err().unwrap().category()
    };
    assert_eq!(refused(&|c| c.max_texts = classes - 1), Category::Usage);
    let generator = tiny_golden("gpt2");
    assert_eq!(refused(&|c| c.model = generator.clone()), Category::Usage);
}
