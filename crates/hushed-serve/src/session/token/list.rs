//! Token files: a client's own, and a server's list of accepted tokens.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::Path;

use subtle::{Choice, ConstantTimeEq};

use crate::digest::Digest;
use crate::error::ServeError;
use crate::files;
use crate::session::token::Token;

/// Minimum length of a token; shorter ones could be guessed.
pub const MIN_TOKEN_BYTES: usize = 16;
/// The prefix of a digest in a token file.
const HASHED: &str = "sha256:";

impl Token {
    /// Reads a token from a file with a single line.
    ///
    /// # Errors
    /// As [`files::read_secrets`], or [`ServeError::TokenFile`] if it holds no token or several.
    pub fn from_file(path: &Path) -> Result<Self, ServeError> {
        let text = files::read_secrets(path)?;
        Self::from_bytes(text.trim_ascii()).ok_or_else(|| ServeError::TokenFile { path: path.to_owned(), line: 1 })
    }
}

/// The digests of the tokens that a server accepts.
pub(crate) struct Accepted(Vec<Digest>);

impl Accepted {
    /// Reads a file with one token per line: `sha256:` and 64 hexadecimal digits, or the token itself (at least
    /// [`MIN_TOKEN_BYTES`]); empty lines and those that begin with `#` are ignored. With several tokens in the list,
    /// they can be replaced one at a time.
    pub(crate) fn from_file(path: &Path) -> Result<Self, ServeError> {
        let text = files::read_secrets(path)?;
        Self::parse(&text).map_err(|line| ServeError::TokenFile { path: path.to_owned(), line })
    }

    /// Parses such a file; on failure, returns the number of a malformed line, or 1 if there is no token.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, usize> {
        let mut digests = Vec::new();
        for (line, number) in text.split(|b| *b == b'\n').zip(1usize..) {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            digests.push(accepted(line).ok_or(number)?);
        }
        match digests.is_empty() {
            true => Err(1),
            false => Ok(Self(digests)),
        }
    }

    /// The number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether a token is on the list, in time that depends only on the list's length.
    pub(crate) fn contains(&self, token: &Token) -> bool {
        let digest = token.digest();
        let mut found = Choice::from(0);
        for known in &self.0 {
            found |= known.0.ct_eq(&digest.0);
        }
        found.into()
    }
}

fn accepted(line: &[u8]) -> Option<Digest> {
    if let Some(hex) = line.strip_prefix(HASHED.as_bytes()) {
        return std::str::from_utf8(hex).ok()?.trim().parse().ok();
    }
    Some(Token::from_bytes(line).filter(|_| line.len() >= MIN_TOKEN_BYTES)?.digest())
}
