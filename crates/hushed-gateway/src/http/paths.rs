//! Paths of requests: as programs write them, as the metrics name them, and what to say of one that leads nowhere.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub mod openapi;

use axum::http::Uri;
use axum::http::uri::PathAndQuery;

/// A route, as named in the metrics and in OpenAPI's document.
pub struct Route {
    /// Its path.
    pub path: &'static str,
    /// Its methods.
    pub methods: &'static [&'static str],
    /// What it is for.
    pub about: &'static str,
}

const fn route(path: &'static str, methods: &'static [&'static str], about: &'static str) -> Route {
    Route { path, methods, about }
}

/// The routes.
pub const ROUTES: [Route; 28] = [
    route("/", &["get", "post"], "a page for a person; embeddings, cosines or classes"),
    route("/v1/embeddings", &["post"], "OpenAI: embeddings"),
    route("/v1/completions", &["post"], "OpenAI: a text continued"),
    route("/v1/chat/completions", &["post"], "OpenAI: a conversation answered"),
    route("/v1/search", &["post"], "a search of the server's documents"),
    route("/v1/models", &["get"], "OpenAI: the model and its names"),
    route("/v1/models/{name}", &["get"], "OpenAI: a model by its name"),
    route("/v1/files", &["get", "post"], "OpenAI: files of batches, with --protocol fhe"),
    route("/v1/batches", &["get", "post"], "OpenAI: batches, with --protocol fhe"),
    route("/embed", &["post"], "text-embeddings-inference: embeddings"),
    route("/embed_all", &["post"], "text-embeddings-inference: refused, one embedding per text is opened"),
    route("/embed_sparse", &["post"], "text-embeddings-inference: refused, as /embed_all"),
    route("/embeddings", &["post"], "text-embeddings-inference: as /v1/embeddings"),
    route("/predict", &["post"], "text-embeddings-inference: classes"),
    route("/rerank", &["post"], "text-embeddings-inference, Jina and Cohere: texts by their scores for a query"),
    route("/v1/rerank", &["post"], "as /rerank"),
    route("/v2/rerank", &["post"], "as /rerank"),
    route("/similarity", &["post"], "text-embeddings-inference: cosines of a text with others"),
    route("/tokenize", &["post"], "text-embeddings-inference: tokens, computed here"),
    route("/decode", &["post"], "text-embeddings-inference: the text of tokens, computed here"),
    route("/info", &["get"], "text-embeddings-inference: the model and the limits"),
    route("/health", &["get"], "whether the gateway is up"),
    route("/ping", &["get"], "as /health"),
    route("/ready", &["get"], "whether the server is there"),
    route("/metrics", &["get"], "counts for Prometheus"),
    route("/ledger", &["get"], "what left this machine"),
    route("/openapi.json", &["get"], "this document"),
    // Requests to any other path count as this.
    route("other", &[], ""),
];

/// The same without slashes at its end and without empty parts; `None` if it has none of either. Programs that join a
/// base URL and a path by hand write both.
pub fn plain(uri: &Uri) -> Option<Uri> {
    let path = uri.path();
    if !path.contains("//") && (path == "/" || !path.ends_with('/')) {
        return None;
    }
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut changed = uri.clone().into_parts();
    changed.path_and_query = PathAndQuery::try_from(format!("/{}{query}", parts.join("/"))).ok();
    Uri::from_parts(changed).ok()
}

/// A label with few possible values, whatever paths are requested.
pub fn label(path: &str) -> &'static str {
    let known = ROUTES.iter().map(|route| route.path).find(|known| *known == path);
    let below = |prefix: &str| path.starts_with(prefix);
    known.unwrap_or(match () {
        () if below("/v1/models/") => "/v1/models/{name}",
        () if below("/v1/files/") => "/v1/files",
        () if below("/v1/batches/") => "/v1/batches",
        () => "other",
    })
}

/// What to say of a path without a route: where the one that was probably meant is.
pub fn hint(path: &str) -> String {
    let known = |path: &str| label(path) != "other" && path != "/";
    let twice = path.strip_prefix("/v1").filter(|rest| rest.starts_with("/v1/") && known(rest));
    let bare = format!("/v1{path}");
    let behind = path.match_indices('/').map(|(at, _)| path.split_at(at).1).skip(1).find(|rest| known(rest));
    let batches = ["/v1/files", "/v1/batches"].iter().any(|route| path.starts_with(route));
    let meant = match (path, twice, behind) {
        _ if batches => Some("batches are for a gateway with --protocol fhe, and this one answers at once".to_owned()),
        ("/v1", ..) => {
            Some("this is the base URL of OpenAI's API, and its routes follow it, as /v1/embeddings".to_owned())
        }
        (_, Some(rest), _) => Some(format!("the path has /v1 twice: {rest} is meant, so the base URL needs no /v1")),
        _ if known(&bare) => Some(format!("{bare} is meant: the base URL of OpenAI's API ends in /v1")),
        (_, _, Some(rest)) => Some(format!("perhaps {rest} is meant")),
        _ => None,
    };
    match meant {
        Some(meant) => format!("there is no such route: {meant}. GET / shows all"),
        None => "there is no such route: see GET /".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slashes_that_say_nothing_are_left_out() {
        for (given, meant) in [
            ("/v1/embeddings/", "/v1/embeddings"),
            ("//v1//embeddings", "/v1/embeddings"),
            ("/v1/models/?limit=1", "/v1/models?limit=1"),
            ("//", "/"),
        ] {
            assert_eq!(plain(&given.parse().unwrap()).unwrap().to_string(), meant);
        }
        for given in ["/", "/v1/embeddings", "/v1/models?limit=/"] {
            assert!(plain(&given.parse().unwrap()).is_none(), "{given}");
        }
    }

    #[test]
    fn a_path_that_is_nearly_one_gets_the_one() {
        for (given, says) in [
            ("/v1", "base URL"),
            ("/models", "/v1/models is meant"),
            ("/chat/completions", "/v1/chat/completions is meant"),
            ("/v1/v1/embeddings", "/v1 twice: /v1/embeddings is meant"),
            ("/v1/embed", "/embed is meant"),
            ("/api/v1/embeddings", "/v1/embeddings is meant"),
            ("/v1/responses", "see GET /"),
            ("/v1/batches", "--protocol fhe"),
            ("/", "see GET /"),
        ] {
            assert!(hint(given).contains(says), "{given}: {}", hint(given));
        }
    }
}
