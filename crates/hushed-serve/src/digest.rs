//! SHA-256 of what is public: how both ends name a model, a plan, a job.

use std::fmt;
use std::str::FromStr;

/// A SHA-256 of something public; shown as hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(
    /// Its bytes.
    pub [u8; 32],
);

impl Digest {
    pub(crate) const ZERO: Self = Self([0; 32]);
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// The text is not 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 has 64 hexadecimal digits")]
pub struct NotADigest;

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let mut digest = [0; 32];
        let mut digits = text.chars().map(|c| c.to_digit(16));
        for byte in &mut digest {
            let mut digit = || digits.next().flatten().ok_or(NotADigest);
            let value = digit()? << 4 | digit()?;
            *byte = u8::try_from(value).map_err(|_| NotADigest)?;
        }
        match digits.next() {
            None => Ok(Self(digest)),
            Some(_) => Err(NotADigest),
        }
    }
}
