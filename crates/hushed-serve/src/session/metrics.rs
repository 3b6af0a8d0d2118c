//! Counters, and the little HTTP/1.1 responder that shows them: `/healthz`, `/readyz`, `/metrics`.
//!
//! The responder takes one request a connection, at most [`MAX_REQUEST`] bytes within [`PATIENCE`], one connection at a
//! time; it never reads a body. Nothing it says depends on a text but the number of tokens.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hushed_net::{Listener, Stats};

/// Most bytes of a request.
const MAX_REQUEST: usize = 4096;
/// Longest time for a request and its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait when the system has no connection to give.
const NO_CONNECTION: Duration = Duration::from_millis(100);

/// A server's counters.
#[derive(Default)]
pub(crate) struct Metrics {
    running: AtomicU64,
    texts: AtomicU64,
    tokens: AtomicU64,
    micros: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    /// By reason; reasons are names of this program, so there are few.
    refused: Mutex<BTreeMap<&'static str, u64>>,
    ended: Mutex<BTreeMap<&'static str, u64>>,
    /// Runs under encryption that wait or run.
    jobs: AtomicU64,
    jobs_ended: Mutex<BTreeMap<&'static str, u64>>,
}

/// A session that runs until this is dropped.
pub(crate) struct Running<'a>(&'a AtomicU64);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Metrics {
    pub(crate) fn running(&self) -> Running<'_> {
        self.running.fetch_add(1, Ordering::Relaxed);
        Running(&self.running)
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        count(&self.refused, reason);
    }

    pub(crate) fn ended(&self, how: &'static str) {
        count(&self.ended, how);
    }

    pub(crate) fn jobs(&self, under_way: usize) {
        self.jobs.store(under_way as u64, Ordering::Relaxed);
    }

    pub(crate) fn job_ended(&self, how: &'static str) {
        count(&self.jobs_ended, how);
    }

    pub(crate) fn pass(&self, texts: usize, tokens: usize, spent: Duration, stats: &Stats) {
        let micros = u64::try_from(spent.as_micros()).unwrap_or(u64::MAX);
        for (counter, by) in [
            (&self.texts, texts as u64),
            (&self.tokens, tokens as u64),
            (&self.micros, micros),
            (&self.sent, stats.bytes_sent),
            (&self.received, stats.bytes_received),
        ] {
            counter.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// In the text format of Prometheus, version 0.0.4.
    pub(crate) fn render(&self) -> String {
        let mut out = String::new();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut single = |name: &str, kind: &str, help: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = write!(
                out,
                "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"
            );
        };
        single(
            "hushed_sessions_running",
            "gauge",
            "Connections that are open.",
            read(&self.running).to_string(),
        );
        single(
            "hushed_texts_total",
            "counter",
            "Texts that were embedded.",
            read(&self.texts).to_string(),
        );
        single(
            "hushed_tokens_total",
            "counter",
            "Tokens of these texts.",
            read(&self.tokens).to_string(),
        );
        single(
            "hushed_text_seconds_total",
            "counter",
            "Time that these texts took, waiting included.",
            format!("{:.6}", read(&self.micros) as f64 / 1e6),
        );
        single(
            "hushed_text_sent_bytes_total",
            "counter",
            "Bytes sent for these texts.",
            read(&self.sent).to_string(),
        );
        single(
            "hushed_text_received_bytes_total",
            "counter",
            "Bytes received for these texts.",
            read(&self.received).to_string(),
        );
        single(
            "hushed_jobs",
            "gauge",
            "Runs under encryption that wait or run.",
            read(&self.jobs).to_string(),
        );
        labelled(
            &mut out,
            "hushed_jobs_total",
            "Runs under encryption that ended, by how.",
            "end",
            &self.jobs_ended,
        );
        labelled(
            &mut out,
            "hushed_sessions_total",
            "Sessions that were let in or broke before, by how they ended.",
            "end",
            &self.ended,
        );
        labelled(
            &mut out,
            "hushed_refused_total",
            "Sessions that this server refused, by reason.",
            "reason",
            &self.refused,
        );
        out
    }
}

fn count(map: &Mutex<BTreeMap<&'static str, u64>>, name: &'static str) {
    let mut map = map.lock().unwrap_or_else(PoisonError::into_inner);
    *map.entry(name).or_default() += 1;
}

fn labelled(
    out: &mut String,
    name: &str,
    help: &str,
    label: &str,
    map: &Mutex<BTreeMap<&'static str, u64>>,
) {
    let map = map.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} counter\n");
    for (value, n) in map.iter() {
        let _ = writeln!(out, "{name}{{{label}=\"{value}\"}} {n}");
    }
}

/// Answers requests until `done`; says that it is not ready once `stopping`.
pub(crate) fn serve(
    listener: &Listener,
    metrics: &Metrics,
    stopping: &AtomicBool,
    done: &AtomicBool,
) {
    loop {
        match listener.accept(|| done.load(Ordering::SeqCst)) {
            Ok(None) => return,
            Ok(Some((socket, _))) => {
                // A malformed request, or a client that has gone: there is nobody to report it to.
                let _ = answer(&socket, metrics, stopping.load(Ordering::SeqCst));
            }
            Err(error) => {
                tracing::warn!(%error, "no metrics connection can be accepted");
                thread::sleep(NO_CONNECTION);
            }
        }
    }
}

fn answer(socket: &TcpStream, metrics: &Metrics, stopping: bool) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_write_timeout(Some(PATIENCE))?;
    let (status, body) = match path(&read_request(socket)?) {
        Some("/healthz") => ("200 OK", "ok\n".to_owned()),
        Some("/readyz") if stopping => ("503 Service Unavailable", "stopping\n".to_owned()),
        Some("/readyz") => ("200 OK", "ready\n".to_owned()),
        Some("/metrics") => ("200 OK", metrics.render()),
        Some(_) => (
            "404 Not Found",
            "see /healthz, /readyz, /metrics\n".to_owned(),
        ),
        None => ("400 Bad Request", "GET only\n".to_owned()),
    };
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut writer = socket;
    writer.write_all(response.as_bytes())?;
    socket.shutdown(Shutdown::Write)
}

/// The head of a request, or as much of it as fits: the first line is all that matters.
fn read_request(socket: &TcpStream) -> io::Result<Vec<u8>> {
    let give_up = Instant::now() + PATIENCE;
    let mut request = Vec::new();
    let mut piece = [0; 512];
    let mut reader = socket;
    while request.len() < MAX_REQUEST && !request.windows(4).any(|w| w == b"\r\n\r\n") {
        let left = give_up.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        let got = reader.read(&mut piece)?;
        if got == 0 {
            break;
        }
        request.extend(piece.iter().take(got));
    }
    Ok(request)
}

/// The path of a GET, without its query.
fn path(request: &[u8]) -> Option<&str> {
    let line = request.split(|b| *b == b'\r').next()?;
    let mut words = std::str::from_utf8(line).ok()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    let known = method == "GET" && version.starts_with("HTTP/1.") && words.next().is_none();
    known.then(|| target.split('?').next().unwrap_or(target))
}
