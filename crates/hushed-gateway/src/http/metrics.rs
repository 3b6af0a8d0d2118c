//! `GET /metrics`: counts for Prometheus. No label depends on a text.

use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use super::refusal::Refusal;
use super::served::Served;
use crate::sessions::share::Caller;

/// The OpenMetrics format, which Prometheus reads.
const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `GET /metrics`
pub async fn metrics(State(served): State<Arc<Served>>, Extension(caller): Extension<Caller>) -> Response {
    if let Err(refusal) = served.edge.door.check_operator(caller) {
        return refusal.answer(super::refusal::Shape::Tei);
    }
    match render(&served, caller) {
        Ok(text) => ([(header::CONTENT_TYPE, TYPE)], text).into_response(),
        Err(_) => {
            let status = axum::http::StatusCode::INTERNAL_SERVER_ERROR;
            Refusal::new(status, "internal", "the metrics could not be written").answer(super::refusal::Shape::Tei)
        }
    }
}

/// `caller` sees what each key does if it may see all.
fn render(served: &Served, caller: Caller) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("hushed_gateway");
    let total = served.shared.ledger.book().total;
    let counts = [
        ("sessions", "Sessions that were set up", total.sessions),
        ("passes", "Passes through the model", total.passes),
        ("failures", "Passes and set-ups that failed", total.failures),
        ("pass_texts", "Texts of these passes", total.texts),
        ("pass_tokens", "Tokens that the server saw", total.tokens),
        ("ahead_passes", "Passes for which products were made ahead", total.ahead),
        ("counted_texts", "Texts as the server's limits count them", total.counted),
        ("sent_bytes", "Bytes to the server", total.bytes_sent),
        ("received_bytes", "Bytes from the server", total.bytes_received),
        ("rounds", "Waits for the server", total.rounds),
    ];
    for (name, help, count) in counts {
        let counter: Counter = Counter::default();
        counter.inc_by(count);
        registry.register(name, help, counter);
    }
    let seconds: Counter<f64, std::sync::atomic::AtomicU64> = Counter::default();
    seconds.inc_by(total.seconds);
    registry.register("pass_seconds", "Time of passes and set-ups", seconds);
    if served.edge.door.sees_all(caller) {
        register_keys(&mut registry, served);
    }
    let build = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    registry.register("build", "This program", build);
    let held = served.queue.held();
    for (name, help, value) in [
        ("waiting", "Texts that wait", held.waiting),
        ("running", "Passes under way", held.running),
        ("kept", "Answers that are kept for retries", held.kept),
    ] {
        let gauge: Gauge = Gauge::default();
        gauge.set(value as i64);
        registry.register(name, help, gauge);
    }
    let metrics = &served.edge.metrics;
    if served.edge.door.has_tls() {
        let gauge: Gauge = Gauge::default();
        gauge.set(i64::try_from(served.edge.door.expiry()).unwrap_or(i64::MAX));
        let help = "When the gateway's certificate expires, in seconds since 1970";
        registry.register("certificate_expiry_seconds", help, gauge);
    }
    let seconds = metrics.seconds.clone();
    registry.register("request_seconds", "Time until the head of an answer", seconds);
    let requests = metrics.requests.clone();
    registry.register("requests", "Requests that were answered", requests);
    let texts = metrics.texts.clone();
    registry.register("texts", "Texts of requests that were taken", texts);
    let mut out = String::new();
    encode(&mut out, &registry)?;
    Ok(out)
}

/// What each key had, by its name: one series for all that have none.
fn register_keys(registry: &mut Registry, served: &Served) {
    let [texts, tokens, passes] = [0; 3].map(|_| Family::<[(&'static str, String); 1], Counter>::default());
    for (caller, sum) in served.shared.ledger.parts() {
        let Some(name) = served.edge.door.name(caller) else { continue };
        for (family, count) in [(&texts, sum.counted), (&tokens, sum.tokens), (&passes, sum.passes)] {
            family.get_or_create(&[("key", name.clone())]).inc_by(count);
        }
    }
    for (name, help, family) in [
        ("key_counted_texts", "Texts of a key as the server's limits count them", texts),
        ("key_tokens", "Tokens of a key that the server saw", tokens),
        ("key_passes", "Passes with texts of a key", passes),
    ] {
        registry.register(name, help, family);
    }
}
