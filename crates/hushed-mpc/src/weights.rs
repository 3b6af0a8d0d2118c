//! A model's numbers as a server holds them for two-party runs: integers within the formats.

pub(crate) mod embed;
pub(crate) mod factors;
pub(crate) mod held;
pub(crate) mod next;
pub(crate) mod prepare;
pub(crate) mod ranges;
pub(crate) mod table;
