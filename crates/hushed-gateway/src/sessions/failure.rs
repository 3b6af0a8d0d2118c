//! Why there is no answer, in a form that everyone who waits for it can have.

use std::time::Duration;

use hushed_serve::{Category, Refusal, ServeError};

/// How long to stay away from a server that has no place, or is not there.
const LATER: Duration = Duration::from_secs(5);

/// The name of what a server sent that no honest one sends.
pub const MISBEHAVED: &str = "peer-misbehaved";

/// The end of a pass that gave no answer. It holds no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// As in docs/errors.md.
    pub name: &'static str,
    /// The family of causes.
    pub category: Category,
    /// What happened, and what to do.
    pub message: String,
    /// When it may be better.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// That the gateway is being stopped.
    pub fn stopping() -> Self {
        Self {
            name: "stopping",
            category: Category::Refused,
            message: "the gateway is shutting down".to_owned(),
            retry_after: None,
        }
    }

    /// That an answer ended without an end: nobody read it, or the gateway is being stopped.
    pub fn unread() -> Self {
        Self {
            name: "stopped",
            message:
                "the answer was ended: it was not read for 30 s, or the gateway is shutting down"
                    .to_owned(),
            ..Self::stopping()
        }
    }

    /// Whether a set-up at once would end the same: the server has said so.
    pub fn lasts(&self) -> bool {
        matches!(self.name, "allowance" | "too-many-sessions")
    }

    /// Whether the server was reached, whatever came of it.
    pub fn reached(&self) -> bool {
        self.category != Category::Network || self.name == MISBEHAVED
    }

    /// That a worker panicked.
    pub fn defect() -> Self {
        Self {
            name: "internal",
            category: Category::Defect,
            message: "a pass ended by a panic: please report it, without your text".to_owned(),
            retry_after: None,
        }
    }
}

impl From<&ServeError> for Failure {
    fn from(error: &ServeError) -> Self {
        let failure = Self {
            name: error.name(),
            category: error.category(),
            message: error.to_string(),
            retry_after: None,
        };
        let retry_after = match error {
            ServeError::Refused(Refusal::Allowance { seconds }) => {
                Some(Duration::from_secs((*seconds).into()))
            }
            ServeError::Refused(Refusal::TooManySessions { .. } | Refusal::Stopping) => Some(LATER),
            // A server could make a query fail by what it is: it gets no second try that nobody asked for.
            _ => (!failure.reached()).then_some(LATER),
        };
        Self {
            retry_after,
            ..failure
        }
    }
}
