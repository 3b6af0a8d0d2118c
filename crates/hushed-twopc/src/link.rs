//! The network between the parties, which decides between forms of the same step: what a message weighs against bytes
//! and work.
//!
//! | step | forms |
//! |---|---|
//! | [`msb`](crate::gadget::msb) | a chain of look-ups, or a tree of ANDs |
//! | [`top_bits`](crate::gadget::top_bits) | a chain whose last digits have two bits or three, or a prefix tree |
//! | [`leading_one`](crate::gadget::leading_one) | comparisons with all powers of two, or the bits and their prefix-OR |
//! | [`reciprocal`](crate::func::inverse::reciprocal), [`inverse_root`](crate::func::inverse::inverse_root) | a polynomial, a series on segments of the range, or one for each power of two |
//! | [`max_of_rows`](crate::gadget::max_of_rows), [`largest_of_few`](crate::gadget::largest_of_few) | groups of 2 to 16, or all numbers, at each level; rows padded to one width, or a tournament |
//! | [`row_squares`](crate::he::row_squares), [`scale_rows`](crate::he::scale_rows) | OTs, or products over RLWE |
//! | products over RLWE | windows; terms that share responses |
//!
//! A link is public and chosen before there is a secret. Every form is exact, or errs as the other forms of its step
//! do; masks, parameters, checks and proofs are the same in all of them. So a client gains nothing by a wrong link but
//! a slower session, and what it can make a server do is bounded: see [`MOST_BYTES_A_MESSAGE`].

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::cost::Cost;
use hushed_net::Shape;

/// The round trip and the bandwidth between the parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    microseconds: u32,
    kilobits: u32,
    /// No two parts of a step are side by side: inside such a part.
    undivided: bool,
}

/// The longest round trip, in microseconds.
const MOST_MICROSECONDS: u32 = 1_000_000;
/// The least and the largest bandwidth, in kbit/s: 1 Mbit/s and 10 Gbit/s.
const KILOBITS: std::ops::RangeInclusive<u32> = 1_000..=10_000_000;

/// The most bytes, or work that takes as long as they do, that are spent to save a message.
pub const MOST_BYTES_A_MESSAGE: u64 = 2 << 20;

/// The most OTs that are set aside for a part beside another: 16 MiB of blocks.
const MOST_SET_ASIDE: u64 = 1 << 20;

/// Nanoseconds of one core for a correlated OT with the work on it.
pub(crate) const COT_NS: u64 = 45;

/// The forms of [`Link::LAN`] were chosen before links were: at these prices, a compromise between networks. A message
/// counts as many bytes, and an OT as one.
const LAN_BYTES_A_MESSAGE: u64 = 32_768;
/// And a byte beside work on ciphertexts as long as at 200 Mbit/s.
pub(crate) const LAN_BYTE_NS: u64 = 40;

impl Default for Link {
    fn default() -> Self {
        Self::LAN
    }
}

impl Link {
    /// 0.5 ms, 1 Gbit/s.
    pub const LAN: Self = Self { microseconds: 500, kilobits: 1_000_000, undivided: false };
    /// 4 ms, 400 Mbit/s.
    pub const WAN: Self = Self { microseconds: 4_000, kilobits: 400_000, undivided: false };
    /// 40 ms, 50 Mbit/s.
    pub const INTERNET: Self = Self { microseconds: 40_000, kilobits: 50_000, undivided: false };

    /// The links that have names.
    pub const NAMED: [(&'static str, Self); 3] = [("lan", Self::LAN), ("wan", Self::WAN), ("internet", Self::INTERNET)];

    /// A link of this round trip in microseconds, as `ping` shows it, and this bandwidth in kbit/s each way.
    ///
    /// # Errors
    /// [`NoLink`] for more than a second, and for less than 1 Mbit/s or more than 10 Gbit/s.
    pub fn new(microseconds: u32, kilobits: u32) -> Result<Self, NoLink> {
        match microseconds <= MOST_MICROSECONDS && KILOBITS.contains(&kilobits) {
            true => Ok(Self { microseconds, kilobits, undivided: false }),
            false => Err(NoLink::Bounds),
        }
    }

    /// The time of a message to the other party and of its answer.
    #[must_use]
    pub fn round_trip(&self) -> Duration {
        Duration::from_micros(self.microseconds.into())
    }

    /// The round trip in microseconds.
    #[must_use]
    pub fn microseconds(&self) -> u32 {
        self.microseconds
    }

    /// The bandwidth in kbit/s, each way.
    #[must_use]
    pub fn kilobits(&self) -> u32 {
        self.kilobits
    }

    /// The network that it describes.
    #[must_use]
    pub fn shape(&self) -> Shape {
        Shape { bits_per_second: 1_000 * u64::from(self.kilobits), one_way: self.round_trip() / 2 }
    }

    /// Whether its forms, and the order of steps, are those that there were before links, and not the least by price.
    #[must_use]
    pub fn is_lan(&self) -> bool {
        *self == Self::LAN
    }

    /// The same link inside one of two parts that are side by side.
    #[must_use]
    pub fn undivided(self) -> Self {
        Self { undivided: !self.is_lan(), ..self }
    }

    /// Whether a part of this cost is put beside another: where messages count, and its OTs, which are set aside
    /// together, take little memory.
    pub(crate) fn divides(&self, second: &Cost) -> bool {
        !self.is_lan() && !self.undivided && cots(second) <= MOST_SET_ASIDE
    }

    /// The cost of two parts of a step that do not depend on each other, the second beside the first where the link
    /// has it so ([`beside`](crate::ctx::beside)).
    pub fn both(&self, first: impl Fn(&Link) -> Cost, second: impl Fn(&Link) -> Cost) -> Cost {
        let inside = self.undivided();
        let beside = second(&inside);
        if !self.divides(&beside) {
            return first(self) + second(self);
        }
        let first = first(&inside);
        Cost { rounds: first.rounds.max(beside.rounds), ..first + beside }
    }

    /// Whether to save messages by so many bytes; never on a LAN.
    #[must_use]
    pub fn is_worth(&self, messages: u64, bytes: u64) -> bool {
        !self.is_lan() && bytes.saturating_mul(self.byte_ns()) < messages.saturating_mul(self.message_ns())
    }

    /// What a step over OTs weighs, beside others over OTs.
    pub(crate) fn price(&self, cost: &Cost) -> u64 {
        match self.is_lan() {
            true => cost.bytes() + cots(cost) + LAN_BYTES_A_MESSAGE * cost.rounds,
            false => {
                let bytes = cost.bytes().saturating_mul(self.byte_ns());
                let messages = cost.rounds.saturating_mul(self.message_ns());
                bytes.saturating_add(messages).saturating_add(cots(cost).saturating_mul(COT_NS))
            }
        }
    }

    /// What a step weighs beside others, over OTs or RLWE. `work` are the nanoseconds of its ciphertexts, without any
    /// byte.
    pub(crate) fn price_with(&self, cost: &Cost, work: u64) -> u64 {
        // On a LAN the messages of rows did not count.
        let messages = if self.is_lan() { 0 } else { cost.rounds.saturating_mul(self.message_ns()) };
        let bytes = cost.bytes().saturating_mul(self.byte_ns_beside_work());
        let ots = cots(cost).saturating_mul(COT_NS);
        bytes.saturating_add(messages).saturating_add(ots).saturating_add(work)
    }

    /// Nanoseconds a byte.
    fn byte_ns(&self) -> u64 {
        8_000_000_u64.div_ceil(self.kilobits.into())
    }

    /// Nanoseconds a byte beside work on ciphertexts: no network is so fast that work is saved by more bytes than on a
    /// LAN.
    pub(crate) fn byte_ns_beside_work(&self) -> u64 {
        self.byte_ns().max(LAN_BYTE_NS)
    }

    /// Nanoseconds a message.
    fn message_ns(&self) -> u64 {
        (500 * u64::from(self.microseconds)).min(MOST_BYTES_A_MESSAGE * self.byte_ns())
    }
}

fn cots(cost: &Cost) -> u64 {
    cost.cots_client + cost.cots_server
}

/// Why there is no such link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoLink {
    /// Beyond what is accepted.
    #[error("a link has a round trip of up to 1 s and 1 Mbit/s to 10 Gbit/s")]
    Bounds,
    /// Not a link's name or figures.
    #[error("lan, wan, internet, or a round trip and a bandwidth, as in 40ms/50mbit")]
    Text,
}

impl fmt::Display for Link {
    /// Its name, or its figures.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = Self::NAMED.iter().find(|(_, link)| link == self) {
            return f.write_str(name);
        }
        let (milliseconds, megabits) = (f64::from(self.microseconds) / 1e3, f64::from(self.kilobits) / 1e3);
        write!(f, "{milliseconds}ms/{megabits}mbit")
    }
}

impl FromStr for Link {
    type Err = NoLink;

    /// A name, or figures as in `40ms/50mbit`.
    fn from_str(text: &str) -> Result<Self, NoLink> {
        if let Some((_, link)) = Self::NAMED.iter().find(|(name, _)| *name == text) {
            return Ok(*link);
        }
        let (round_trip, bandwidth) = text.split_once('/').ok_or(NoLink::Text)?;
        Self::new(parse_round_trip(round_trip)?, parse_bandwidth(bandwidth)?)
    }
}

/// Microseconds of `40ms`, `500us` or `0.1s`.
///
/// # Errors
/// [`NoLink::Text`] for other text, [`NoLink::Bounds`] for more than fits.
pub fn parse_round_trip(text: &str) -> Result<u32, NoLink> {
    figure(text, &[("us", 1.0), ("ms", 1e3), ("s", 1e6)])
}

/// kbit/s of `50mbit`, `800kbit` or `1gbit`.
///
/// # Errors
/// As [`parse_round_trip`].
pub fn parse_bandwidth(text: &str) -> Result<u32, NoLink> {
    figure(text, &[("kbit", 1.0), ("mbit", 1e3), ("gbit", 1e6)])
}

/// A number with one of these units.
fn figure(text: &str, units: &[(&str, f64)]) -> Result<u32, NoLink> {
    let text = text.trim().to_ascii_lowercase();
    let parts = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)));
    let (number, scale) = parts.ok_or(NoLink::Text)?;
    let digits = number.trim();
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return Err(NoLink::Text);
    }
    let value: f64 = digits.parse().map_err(|_| NoLink::Text)?;
    let value = (value * scale).round();
    if value > f64::from(u32::MAX) {
        return Err(NoLink::Bounds);
    }
    Ok(value as u32)
}

#[cfg(test)]
mod tests;
