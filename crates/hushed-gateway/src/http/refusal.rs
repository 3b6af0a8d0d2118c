//! Why a request is not answered, in each API's shape. No message contains a text.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hushed_serve::Category;
use serde_json::json;

use crate::sessions::admission::Refused;
use crate::sessions::failure::{Failure, MISBEHAVED};

/// The API that a path belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// `/v1/…`
    OpenAi,
    /// Everything else.
    Tei,
}

impl Shape {
    /// The shape for a path.
    pub fn of(path: &str) -> Self {
        match path.starts_with("/v1/") {
            true => Self::OpenAi,
            false => Self::Tei,
        }
    }
}

/// A request's error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The status.
    pub status: StatusCode,
    /// Stable name: the `code` of OpenAI's errors.
    pub name: &'static str,
    /// What is wrong and what to do.
    pub message: String,
    /// The field it is about, if any.
    pub param: Option<String>,
    /// When to try again.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// A refusal of the request as a whole.
    pub fn new(status: StatusCode, name: &'static str, message: impl Into<String>) -> Self {
        Self { status, name, message: message.into(), param: None, retry_after: None }
    }

    /// A 400 about one field.
    pub fn field(param: &str, name: &'static str, message: impl Into<String>) -> Self {
        Self { param: Some(param.to_owned()), ..Self::new(StatusCode::BAD_REQUEST, name, message) }
    }

    /// No request would be answered at present, whatever the reason.
    pub fn unready(failure: Failure) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, ..failure.into() }
    }

    /// The response in this shape.
    pub fn answer(&self, shape: Shape) -> Response {
        let body = match shape {
            Shape::OpenAi => self.openai(),
            Shape::Tei => json!({ "error": self.message, "error_type": self.tei_type() }),
        };
        let mut answer = (self.status, Json(body)).into_response();
        if let Some(after) = self.retry_after {
            let seconds = HeaderValue::from(after.as_secs().max(1));
            answer.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        answer
    }

    /// OpenAI's error object.
    pub fn openai(&self) -> serde_json::Value {
        json!({ "error": {
            "message": self.message, "type": self.openai_type(), "param": self.param, "code": self.name,
        }})
    }

    fn openai_type(&self) -> &'static str {
        match self.status.as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }

    fn tei_type(&self) -> &'static str {
        match self.status.as_u16() {
            429 => "Overloaded",
            503 => "Unhealthy",
            500.. => "Backend",
            _ => "Validation",
        }
    }
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        let status = match (failure.category, failure.name) {
            (_, "allowance") => StatusCode::TOO_MANY_REQUESTS,
            (_, "too-many-sessions" | "stopping" | "stopped") => StatusCode::SERVICE_UNAVAILABLE,
            // Clients of these APIs retry when the status is 500 or above.
            (_, MISBEHAVED) => StatusCode::FAILED_DEPENDENCY,
            (Category::Network, _) => StatusCode::SERVICE_UNAVAILABLE,
            (Category::Input, _) => StatusCode::BAD_REQUEST,
            (Category::Refused | Category::Mismatch, _) => StatusCode::BAD_GATEWAY,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { retry_after: failure.retry_after, ..Self::new(status, failure.name, failure.message) }
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let (status, name, after) = match refused {
            Refused::TooSlow { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too-slow", None),
            Refused::TooMany { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too-many-texts", None),
            Refused::Busy { after } => (StatusCode::TOO_MANY_REQUESTS, "queue-full", Some(after)),
            Refused::Away(failure) => return failure.into(),
            Refused::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping", None),
        };
        Self { retry_after: after.map(Duration::from_secs), ..Self::new(status, name, refused.to_string()) }
    }
}
