//! The identity of a client across sessions, for its files and counts.

use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::session::token::Token;

/// An owner of files and counts, by name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Owner(String);

impl Owner {
    /// Identifies a client by its token, by the public key of its certificate if no token is required, or as `anyone`
    /// if neither is. The name reveals neither.
    pub(crate) fn of(token: Option<&Token>, key: Option<Digest>) -> Owner {
        let hash = match (token, key) {
            (Some(token), _) => Sha256::new().chain_update(b"hushed owner 1").chain_update(token.digest().0),
            (None, Some(key)) => Sha256::new().chain_update(b"hushed owner by public key 1").chain_update(key.0),
            (None, None) => return Owner("anyone".to_owned()),
        };
        let name = Digest(hash.finalize().into()).to_string();
        Owner(name.chars().take(16).collect())
    }

    /// An owner by a recorded name.
    pub(crate) fn named(name: &str) -> Owner {
        Owner(name.to_owned())
    }

    pub(crate) fn name(&self) -> &str {
        &self.0
    }
}
