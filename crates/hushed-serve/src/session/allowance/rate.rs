//! An operator's limit per client: a number of texts in a time window, and the file of the counts ([`super`]).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Version of the file.
pub(super) const VERSION: u32 = 1;

const UNITS: [(&str, u64); 4] = [
    ("minute", 60),
    ("hour", 3600),
    ("day", 86_400),
    ("week", 7 * 86_400),
];

/// A number of texts per time window: `100/DAY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRate {
    /// Texts.
    pub(super) texts: u32,
    /// The window, in seconds.
    pub(super) seconds: u64,
}

impl TextRate {
    /// How many texts.
    #[must_use]
    pub fn texts(&self) -> u32 {
        self.texts
    }
}

impl FromStr for TextRate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str =
            "a number of texts and a window, such as 1000/DAY: MINUTE, HOUR, DAY or WEEK";
        let (texts, window) = text.split_once('/').ok_or(FORM)?;
        let texts: u32 = texts.trim().parse().map_err(|_| FORM)?;
        let window = window.trim().to_ascii_lowercase();
        let unit = UNITS.into_iter().find(|(name, _)| *name == window);
        match (texts, unit) {
            (0, _) => Err("0 texts, which would refuse everything"),
            (texts, Some((_, seconds))) => Ok(Self { texts, seconds }),
            (_, None) => Err(FORM),
        }
    }
}

impl fmt::Display for TextRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.into_iter().find(|(_, unit)| *unit == self.seconds);
        let name = unit.map_or("", |(name, _)| name);
        write!(f, "{}/{}", self.texts, name.to_ascii_uppercase())
    }
}

/// How many texts a client may have, and the file that records how many it has had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientTexts {
    /// How many.
    pub rate: TextRate,
    /// The file. One server at a time uses it.
    pub file: PathBuf,
}

/// Why a file of counts cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CountsFault {
    /// It is truncated, changed, or not such a file.
    #[error("it is damaged")]
    Damaged,
    /// It is from another release.
    #[error("it has version {0}, and this program reads {VERSION}")]
    Version(u32),
    /// Another server is using it.
    #[error("another server uses it")]
    InUse,
}
