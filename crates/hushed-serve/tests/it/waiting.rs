//! Clients that wait for a session: their queue, their turns, and sessions that end for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use hushed_model::testing::long;
use hushed_serve::{
    Client, ClientAccess, ClientConfig, Encoder, Options, Refusal, ServeError, Token, TooLong, Waiting, Watch,
};

use crate::common::private::write_private;
use crate::common::{Running, eventually, refused};

const PATIENCE: Duration = Duration::from_secs(300);

/// A client that waits, and what it is told meanwhile.
fn patient(server: &Running) -> (ClientConfig, Arc<Mutex<Vec<Waiting>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut config = server.client();
    config.retry = PATIENCE;
    let heard = Arc::clone(&told);
    config.on_wait = Some(Arc::new(move |waiting| heard.lock().unwrap().push(waiting)));
    (config, told)
}

fn embed(config: &ClientConfig, text: &str) {
    let mut client = Client::connect(config).unwrap();
    assert_eq!(client.embed(&[text], TooLong::Refuse, None).unwrap().len(), 1);
    client.close().unwrap();
}

#[test]
fn clients_wait_in_turn_and_are_told_their_place() {
    let server = Running::start(|c| {
        c.entrance.max_sessions = 1;
        c.entrance.deadlines.rest = PATIENCE;
    });
    let first = server.connect().unwrap();
    let clients = [patient(&server), patient(&server)];
    let told = |n: usize, what: &dyn Fn(&Waiting) -> bool| {
        let told: &(ClientConfig, Arc<Mutex<Vec<Waiting>>>) = &clients[n];
        eventually("it is told", || told.1.lock().unwrap().iter().any(what));
    };
    thread::scope(|scope| {
        let told = &told;
        scope.spawn(|| {
            let client = Client::connect(&clients[0].0).unwrap();
            // The other one moves up, and the server knows by now how long a session takes.
            told(1, &|w| (w.position, w.waiting) == (1, 1) && w.seconds > 0);
            client.close().unwrap();
        });
        told(0, &|w| (w.position, w.waiting, w.seconds) == (1, 1, 0));
        scope.spawn(|| embed(&clients[1].0, "hello"));
        told(1, &|w| (w.position, w.waiting) == (2, 2));
        // One that does not wait is refused as before.
        let error = refused(&server.client());
        assert!(matches!(error, ServeError::Refused(Refusal::TooManySessions { limit: 1 })), "{error}");
        first.close().unwrap();
    });
}

#[test]
fn the_queue_is_bounded_and_who_leaves_frees_its_place() {
    let server = Running::start(|c| {
        c.entrance.max_sessions = 1;
        c.entrance.max_waiting = 1;
        c.entrance.deadlines.rest = PATIENCE;
    });
    let first = server.connect().unwrap();
    let (mut leaves, told) = patient(&server);
    let stop = Arc::new(AtomicBool::new(false));
    leaves.stop = Some(Arc::clone(&stop));
    thread::scope(|scope| {
        let left = scope.spawn(|| refused(&leaves));
        eventually("it waits", || !told.lock().unwrap().is_empty());
        let mut hasty = server.client();
        hasty.retry = Duration::from_secs(1);
        let error = refused(&hasty);
        assert!(matches!(error, ServeError::Refused(Refusal::TooManySessions { .. })), "{error}");
        stop.store(true, Ordering::Relaxed);
        assert_eq!(left.join().unwrap().name(), "stopped");
    });
    let (config, told) = patient(&server);
    thread::scope(|scope| {
        scope.spawn(|| embed(&config, "hello"));
        eventually("the place is free", || !told.lock().unwrap().is_empty());
        first.close().unwrap();
    });
}

#[test]
fn an_idle_session_ends_for_one_that_waits_and_its_client_opens_another() {
    let server = Running::start(|c| {
        c.entrance.max_sessions = 1;
        c.entrance.deadlines.rest = Duration::from_millis(500);
    });
    // Nobody waits: an idle session stays.
    let mut idle = server.connect().unwrap();
    thread::sleep(Duration::from_millis(700));
    idle.embed(&["hello"], TooLong::Refuse, None).unwrap();
    let (config, _) = patient(&server);
    let encoders = [(); 2].map(|()| Encoder::open(config.clone()).unwrap());
    let error = idle.embed(&["again"], TooLong::Refuse, None).err().unwrap();
    assert!(error.is_over() && error.name() == "idle", "{error}");
    assert_eq!(idle.passes_begun(), 1);
    for round in 0..2 {
        for encoder in &encoders {
            let text = format!("text {round}");
            let encoded = encoder.encode(&[text], Options::default(), Watch::default()).unwrap();
            assert_eq!(encoded.answers.len(), 1);
        }
    }
}

#[test]
fn a_token_is_checked_before_a_place_is_given_and_clients_share_the_queue() {
    let files = tempfile::tempdir().unwrap();
    let list = files.path().join("tokens");
    write_private(&list, "the-token-of-ann\nthe-token-of-bob\n");
    let server = Running::start(|c| {
        c.entrance.access = ClientAccess::Tokens(list);
        c.entrance.max_sessions = 1;
        c.entrance.max_waiting = 4;
        c.entrance.deadlines.rest = PATIENCE;
    });
    let with = |token: &str| {
        let (mut config, told) = patient(&server);
        config.token = Token::from_bytes(token.as_bytes());
        (config, told)
    };
    let (ann, _) = with("the-token-of-ann");
    let first = Client::connect(&ann).unwrap();
    for (token, refusal) in [("", Refusal::NoToken), ("the-token-of-eve", Refusal::BadToken)] {
        match refused(&with(token).0) {
            ServeError::Refused(got) => assert_eq!(got, refusal),
            other => panic!("{other}"),
        }
    }
    let (bob, told_bob) = with("the-token-of-bob");
    thread::scope(|scope| {
        let waits = [(); 2].map(|()| {
            let (config, told) = with("the-token-of-ann");
            scope.spawn(move || embed(&config, "hello"));
            eventually("ann waits", || !told.lock().unwrap().is_empty());
            told
        });
        // Half of the queue is the most that she may have.
        let mut third = ann.clone();
        third.retry = Duration::from_secs(1);
        assert!(matches!(refused(&third), ServeError::Refused(Refusal::TooManySessions { .. })));
        scope.spawn(|| embed(&bob, "hello"));
        // He came third and is second: before anybody's second session comes everybody's first.
        eventually("bob waits", || told_bob.lock().unwrap().iter().any(|w| w.position == 2 && w.waiting == 3));
        eventually("ann moves back", || waits[1].lock().unwrap().iter().any(|w| w.position == 3));
        first.close().unwrap();
    });
}

#[test]
fn a_look_takes_no_session() {
    let server = Running::start(|c| c.entrance.max_sessions = 1);
    let first = server.connect().unwrap();
    let offer = Client::look(&server.client()).unwrap();
    assert_eq!(offer.bundle_hash(), first.bundle_hash());
    assert_eq!((offer.max_tokens(), offer.max_texts()), (first.max_tokens(), first.texts_left()));
    first.close().unwrap();
    // It checks what a session would.
    let mut config = server.client();
    config.bundle = Some(hushed_serve::BundlePin::Hash(hushed_serve::Digest([7; 32])));
    assert_eq!(Client::look(&config).err().unwrap().name(), "other-bundle");
}

#[test]
fn many_clients_at_once_all_get_their_answers() {
    let clients = if long() { 50 } else { 20 };
    let server = Running::start(|c| c.entrance.max_sessions = 4);
    thread::scope(|scope| {
        for n in 0..clients {
            let (config, _) = patient(&server);
            scope.spawn(move || embed(&config, &format!("text {n}")));
        }
    });
}

#[test]
fn the_only_text_of_a_client_ends_well_when_the_server_stops() {
    let mut server = Running::start(|_| ());
    let mut client = server.connect().unwrap();
    let idle = server.connect().unwrap();
    let began = Arc::new(AtomicBool::new(false));
    let begins = Arc::clone(&began);
    let text = thread::spawn(move || {
        let begin = Box::new(move |_| begins.store(true, Ordering::SeqCst));
        let answers = client.embed(&["hello"], TooLong::Refuse, Some(begin)).unwrap();
        client.close().map(|_| answers.len())
    });
    eventually("it runs", || began.load(Ordering::SeqCst));
    server.join().unwrap();
    assert_eq!(text.join().unwrap().unwrap(), 1);
    // All its answers, none, had arrived.
    idle.close().unwrap();
}
