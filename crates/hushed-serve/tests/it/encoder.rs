//! An encoder: answers in the order of the texts, sessions renewed, kept, shared and ended.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::Running;
use hushed_model::{Model, cosine};
use hushed_serve::{Bundle, BundlePin, Client, Encoder, Net, Options, Progress, TooLong, Watch};

const TEXTS: [&str; 5] =
    ["a", "the quick brown fox, and 123 more!", "hello private world", "b", "c d e f g h i j k l m n"];

fn pairs() -> Options {
    Options { batch: 2, ..Options::default() }
}

#[test]
fn answers_keep_the_order_of_the_texts_over_several_sessions() {
    let server = Running::start(|config| config.max_texts = 3);
    let encoder = Encoder::open(server.client()).unwrap();
    let seen: Arc<Mutex<Vec<Progress>>> = Arc::default();
    let steps = Arc::clone(&seen);
    let watch = Watch { progress: Some(Box::new(move |step| steps.lock().unwrap().push(step))), ..Watch::default() };
    let encoded = encoder.encode(&TEXTS, pairs(), watch).unwrap();

    let model = Model::load(&server.folder.path().join("model")).unwrap();
    let ids = |text: &str| model.tokens(text, pairs().too_long).unwrap();
    for (text, answer) in TEXTS.iter().zip(&encoded.answers) {
        let clear = model.embed(vec![ids(text)]).unwrap().remove(0);
        assert!(cosine(&clear, &answer.values) > 0.999, "{text}");
    }
    let spent = &encoded.spent;
    let rows: Vec<usize> = TEXTS.iter().map(|text| ids(text).rows().total).collect();
    assert_eq!(spent.rows, rows);
    // The three longest fill the first session: a pass of two and one alone. Two are left.
    assert_eq!((spent.sessions, spent.passes), (2, 3));
    let seen = seen.lock().unwrap();
    assert!(seen.iter().all(|step| step.texts == TEXTS.len()));
    let firsts: Vec<usize> = seen.iter().map(|step| step.text).collect();
    assert!(firsts.is_sorted() && firsts.last() == Some(&3));
}

/// The link that a client proposes decides messages and bytes, and no answer.
#[test]
fn sessions_follow_the_link_that_the_client_proposes() {
    let server = Running::start(|_| ());
    let model = Model::load(&server.folder.path().join("model")).unwrap();
    let text = TEXTS[1];
    let clear = model.embed(vec![model.tokens(text, TooLong::Refuse).unwrap()]).unwrap().remove(0);
    let rounds = ["lan", "internet", "100ms/100mbit", "auto"].map(|net| {
        let mut config = server.client();
        config.net = net.parse::<Net>().unwrap();
        let mut client = Client::connect(&config).unwrap();
        if let Net::Link(link) = config.net {
            assert_eq!(client.link(), link);
        }
        let before = client.stats();
        let answer = client.embed(&[text], TooLong::Refuse, None).unwrap().remove(0);
        assert!(cosine(&clear, &answer.values) > 0.999, "{net}");
        client.stats().since(&before).rounds
    });
    let [lan, internet, far, _] = rounds;
    assert!(internet < lan && far < lan, "{rounds:?}");
}

#[test]
fn a_session_is_kept_and_its_set_up_reported_once() {
    let server = Running::start(|_| ());
    let encoder = Encoder::open(server.client()).unwrap();
    let run = |texts: &[&str]| {
        let encoded = encoder.encode(texts, pairs(), Watch::default());
        encoded.unwrap().spent
    };
    let (first, second, none) = (run(&["a"]), run(&["a"]), run(&[]));
    assert_eq!((first.sessions, second.sessions, none.sessions), (1, 0, 0));
    assert!(!first.setup.is_zero() && second.setup.is_zero());
    // Keys and correlations are most of what the first sent.
    assert!(first.bytes_sent > 2 * second.bytes_sent);
    assert_eq!((none.bytes_sent, none.bytes_received), (0, 0));
    encoder.close().unwrap();
    assert_eq!(run(&["a"]).sessions, 1);
}

#[test]
fn a_raised_flag_ends_a_call_at_its_next_step() {
    let server = Running::start(|_| ());
    let encoder = Encoder::open(server.client()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let (raise, steps) = (Arc::clone(&stop), Arc::new(Mutex::new(0)));
    let counted = Arc::clone(&steps);
    let watch = Watch {
        progress: Some(Box::new(move |_| {
            *counted.lock().unwrap() += 1;
            raise.store(true, Ordering::Relaxed);
        })),
        stop: Arc::clone(&stop),
    };
    let error = encoder.encode(&TEXTS, pairs(), watch).err().unwrap();
    assert_eq!((error.name(), *steps.lock().unwrap()), ("stopped", 1));
    // Raised before the call begins: nothing is run, and the next call opens its own session.
    let raised = Watch { stop, ..Watch::default() };
    let error = encoder.encode(&["a"], pairs(), raised).err().unwrap();
    assert_eq!(error.name(), "stopped");
    let again = encoder.encode(&["a"], pairs(), Watch::default()).unwrap();
    assert_eq!(again.spent.sessions, 1);
}

#[test]
fn a_refused_text_costs_nothing_and_keeps_the_session() {
    let server = Running::start(|config| config.max_tokens = Some(8));
    let encoder = Encoder::open(server.client()).unwrap();
    assert_eq!(encoder.facts().max_tokens, 8);
    for (texts, name) in [(["a", ""], "text-refused"), (["a", TEXTS[4]], "too-long")] {
        let error = encoder.encode(&texts, pairs(), Watch::default());
        let error = error.err().unwrap();
        assert_eq!(error.name(), name);
        assert!(error.to_string().contains("text 1"), "{error}");
    }
    let spent = encoder.encode(&["a"], pairs(), Watch::default()).unwrap();
    assert_eq!(spent.spent.sessions, 1, "the one that was opened first");
}

#[test]
fn further_sessions_are_with_the_model_of_the_first() {
    let server = Running::start(|_| ());
    let mut config = server.client();
    let encoder = Encoder::open(config.clone()).unwrap();
    let model = server.folder.path().join("model");
    assert_eq!(encoder.facts().bundle, Bundle::from_folder(&model).unwrap().hash());
    assert!(encoder.facts().prompts.is_empty() && encoder.facts().pools_prompts);
    // The same server, asked for another bundle: what a later session would insist on.
    config.bundle = Some(BundlePin::Hash(hushed_serve::Digest([7; 32])));
    assert_eq!(Encoder::open(config).err().unwrap().name(), "other-bundle");
}
