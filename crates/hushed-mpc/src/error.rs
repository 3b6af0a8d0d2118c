//! Why a private run stops.

use hushed_model::ModelError;
use hushed_net::NetError;
use hushed_twopc::TwopcError;

/// Errors of a private run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The model does not suit this use.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A protocol stopped: the peer disconnected, misbehaved or does not match.
    #[error(transparent)]
    Protocol(#[from] TwopcError),
    /// There is no two-party protocol for a step of this model.
    #[error("{site}: there is no two-party protocol for {what}")]
    Unsupported {
        /// The step.
        site: String,
        /// What it asks for.
        what: &'static str,
    },
    /// The model has numbers that the formats cannot hold.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// The model gives activations that the formats cannot hold to some tokens of its vocabulary.
    #[error(transparent)]
    Leaves(#[from] Leaves),
    /// The public table's size differs from the model's, or it has values that no table can have.
    #[error("the public table does not fit the model")]
    WrongTable,
    /// The other party opened an index beyond the classes or tokens.
    #[error("the peer opened place {place} of {places}: it misbehaves, or one of the two is defective")]
    NoSuchPlace {
        /// The opened index.
        place: u64,
        /// The number of valid indices.
        places: usize,
    },
    /// The wrong input for this party (the client gives ids or images, the server the number of rows), padding that was
    /// not agreed on, or input for another kind of model.
    #[error(
        "the client gives token ids or images, as the model reads them, and the server their numbers, padded only where that was agreed on; this party was given another input"
    )]
    WrongInput,
    /// The pass takes products made ahead, and none are left.
    #[error("no products were made ahead for this pass")]
    NothingAhead,
    /// This party was asked to stop.
    #[error("stopped")]
    Stopped,
}

impl RunError {
    /// Whether the pass went on to its last message, so that the parties are in step and another pass may follow. What
    /// this party then sends must not depend on the error: the other one may have provoked it, to learn from it.
    pub fn is_of_a_whole_pass(&self) -> bool {
        matches!(self, Self::NoSuchPlace { .. })
    }

    /// The underlying connection failure, if there is one.
    pub fn net(&self) -> Option<&NetError> {
        match self {
            Self::Protocol(TwopcError::Net(error)) => Some(error),
            _ => None,
        }
    }
}

/// Numbers beyond the formats. Which ones is the model owner's secret: none is shown.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "{site}: {what} above {limit} in magnitude; the formats of two-party inference do not hold them, and this model cannot be served{}",
    advice(what)
)]
pub struct OutOfRange {
    /// The step.
    pub site: String,
    /// The kind of number, such as `biases`.
    pub what: &'static str,
    /// The limit.
    pub limit: f64,
}

/// A step whose format some tokens leave.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{beyond}, in a text with {}", quoted(.tokens))]
pub struct Leaves {
    /// The step and its limit.
    #[source]
    pub beyond: OutOfRange,
    /// Tokens that leave it in a text of their own, at most eight, as numbers and as they are read; none if only
    /// several in one text do.
    pub tokens: Vec<(u32, String)>,
}

fn quoted(tokens: &[(u32, String)]) -> String {
    let tokens: Vec<String> = tokens.iter().map(|(_, token)| format!("{token:?}")).collect();
    match tokens.split_last() {
        Some((last, [])) => format!("the token {last}"),
        Some((last, rest)) => format!("one of the tokens {} and {last}", rest.join(", ")),
        None => "many tokens of the vocabulary".to_owned(),
    }
}

/// What can be done about it.
fn advice(what: &str) -> &'static str {
    match what.ends_with("in a norm") {
        true => " (wider norms can be declared: `hushed calibrate --declare`)",
        false => "",
    }
}
