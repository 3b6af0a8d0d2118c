//! `GET /openapi.json`: the routes, in OpenAPI's form.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use axum::Json;
use serde_json::{Map, Value, json};

use super::ROUTES;

/// The document. A request with a field that a route does not take is answered with its name, so the bodies are not
/// listed a second time here.
pub async fn document() -> Json<Value> {
    let mut paths = Map::new();
    for route in ROUTES.iter().filter(|route| !route.methods.is_empty()) {
        let mut methods = Map::new();
        for method in route.methods {
            let mut operation = json!({
                "summary": route.about,
                "responses": {
                    "200": { "description": "the answer" },
                    "default": { "description": "the reason why there is none" },
                },
            });
            if *method == "post"
                && let Some(operation) = operation.as_object_mut()
            {
                let content = json!({ "application/json": { "schema": { "type": "object" } } });
                operation.insert("requestBody".to_owned(), json!({ "required": true, "content": content }));
            }
            if route.path.contains("{name}")
                && let Some(operation) = operation.as_object_mut()
            {
                let name = json!([{ "name": "name", "in": "path", "required": true, "schema": { "type": "string" } }]);
                operation.insert("parameters".to_owned(), name);
            }
            methods.insert((*method).to_owned(), operation);
        }
        paths.insert(route.path.to_owned(), methods.into());
    }
    Json(json!({
        "openapi": "3.0.3",
        "info": { "title": "Hushed gateway", "version": env!("CARGO_PKG_VERSION") },
        "paths": paths,
    }))
}
