//! An operator's limits per client: numbers in time windows, and the file of the counts ([`super`]).

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Version of the file.
pub(super) const VERSION: u32 = 1;

const UNITS: [(&str, u64); 4] = [("minute", 60), ("hour", 3600), ("day", 86_400), ("week", 7 * 86_400)];

/// A number per time window: `100/DAY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// How many.
    pub(super) amount: u64,
    /// The window, in seconds.
    pub(super) seconds: u64,
}

impl Rate {
    /// How many in a window.
    #[must_use]
    pub fn amount(&self) -> u64 {
        self.amount
    }
}

impl FromStr for Rate {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const FORM: &str = "a number and a window, such as 1000/DAY: MINUTE, HOUR, DAY or WEEK";
        let (amount, window) = text.split_once('/').ok_or(FORM)?;
        let amount: u64 = amount.trim().parse().map_err(|_| FORM)?;
        let window = window.trim().to_ascii_lowercase();
        let unit = UNITS.into_iter().find(|(name, _)| *name == window);
        match (amount, unit) {
            (0, _) => Err("0, which would refuse everything"),
            (amount, Some((_, seconds))) => Ok(Self { amount, seconds }),
            (_, None) => Err(FORM),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.into_iter().find(|(_, unit)| *unit == self.seconds);
        let name = unit.map_or("", |(name, _)| name);
        write!(f, "{}/{}", self.amount, name.to_ascii_uppercase())
    }
}

/// What a client may have, and the file that records what it has had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientLimits {
    /// Texts.
    pub texts: Option<Rate>,
    /// Bits that are opened to it (`hushed plan`); `2pc` only.
    pub bits: Option<Rate>,
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
