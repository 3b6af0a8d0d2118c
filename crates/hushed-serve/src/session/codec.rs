//! Total decoding: any byte string yields a message or a [`WireFault`].
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

/// The version of these messages and of their order.
pub const VERSION: u16 = 13;

/// Why bytes are not the expected message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireFault {
    /// The bytes end too early.
    #[error("it ends before its {field}")]
    Short {
        /// The first missing field.
        field: &'static str,
    },
    /// There are bytes after the end of the message.
    #[error("it has bytes after its end")]
    Trailing,
    /// The bytes begin differently.
    #[error("it does not begin like such a message")]
    Magic,
    /// A message of another version.
    #[error("it is of version {got}, and this program speaks {VERSION}")]
    Version {
        /// The version found.
        got: u16,
    },
    /// A field with an undefined value.
    #[error("its {field} is invalid")]
    Undefined {
        /// The field.
        field: &'static str,
    },
}

/// Bytes not yet read.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take(&mut self, n: usize, field: &'static str) -> Result<&'a [u8], WireFault> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(WireFault::Short { field })?;
        self.0 = tail;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireFault> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(WireFault::Short { field })?;
        self.0 = tail;
        Ok(*head)
    }

    pub(crate) fn finish(self) -> Result<(), WireFault> {
        if self.0.is_empty() { Ok(()) } else { Err(WireFault::Trailing) }
    }
}
