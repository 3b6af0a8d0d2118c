//! A session kept between calls: renewed at the server's limit, not used again after a failure.

use hushed_model::testing::{TINY_LABELS, tiny_classifier_folder};
use hushed_serve::{Kept, ServeError, Task, TooLong};

use crate::common::{Running, eventually, get};

/// A server of the tiny classifier that accepts 2 texts per session.
fn start() -> Running {
    let folder = tempfile::tempdir().unwrap();
    Running::start(|config| {
        tiny_classifier_folder(folder.path(), &TINY_LABELS).unwrap();
        config.model = folder.path().to_owned();
        config.max_texts = 2;
        config.entrance.metrics_listen = Some("127.0.0.1:0".to_owned());
    })
}

fn classify(kept: &mut Kept, texts: &[&str]) -> Result<Vec<String>, ServeError> {
    kept.run(texts.len(), |client| {
        let mut classes = Vec::new();
        client
            .classify_each(texts, TooLong::Refuse, None, |_, answer| classes.push(answer.values.name().to_owned()))?;
        Ok(classes)
    })
}

#[test]
fn sessions_are_kept_and_renewed() {
    let server = start();
    let mut kept = Kept::open(server.client(), Task::Classify).unwrap();
    assert_eq!((kept.max_texts(), kept.public().labels().map(<[_]>::len)), (2, Some(3)));
    assert_eq!(classify(&mut kept, &["a"]).unwrap().len(), 1);
    // A text refused on this side costs nothing.
    assert_eq!(classify(&mut kept, &[""]).err().unwrap().name(), "text-refused");
    assert_eq!(classify(&mut kept, &["a"]).unwrap().len(), 1);
    let ended = || {
        let metrics = get(server.metrics.unwrap(), "GET /metrics HTTP/1.1\r\n\r\n");
        metrics.contains("hushed_sessions_total{end=\"ended\"} 1")
    };
    assert!(!ended(), "all in one session");
    assert_eq!(classify(&mut kept, &["b", "c"]).unwrap().len(), 2);
    eventually("the first session has ended", ended);
    // More than any session accepts.
    assert_eq!(classify(&mut kept, &["b"; 3]).err().unwrap().name(), "too-many-texts");
    kept.close().unwrap();
    assert_eq!(classify(&mut kept, &["d"]).unwrap().len(), 1);
}

#[test]
fn what_it_is_not_for_and_a_server_that_has_gone() {
    let mut server = start();
    let error = Kept::open(server.client(), Task::Embed).err().unwrap();
    assert_eq!(error.name(), "other-task");
    let mut kept = Kept::open(server.client(), Task::Classify).unwrap();
    server.join().unwrap();
    for _ in 0..2 {
        assert_eq!(classify(&mut kept, &["a"]).err().unwrap().category(), hushed_serve::Category::Network);
    }
}
