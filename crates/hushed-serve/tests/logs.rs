//! Logs tell what happened and nothing of the texts. Alone in its file: the whole process has one subscriber.

mod common;

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use common::Running;
use common::private::write_private;
use hushed_serve::TooLong;
use tracing_subscriber::fmt::MakeWriter;

/// Collected log lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Lines;

    fn make_writer(&'a self) -> Lines {
        self.clone()
    }
}

#[test]
fn logs_say_what_happened_and_nothing_of_the_texts() {
    let lines = Lines::default();
    tracing_subscriber::fmt()
        .with_max_level(tracing::level_filters::LevelFilter::TRACE)
        .with_writer(lines.clone())
        .init();
    let token = "a-very-secret-token-word";
    let mut server = Running::start(|c| {
        let path = c.model.join("tokens");
        write_private(&path, token);
        c.entrance.access = hushed_serve::ClientAccess::Tokens(path);
    });
    let mut config = server.client();
    assert!(hushed_serve::Client::connect(&config).is_err());
    config.token = hushed_serve::Token::from_bytes(token.as_bytes());
    let mut client = hushed_serve::Client::connect(&config).unwrap();
    let answers = client.embed(&["xylophone zebra"], TooLong::Refuse, None).unwrap();
    client.close().unwrap();
    server.join().unwrap();
    let log = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    for said in ["session opened", "session ended", "no-token", "texts=1", "pass done", "stopped"] {
        assert!(log.contains(said), "{said:?} in {log}");
    }
    for unsaid in ["xylophone", "zebra", token] {
        assert!(!log.contains(unsaid), "{unsaid:?} in {log}");
    }
    let number = format!("{:.4}", answers[0].values[0].abs());
    assert!(!log.contains(&number));
}
