//! What can go wrong in a two-party protocol.
//!
//! No variant carries a value derived from a secret.

use crate::he::HeError;
use hushed_net::NetError;
use hushed_rlwe::RlweError;

/// Failure of a protocol step; the session is unusable afterwards.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TwopcError {
    /// The connection failed or the peer left the framing protocol.
    #[error(transparent)]
    Net(#[from] NetError),

    /// A product over RLWE was refused, or the peer's keys or ciphertexts were.
    #[error(transparent)]
    Rlwe(#[from] RlweError),

    /// A product's shape or operand does not match.
    #[error(transparent)]
    He(#[from] HeError),

    /// A message of the right length that no honest peer sends.
    #[error("the peer sent an impossible {what}")]
    PeerMisbehaved {
        /// Which message.
        what: &'static str,
    },

    /// Correlated OTs were requested from a source that had failed earlier.
    #[error("the source of correlated OTs failed earlier and is not started again")]
    SourceFailed,

    /// The calling code asked for something outside an operation's domain.
    #[error("{operation}: {what} is {got}, not {expected}")]
    Misuse {
        /// The operation.
        operation: &'static str,
        /// The quantity out of its domain.
        what: &'static str,
        /// Its value.
        got: u64,
        /// What the domain is, or the value it should have.
        expected: Expected,
    },
}

/// The domain that [`TwopcError::Misuse`] names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// Exactly this value.
    Exactly(u64),
    /// At most this value.
    AtMost(u64),
    /// At least this value.
    AtLeast(u64),
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Expected::Exactly(x) => write!(f, "{x}"),
            Expected::AtMost(x) => write!(f, "at most {x}"),
            Expected::AtLeast(x) => write!(f, "at least {x}"),
        }
    }
}

/// Checks that a length is the expected one.
pub(crate) fn expect_len(
    operation: &'static str,
    what: &'static str,
    got: usize,
    expected: usize,
) -> Result<(), TwopcError> {
    let (got, expected) = (got as u64, expected as u64);
    let holds = got == expected;
    check(holds, operation, what, got, Expected::Exactly(expected))
}

/// Checks that a quantity is not above its bound.
pub(crate) fn expect_at_most(
    operation: &'static str,
    what: &'static str,
    got: u64,
    most: u64,
) -> Result<(), TwopcError> {
    check(got <= most, operation, what, got, Expected::AtMost(most))
}

/// Checks that a quantity is not below its bound.
pub(crate) fn expect_at_least(
    operation: &'static str,
    what: &'static str,
    got: u64,
    least: u64,
) -> Result<(), TwopcError> {
    check(got >= least, operation, what, got, Expected::AtLeast(least))
}

fn check(
    holds: bool,
    operation: &'static str,
    what: &'static str,
    got: u64,
    expected: Expected,
) -> Result<(), TwopcError> {
    match holds {
        true => Ok(()),
        false => Err(TwopcError::Misuse { operation, what, got, expected }),
    }
}
