//! Counters, and the small HTTP/1.1 responder that shows them: `/healthz`, `/readyz`, `/metrics`.
//!
//! The responder takes one request per connection, of at most [`MAX_REQUEST`] bytes within [`PATIENCE`], and one
//! connection at a time; it never reads a body. Nothing it says depends on a text except the number of tokens.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hushed_net::{Listener, Stats};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::session::allowance::left::Left;

/// The OpenMetrics format, which Prometheus reads.
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Maximum size of a request in bytes.
const MAX_REQUEST: usize = 4096;
/// Maximum time for a request and its answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long to wait when the system cannot accept a connection.
const NO_CONNECTION: Duration = Duration::from_millis(100);

/// Upper bounds in seconds of the buckets of durations, in a server's metrics and a gateway's.
pub const LATENCIES: [f64; 12] = [0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 120.0, 300.0, 1800.0];
/// Most clients that are counted by name; the others are counted together.
const MOST_CLIENTS: usize = 1000;
const OTHERS: &str = "others";

/// Counters by a name that this program defines, so there are few.
type ByName = Family<[(&'static str, &'static str); 1], Counter>;

/// A server's counters.
pub(crate) struct Metrics {
    registry: Registry,
    running: Gauge,
    sessions: Gauge,
    waiting: Gauge,
    most: Gauge,
    expiry: Gauge,
    passes: Histogram,
    clients: Family<[(&'static str, String); 1], Counter>,
    texts_left: Family<[(&'static str, String); 1], Gauge>,
    bits_left: Family<[(&'static str, String); 1], Gauge>,
    /// The clients that have a counter of their own.
    known: Mutex<BTreeSet<String>>,
    texts: Counter,
    tokens: Counter,
    seconds: Counter<f64, AtomicU64>,
    sent: Counter,
    received: Counter,
    refused: ByName,
    ended: ByName,
    jobs: Gauge,
    jobs_ended: ByName,
}

/// A session that runs until this is dropped.
pub(crate) struct Running<'a>(&'a Gauge);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("hushed");
        let all = Metrics {
            running: Gauge::default(),
            sessions: Gauge::default(),
            waiting: Gauge::default(),
            most: Gauge::default(),
            expiry: Gauge::default(),
            passes: Histogram::new(LATENCIES),
            clients: Family::default(),
            texts_left: Family::default(),
            bits_left: Family::default(),
            known: Mutex::default(),
            texts: Counter::default(),
            tokens: Counter::default(),
            seconds: Counter::default(),
            sent: Counter::default(),
            received: Counter::default(),
            refused: Family::default(),
            ended: Family::default(),
            jobs: Gauge::default(),
            jobs_ended: Family::default(),
            registry: Registry::default(),
        };
        for (name, help, gauge) in [
            ("sessions_running", "Connections that are open", &all.running),
            ("sessions_open", "Sessions that are open", &all.sessions),
            ("sessions_max", "Sessions that may be open at once", &all.most),
            ("clients_waiting", "Clients that wait for a session", &all.waiting),
            ("certificate_expiry_seconds", "When the certificate expires, in seconds since 1970", &all.expiry),
            ("jobs", "Runs under encryption that wait or run", &all.jobs),
        ] {
            registry.register(name, help, gauge.clone());
        }
        for (name, help, counter) in [
            ("texts", "Texts that were answered", &all.texts),
            ("tokens", "Tokens of these texts", &all.tokens),
            ("text_sent_bytes", "Bytes sent for these texts", &all.sent),
            ("text_received_bytes", "Bytes received for these texts", &all.received),
        ] {
            registry.register(name, help, counter.clone());
        }
        let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
        registry.register("build", "This program", build);
        registry.register("pass_seconds", "Durations of passes", all.passes.clone());
        registry.register("client_texts", "What passes counted as, in texts, by client", all.clients.clone());
        for (name, help, family) in [
            ("client_texts_left", "Texts that the allowance of a client leaves it now", &all.texts_left),
            ("client_bits_left", "Opened bits that the allowance of a client leaves it now", &all.bits_left),
        ] {
            registry.register(name, help, family.clone());
        }
        let help = "Time that these texts took, waiting included";
        registry.register("text_seconds", help, all.seconds.clone());
        for (name, help, family) in [
            ("jobs_ended", "Runs under encryption that ended, by how", &all.jobs_ended),
            ("sessions", "Sessions that were let in or broke before, by how they ended", &all.ended),
            ("refused", "Sessions that this server refused, by reason", &all.refused),
        ] {
            registry.register(name, help, family.clone());
        }
        Metrics { registry, ..all }
    }
}

impl Metrics {
    pub(crate) fn running(&self) -> Running<'_> {
        self.running.inc();
        Running(&self.running)
    }

    pub(crate) fn refused(&self, reason: &'static str) {
        self.refused.get_or_create(&[("reason", reason)]).inc();
    }

    pub(crate) fn ended(&self, how: &'static str) {
        self.ended.get_or_create(&[("end", how)]).inc();
    }

    /// Updates what is so now: sessions, clients that wait, the most sessions; when the certificate expires.
    pub(crate) fn now(&self, numbers: [usize; 3], expiry: u64) {
        for (gauge, number) in [&self.sessions, &self.waiting, &self.most].into_iter().zip(numbers) {
            gauge.set(i64::try_from(number).unwrap_or(i64::MAX));
        }
        self.expiry.set(i64::try_from(expiry).unwrap_or(i64::MAX));
    }

    /// Updates what clients are left, of as many as have a counter of their own at most.
    pub(crate) fn left(&self, left: Left) {
        for (family, clients) in [(&self.texts_left, left.texts), (&self.bits_left, left.bits)] {
            family.clear();
            for (name, amount) in clients.into_iter().take(MOST_CLIENTS) {
                family.get_or_create(&[("client", name)]).set(i64::try_from(amount).unwrap_or(i64::MAX));
            }
        }
    }

    /// Counts what a pass of this client counted as, in texts.
    pub(crate) fn client(&self, name: &str, texts: usize) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let own = known.contains(name) || known.len() < MOST_CLIENTS && known.insert(name.to_owned());
        drop(known);
        let name = if own { name } else { OTHERS };
        self.clients.get_or_create(&[("client", name.to_owned())]).inc_by(texts as u64);
    }

    pub(crate) fn jobs(&self, under_way: usize) {
        self.jobs.set(i64::try_from(under_way).unwrap_or(i64::MAX));
    }

    pub(crate) fn job_ended(&self, how: &'static str) {
        self.jobs_ended.get_or_create(&[("end", how)]).inc();
    }

    pub(crate) fn pass(&self, texts: usize, tokens: usize, spent: Duration, stats: &Stats) {
        for (counter, by) in [
            (&self.texts, texts as u64),
            (&self.tokens, tokens as u64),
            (&self.sent, stats.bytes_sent),
            (&self.received, stats.bytes_received),
        ] {
            counter.inc_by(by);
        }
        self.seconds.inc_by(spent.as_secs_f64());
        self.passes.observe(spent.as_secs_f64());
    }

    /// The counters in OpenMetrics format.
    pub(crate) fn render(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = encode(&mut out, &self.registry);
        out
    }
}

/// Answers requests until `done`, each after a call of `fresh`; reports that it is not ready once `stopping`.
pub(crate) fn serve(
    listener: &Listener,
    metrics: &Metrics,
    fresh: &impl Fn(),
    stopping: &AtomicBool,
    done: &AtomicBool,
) {
    loop {
        match listener.accept(|| done.load(Ordering::SeqCst)) {
            Ok(None) => return,
            Ok(Some((socket, _))) => {
                fresh();
                // After a malformed request, or if the client has gone, there is nobody to report it to.
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
    const TEXT: &str = "text/plain; charset=utf-8";
    let (status, kind, body) = match path(&read_request(socket)?) {
        Some("/healthz") => ("200 OK", TEXT, "ok\n".to_owned()),
        Some("/readyz") if stopping => ("503 Service Unavailable", TEXT, "stopping\n".to_owned()),
        Some("/readyz") => ("200 OK", TEXT, "ready\n".to_owned()),
        Some("/metrics") => ("200 OK", TYPE, metrics.render()),
        Some(_) => ("404 Not Found", TEXT, "see /healthz, /readyz, /metrics\n".to_owned()),
        None => ("400 Bad Request", TEXT, "GET only\n".to_owned()),
    };
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut writer = socket;
    writer.write_all(response.as_bytes())?;
    socket.shutdown(Shutdown::Write)
}

/// Reads the head of a request, or as much of it as fits: only the first line matters.
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
