//! HTTP: the routes, and the checks that every request passes before it reaches one.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub mod batches;
mod clock;
mod completions;
mod door;
pub mod fields;
mod metrics;
mod openai;
mod page;
mod paths;
mod prepare;
pub mod refusal;
mod search;
mod served;
mod tei;
pub mod wanted;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use crate::sessions::failure::Failure;
use refusal::{Refusal, Shape};

pub use clock::now;
pub use door::Door;
pub use served::{Edge, Served};

/// Time limit for a request's body.
const BODY: Duration = Duration::from_secs(30);

/// All routes.
pub fn router(served: Arc<Served>) -> Router {
    let edge = Arc::clone(&served.edge);
    let routes = Router::new()
        .route("/", get(page::page).post(tei::root))
        .route("/ledger", get(page::ledger))
        .route("/v1/embeddings", post(openai::embeddings))
        .route("/v1/completions", post(completions::completions))
        .route("/v1/chat/completions", post(completions::chat))
        .route("/v1/search", post(search::search))
        .route("/v1/models", get(openai::models))
        .route("/v1/models/{name}", get(openai::model))
        .route("/embeddings", post(openai::embeddings))
        .route("/embed", post(tei::embed_route))
        .route("/embed_all", post(tei::pooled_only))
        .route("/embed_sparse", post(tei::pooled_only))
        .route("/predict", post(tei::predict::route))
        .route("/rerank", post(tei::rerank::route))
        .route("/v1/rerank", post(tei::rerank::route))
        .route("/v2/rerank", post(tei::rerank::route))
        .route("/tokenize", post(tei::tokens::tokenize))
        .route("/decode", post(tei::tokens::decode))
        .route("/openapi.json", get(paths::openapi::document))
        .route("/ping", get(tei::health))
        .route("/similarity", post(tei::similarity))
        .route("/info", get(tei::info))
        .route("/health", get(tei::health))
        .route("/ready", get(tei::ready))
        .route("/metrics", get(metrics::metrics));
    entered(routes.with_state(served), edge)
}

/// Routes behind the door. What stands before them may still change a request's path.
pub fn entered(routes: Router, edge: Arc<Edge>) -> Router {
    guarded(routes.fallback(missing).method_not_allowed_fallback(other_method), edge)
}

/// What is answered before the server has been seen: why not.
pub fn waiting(edge: Arc<Edge>, why: Arc<Mutex<Failure>>) -> Router {
    let routes = Router::new().route("/health", get(tei::health)).route("/ping", get(tei::health));
    guarded(routes.fallback(unready).with_state(why), edge)
}

fn guarded(routes: Router, edge: Arc<Edge>) -> Router {
    Router::new().fallback_service(routes).layer(from_fn_with_state(edge, enter))
}

async fn unready(State(why): State<Arc<Mutex<Failure>>>, request: Request) -> Response {
    let failure = why.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Refusal::unready(failure).answer(Shape::of(request.uri().path()))
}

/// Applies the checks for every request: the door, and a bound on its body in bytes and time.
async fn enter(State(edge): State<Arc<Edge>>, mut request: Request, next: Next) -> Response {
    if let Some(plain) = paths::plain(request.uri()) {
        *request.uri_mut() = plain;
    }
    let (path, method, began) = (request.uri().path().to_owned(), request.method().clone(), Instant::now());
    let door = &edge.door;
    let checked = door.check(&method, request.uri(), request.headers());
    let key = checked.as_ref().ok().and_then(|caller| door.key_name(&path, *caller));
    let friend = door.friend(request.headers()).cloned();
    let entered = match checked {
        Ok(_) if method == Method::OPTIONS && friend.is_some() => Ok(Entered::Preflight(request.headers().clone())),
        Ok(caller) => whole(request).await.map(|mut request| {
            request.extensions_mut().insert(caller);
            Entered::Request(request)
        }),
        Err(refusal) => Err(refusal),
    };
    let mut response = match entered {
        Ok(Entered::Request(request)) => next.run(request).await,
        Ok(Entered::Preflight(asked)) => preflight(&asked),
        Err(refusal) => refusal.answer(Shape::of(&path)),
    };
    if let Some(friend) = friend {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, friend);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
    }
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    let (route, status, seconds) = (paths::label(&path), response.status().as_u16(), began.elapsed().as_secs_f64());
    edge.metrics.requests.get_or_create(&served::Request { route, status }).inc();
    if method == Method::POST {
        edge.metrics.seconds.get_or_create(&served::Route { route }).observe(seconds);
    }
    match key {
        Some(key) => tracing::info!(key, route, status, seconds, "request"),
        None => tracing::debug!(route, status, seconds, "request"),
    }
    response
}

/// A request that was let in.
enum Entered {
    Request(Request),
    /// A browser's question, by its headers, before a request from a page of another site.
    Preflight(HeaderMap),
}

/// Such a page may do what the gateway's own page may, and send the headers that it asks about.
fn preflight(asked: &HeaderMap) -> Response {
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static("GET, POST, DELETE");
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    if let Some(names) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    response
}

/// The request with its whole body in memory: at most 2 MiB, the extractor's own bound.
async fn whole(request: Request) -> Result<Request, Refusal> {
    if request.method() != Method::POST {
        return Ok(request);
    }
    let (parts, body) = request.into_parts();
    let head = Request::from_parts(parts.clone(), body);
    let read = tokio::time::timeout(BODY, Bytes::from_request(head, &())).await;
    let refused = |status, name, message: &str| Err(Refusal::new(status, name, message));
    match read {
        Ok(Ok(bytes)) => Ok(Request::from_parts(parts, Body::from(bytes))),
        Ok(Err(rejection)) if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            let message = "the body is larger than 2 MiB: send fewer texts at once";
            refused(StatusCode::PAYLOAD_TOO_LARGE, "body", message)
        }
        Ok(Err(_)) => refused(StatusCode::BAD_REQUEST, "body", "the body could not be read"),
        Err(_) => {
            let message = "timed out while reading the body";
            refused(StatusCode::REQUEST_TIMEOUT, "body", message)
        }
    }
}

async fn missing(request: Request) -> Response {
    let path = request.uri().path();
    Refusal::new(StatusCode::NOT_FOUND, "route", paths::hint(path)).answer(Shape::of(path))
}

async fn other_method(request: Request) -> Response {
    let message = "this route takes another method";
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "method", message).answer(Shape::of(request.uri().path()))
}
