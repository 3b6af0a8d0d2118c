//! The two parties of a session.

use std::fmt;

/// One of the two ends of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Party {
    /// Holds the private text.
    Client,
    /// Holds the weights.
    Server,
}

impl Party {
    /// The peer of this party.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}

/// What a frame carries: a number that both ends of a protocol step agree on.
///
/// The crates above choose their own numbers; this crate gives them no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind(pub u16);

impl Kind {
    /// The bit that marks frames of a [branch](crate::Session::branch): no kind of a step has it.
    pub(crate) const BRANCH: u16 = 1 << 15;

    /// Whether a frame on the channel with this kind is of a branch.
    #[must_use]
    pub fn is_of_branch(self) -> bool {
        self.0 & Self::BRANCH != 0
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}
