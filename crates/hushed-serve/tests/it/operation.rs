//! What an operator relies on: stopping, health, metrics.

use crate::common;
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;

use crate::common::{Running, assert_serves, eventually, get};
use hushed_serve::{Refusal, ServeError, TooLong};

#[test]
fn stopping_lets_a_text_end_and_begins_no_other() {
    let mut server = Running::start(|_| ());
    let mut client = server.connect().unwrap();
    let (started, running) = mpsc::channel();
    let working = thread::spawn(move || {
        let progress = move |_| started.send(()).unwrap_or(());
        let first = client.embed(&["the first text is long enough"], TooLong::Refuse, Some(Box::new(progress)));
        let second = client.embed(&["the second"], TooLong::Refuse, None);
        (first, second)
    });
    running.recv().unwrap();
    server.join().unwrap();
    let (first, second) = working.join().unwrap();
    assert_eq!(first.unwrap().len(), 1);
    let second = second.err().unwrap();
    assert!(matches!(second, ServeError::Refused(Refusal::Stopping)), "{second}");
    assert!(server.connect().is_err());
}

#[test]
fn stopping_does_not_wait_for_idle_clients() {
    let mut server = Running::start(|c| c.entrance.deadlines.drain = std::time::Duration::from_secs(3600));
    let mut idle = server.connect().unwrap();
    let greeting = TcpStream::connect(server.address).unwrap();
    server.join().unwrap();
    assert!(idle.embed(&["hello"], TooLong::Refuse, None).is_err());
    drop(greeting);
}

#[test]
fn a_client_that_is_patient_gets_the_next_session() {
    let server = Running::start(|c| {
        c.entrance.max_sessions = 1;
        c.entrance.max_waiting = 0;
        c.entrance.metrics_listen = Some("127.0.0.1:0".to_owned());
    });
    let first = server.connect().unwrap();
    let mut patient = server.client();
    let error = server.connect().err().unwrap();
    assert!(matches!(error, ServeError::Refused(Refusal::TooManySessions { .. })));
    // Too short for a second attempt, which comes at least a quarter of a second later.
    patient.retry = std::time::Duration::from_millis(200);
    assert!(hushed_serve::Client::connect(&patient).is_err());
    patient.retry = std::time::Duration::from_secs(120);
    // No place in the queue either: it asks again.
    let waiting = thread::spawn(move || hushed_serve::Client::connect(&patient));
    let refused = "hushed_refused_total{reason=\"too-many-sessions\"} 3";
    let metrics = server.metrics.unwrap();
    eventually("the third refusal", || get(metrics, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").contains(refused));
    first.close().unwrap();
    let mut second = waiting.join().unwrap().unwrap();
    let answers = second.embed(&["hello"], TooLong::Refuse, None);
    assert_eq!(answers.unwrap().len(), 1);
}

#[test]
fn health_and_metrics() {
    let mut server = Running::start(|c| {
        c.entrance.metrics_listen = Some("127.0.0.1:0".to_owned());
        c.max_texts = 1;
    });
    let address = server.metrics.unwrap();
    let page = |path: &str| get(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert!(page("/healthz").starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(page("/readyz").ends_with("\r\n\r\nready\n"));
    assert!(page("/elsewhere").starts_with("HTTP/1.1 404"));
    assert!(get(address, "POST /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert!(get(address, "\r\n\r\n").starts_with("HTTP/1.1 400"));
    get(address, &format!("GET /{} HTTP/1.1", "x".repeat(1 << 20)));

    // A client that never ends its request does not keep others waiting for long.
    let slow = TcpStream::connect(address).unwrap();
    assert_serves(&server);
    let mut config = server.client();
    config.bundle = Some(hushed_serve::BundlePin::Hash(hushed_serve::Digest([1; 32])));
    common::refused(&config);
    eventually("all sessions have been counted", || page("/metrics").contains("hushed_sessions_running 0"));
    drop(slow);
    let metrics = page("/metrics?now");
    let value = |name: &str| {
        let line = metrics.lines().find(|l| l.starts_with(name));
        let number = line.and_then(|l| l.rsplit(' ').next());
        number.unwrap_or_else(|| panic!("{name} in {metrics}")).parse::<f64>().unwrap()
    };
    assert_eq!(value("hushed_texts_total"), 1.0);
    assert_eq!(value("hushed_tokens_total"), 3.0);
    assert_eq!(value("hushed_sessions_total{end=\"ended\"}"), 1.0);
    assert_eq!(value("hushed_refused_total{reason=\"other-bundle\"}"), 1.0);
    assert!(value("hushed_text_sent_bytes_total") > 1e5);
    assert!(value("hushed_text_received_bytes_total") > 1e5);
    assert!(value("hushed_text_seconds_total") > 0.0);
    assert_eq!(value("hushed_client_texts_total{client=\"anyone\"}"), 1.0);
    assert_eq!(value("hushed_pass_seconds_count"), 1.0);
    assert_eq!((value("hushed_sessions_open"), value("hushed_sessions_max")), (0.0, 4.0));
    assert!(value("hushed_certificate_expiry_seconds") > 1.7e9 && metrics.contains("hushed_build_info{version="));
    server.join().unwrap();
    assert!(TcpStream::connect(address).is_err());
}
