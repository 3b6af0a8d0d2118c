//! Clients that ignore what the welcome said, and answers that are impossible.

use std::sync::atomic::{AtomicBool, Ordering};

use hushed_model::TooLong;
use hushed_model::testing::{tiny_classifier_folder, tiny_folder, tiny_generator_folder};

use hushed_mpc::{Later, Terms};

use super::*;
use crate::twopc::wire::{Ahead, Next};
use crate::{Refusal, Server, ServerConfig, ServerTrust};

/// Serves while `ask` runs.
fn served(config: &ServerConfig, ask: impl FnOnce(&ClientConfig)) {
    let server = Server::bind(config).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| server.run(&stop).unwrap());
        let pin = ServerTrust::Pin(server.listener().fingerprint().to_string());
        let address = server.listener().local_addr().to_string();
        ask(&ClientConfig::new(address, pin));
        stop.store(true, Ordering::SeqCst);
    });
}

/// A client that ignores what the welcome said.
#[test]
fn the_server_holds_its_limits_itself() {
    let folder = tempfile::tempdir().unwrap();
    tiny_folder(folder.path()).unwrap();
    let mut config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
    config.max_tokens = Some(8);
    config.max_pass_tokens = 8;
    config.max_texts = 1;
    served(&config, |config| {
        let unbridled = || {
            let mut client = Client::connect(config).unwrap();
            client.offer.welcome.max_tokens = u32::MAX;
            client.offer.welcome.max_pass_tokens = u32::MAX;
            client.offer.welcome.max_texts = u32::MAX;
            client
        };
        let refused = |result: Result<Vec<Embedding>, ServeError>| match result.err() {
            Some(ServeError::Refused(refusal)) => refusal,
            _ => panic!("the server must refuse"),
        };
        let long = unbridled().embed(&["a b c d e f g h"], TooLong::Refuse, None);
        assert_eq!(refused(long), Refusal::TooLong { limit: 8 });
        let many = unbridled().embed(&["a", "b"], TooLong::Refuse, None);
        assert_eq!(refused(many), Refusal::TooManyTexts { limit: 1 });
        let batch = Options { batch: 4, ..Options::default() };
        let together = unbridled().embed(&["a b c d", "a b c d"], batch, None);
        assert_eq!(refused(together), Refusal::PassTooLarge { limit: 8 });
    });
}

/// Products for texts that are too long or too many, and a pass that uses products never made.
#[test]
fn the_server_holds_its_limits_of_products_ahead_itself() {
    let folder = tempfile::tempdir().unwrap();
    tiny_folder(folder.path()).unwrap();
    let mut config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
    config.max_tokens = Some(8);
    config.max_pass_tokens = 12;
    config.max_texts = 2;
    config.max_ahead = 3;
    served(&config, |config| {
        let ahead = |passes, rows| Request::Ahead(Ahead { passes, rows, padded: false, public_table: false });
        let ask = |request| match Client::connect(config).unwrap().ask(&request) {
            Err(ServeError::Refused(refusal)) => refusal,
            other => panic!("{:?}", other.err().map(|error| error.name())),
        };
        assert_eq!(ask(ahead(1, 9)), Refusal::TooLong { limit: 8 });
        assert_eq!(ask(ahead(2, 8)), Refusal::PassTooLarge { limit: 12 });
        assert_eq!(ask(ahead(3, 4)), Refusal::TooManyTexts { limit: 2 });
        assert_eq!(ask(ahead(4, 2)), Refusal::TooFarAhead { limit: 3 });
        // Held for one text of four rows.
        for rows in [vec![5], vec![4, 4]] {
            let mut client = Client::connect(config).unwrap();
            client.make_ahead(Later { passes: 1, rows: 4 }, Terms::default()).unwrap();
            let request = Request::Embed { rows, padded: false, public_table: false, ahead: true };
            assert_eq!(client.ask(&request).unwrap_err().name(), "peer-gone");
        }
    });
}

/// Requests that our client never sends: each ends only its own session.
#[test]
fn the_server_holds_its_limits_of_generation_itself() {
    let folder = tempfile::tempdir().unwrap();
    tiny_generator_folder(folder.path()).unwrap();
    let mut config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
    config.max_tokens = Some(8);
    config.max_texts = 5;
    config.max_ahead = 1;
    config.answers = Some(Answers::Top(3));
    served(&config, |config| {
        let ask = |request: Request| {
            let mut client = Client::connect(config).unwrap();
            client.ask(&request).err()
        };
        let with = |begins, rows, ahead| {
            Request::Next(Next {
                begins,
                rows,
                padded: false,
                public_table: false,
                ahead,
                drafts: false,
                dropped: 0,
                temperature: 0,
                seed: 0,
                public: 0,
                long: false,
            })
        };
        let next = |begins, rows| with(begins, rows, false);
        assert_eq!(ask(next(false, 1)).unwrap().name(), "peer-gone");
        for rows in [9, u32::MAX] {
            let refused = ask(next(true, rows));
            let limit = Refusal::TooLong { limit: 8 };
            assert!(matches!(refused, Some(ServeError::Refused(r)) if r == limit));
        }
        let embed = Request::Embed { rows: vec![3], padded: false, public_table: false, ahead: false };
        let task = Task::Generate;
        let other = Refusal::OtherTask { task };
        assert!(matches!(ask(embed), Some(ServeError::Refused(r)) if r == other));
        // More products ahead than the server holds, a table that is private, and a pass that uses products never
        // made.
        let far = Refusal::TooFarAhead { limit: 1 };
        let ahead = |passes, public_table| Request::Ahead(Ahead { passes, rows: 1, padded: false, public_table });
        let refused = |request, r| matches!(ask(request), Some(ServeError::Refused(found)) if found == r);
        assert!(refused(ahead(2, false), far));
        assert!(refused(ahead(1, true), Refusal::PrivateTable));
        let rows = Request::Ahead(Ahead { passes: 1, rows: 2, padded: false, public_table: false });
        assert_eq!(ask(rows).unwrap().name(), "peer-gone");
        assert!(ask(ahead(1, false)).is_none());
        let mut client = Client::connect(config).unwrap();
        let mut generation =
            client.generate("a", &GenerateOptions { max_tokens: 1, ..GenerateOptions::default() }).unwrap();
        generation.next().unwrap().unwrap();
        drop(generation);
        let error = client.ask(&with(false, 1, true)).unwrap_err();
        assert_eq!(error.name(), "peer-gone");
        assert!(ask(next(true, 8)).is_none());
        // Three tokens are opened per pass, and each counts.
        let mut client = Client::connect(config).unwrap();
        assert_eq!(client.texts_left(), 1);
        client.offer.welcome.max_texts = u32::MAX;
        let two = GenerateOptions { max_tokens: 2, ..GenerateOptions::default() };
        let mut generation = client.generate("a", &two).unwrap();
        let token = generation.next().unwrap().unwrap();
        assert_eq!((token.top.len(), token.top[0]), (3, token.id));
        let refused = generation.next().unwrap().err();
        let limit = Refusal::TooManyTexts { limit: 5 };
        assert!(matches!(refused, Some(ServeError::Refused(r)) if r == limit));
    });
}

/// Drafts that our client never sends, and rows that it cannot have dropped.
#[test]
fn the_server_holds_its_limits_of_drafts_itself() {
    let folder = tempfile::tempdir().unwrap();
    tiny_generator_folder(folder.path()).unwrap();
    let mut config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
    config.max_tokens = Some(12);
    config.max_texts = 4;
    config.max_drafts = 2;
    served(&config, |config| {
        // Asks after the prompt's pass (one text) and, if `passes` is 2, a pass with two drafts (three texts).
        let ask = |passes: usize, begins, rows, dropped, ahead| {
            let mut client = Client::connect(config).unwrap();
            client.offer.welcome.max_texts = u32::MAX;
            let options = GenerateOptions { max_tokens: 4, draft: 2, ..GenerateOptions::default() };
            let generation = client.generate("a", &options).unwrap();
            let mut wrong = |_: &[u32], most| vec![0; most];
            let mut generation = generation.guessing(&mut wrong);
            while generation.drafted().passes < passes {
                generation.next().unwrap().unwrap();
            }
            assert_eq!(generation.drafted().drafts, 2 * (passes - 1));
            drop(generation);
            let request = Request::Next(Next {
                begins,
                rows,
                padded: false,
                public_table: false,
                ahead,
                drafts: true,
                dropped,
                temperature: 0,
                seed: 0,
                public: 0,
                long: false,
            });
            client.ask(&request).map_or_else(|error| error.name(), |()| "go")
        };
        assert_eq!(ask(1, false, 3, 0, false), "go");
        assert_eq!(ask(1, false, 4, 0, false), "too-many-drafts");
        assert_eq!(ask(1, true, 2, 0, false), "peer-gone");
        assert_eq!(ask(1, false, 2, 0, true), "peer-gone");
        // The first pass had no drafts, the second two.
        assert_eq!(ask(1, false, 2, 1, false), "peer-gone");
        assert_eq!(ask(2, false, 2, 3, false), "peer-gone");
        // Each row counted.
        assert_eq!(ask(2, false, 1, 2, false), "too-many-texts");
    });
}

/// A client that asks for images of other sizes, or for padding.
#[test]
fn the_server_takes_whole_images_alone() {
    let folder = hushed_model::testing::tiny_golden("vit");
    let certificates = tempfile::tempdir().unwrap();
    let config = ServerConfig::local(folder, certificates.path());
    served(&config, |config| {
        let ask = |rows: Vec<u32>, padded, public_table| {
            Client::connect(config).unwrap().ask(&Request::Embed { rows, padded, public_table, ahead: false })
        };
        for (rows, padded) in [(vec![16], false), (vec![17, 18], false), (vec![17], true)] {
            assert_eq!(ask(rows, padded, false).unwrap_err().name(), "peer-gone");
        }
        let refused = ask(vec![17], false, true);
        let private = Refusal::PrivateTable;
        assert!(matches!(refused, Err(ServeError::Refused(r)) if r == private));
        assert!(ask(vec![17], false, false).is_ok());
    });
}

fn impossible() -> RunError {
    RunError::NoSuchPlace { place: 9, places: 3 }
}

/// An impossible answer to the first text: all passes follow, and then the end of the session, byte for byte in
/// number as after other answers. The error comes last.
#[test]
fn a_client_does_not_stop_early_at_an_impossible_answer() {
    let folder = tempfile::tempdir().unwrap();
    tiny_classifier_folder(folder.path(), &["a", "b", "c"]).unwrap();
    let config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
    served(&config, |config| {
        let sent = |bent: bool| {
            let mut client = Client::connect(config).unwrap();
            let texts = ["a b", "c", "d e f"];
            let ids = client.tokens(&texts, &Options::default()).unwrap();
            let (passes, answered) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
            let run: Run<'_, Vec<u32>> = &|party, model, input| {
                let answer = labels(party, model, input, Answers::Label)?;
                passes.set(passes.get() + 1);
                match bent && passes.get() == 1 {
                    true => Err(impossible()),
                    false => Ok(answer),
                }
            };
            let each = |_, _| answered.set(answered.get() + 1);
            let done = client.each_of(&ids, &Options::default(), None, run, each);
            assert_eq!((passes.get(), done.is_err()), (3, bent));
            assert_eq!(answered.get(), if bent { 0 } else { 3 });
            let stats = match bent {
                true => {
                    let error = done.err().unwrap();
                    assert_eq!(error.name(), "peer-misbehaved");
                    assert!(error.to_string().contains("failure 1 of 3"), "{error}");
                    // The session is over, and it has been counted.
                    assert!(client.ask(&Request::Table).is_err());
                    assert_eq!(client.failures.count(), 1);
                    client.stats()
                }
                false => client.close().unwrap(),
            };
            (stats.frames_sent, stats.bytes_sent)
        };
        assert_eq!(sent(true), sent(false));
    });
}

/// The same of a text that is continued: as many passes as tokens were asked for.
#[test]
fn a_client_continues_a_text_after_an_impossible_token() {
    let folder = tempfile::tempdir().unwrap();
    tiny_generator_folder(folder.path()).unwrap();
    let config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
    served(&config, |config| {
        for pad_output in [false, true] {
            let mut client = Client::connect(config).unwrap();
            let options = GenerateOptions { max_tokens: 5, pad_output, ..GenerateOptions::default() };
            let mut generation = client.generate("a b", &options).unwrap();
            // As if the first pass had opened it.
            generation.fault = Some(impossible().into());
            let error = generation.next().unwrap().err().unwrap();
            assert_eq!(error.name(), "peer-misbehaved");
            assert_eq!(generation.take_sent().len(), 5);
            assert!(generation.next().is_none());
            drop(generation);
            assert!(client.left);
        }
    });
}
