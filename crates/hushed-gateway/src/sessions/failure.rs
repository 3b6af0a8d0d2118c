//! Why there is no answer, in a form that can be given to everyone who waits for it.

use std::time::Duration;

use hushed_serve::{Category, Refusal, ServeError};

/// How long to stay away from a server that has no free place or cannot be reached.
const LATER: Duration = Duration::from_secs(5);

/// The error name for a message that no honest server sends.
pub const MISBEHAVED: &str = "peer-misbehaved";

/// Why a pass ended without an answer. It contains no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error name, as in docs/errors.md.
    pub name: &'static str,
    /// The category.
    pub category: Category,
    /// What happened and what to do.
    pub message: String,
    /// When to try again.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// The gateway is being stopped.
    pub fn stopping() -> Self {
        Self {
            name: "stopping",
            category: Category::Refused,
            message: "the gateway is shutting down".to_owned(),
            retry_after: None,
        }
    }

    /// An answer was cut off: nobody read it, or the gateway is being stopped.
    pub fn unread() -> Self {
        Self {
            name: "stopped",
            message: "the answer was ended: it was not read for 30 s, or the gateway is shutting down".to_owned(),
            ..Self::stopping()
        }
    }

    /// Whether another set-up now would end the same way, as the server has said.
    pub fn lasts(&self) -> bool {
        matches!(self.name, "allowance" | "too-many-sessions")
    }

    /// Whether the server was reached, whatever the outcome.
    pub fn reached(&self) -> bool {
        self.category != Category::Network || self.name == MISBEHAVED
    }

    /// A worker panicked.
    pub fn defect() -> Self {
        Self {
            name: "internal",
            category: Category::Defect,
            message: "internal error (panic) during a pass; please report it without your text".to_owned(),
            retry_after: None,
        }
    }
}

impl From<&ServeError> for Failure {
    fn from(error: &ServeError) -> Self {
        let failure =
            Self { name: error.name(), category: error.category(), message: error.to_string(), retry_after: None };
        let retry_after = match error.cause() {
            ServeError::Refused(Refusal::Allowance { seconds }) => Some(Duration::from_secs((*seconds).into())),
            ServeError::Refused(Refusal::TooManySessions { .. } | Refusal::Stopping) => Some(LATER),
            // A server could make a query fail depending on its content: nothing is retried unasked.
            _ => (!failure.reached()).then_some(LATER),
        };
        Self { retry_after, ..failure }
    }
}
