//! Bearer tokens: the client has the secret, the server only its SHA-256.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub(crate) mod list;

use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::digest::Digest;

/// Maximum length of a token.
pub const MAX_TOKEN_BYTES: usize = 256;
/// A bearer token. No `Debug`; erased on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(Zeroizing<Vec<u8>>);

impl Token {
    /// A token of 1 to 256 visible ASCII characters; `None` for anything else.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let length = (1..=MAX_TOKEN_BYTES).contains(&bytes.len());
        (length && bytes.iter().all(u8::is_ascii_graphic)).then(|| Self(Zeroizing::new(bytes.to_vec())))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The token's SHA-256, which a server keeps.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest(Sha256::digest(self.as_bytes()).into())
    }
}
