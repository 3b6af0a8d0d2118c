//! Whether a value is used in the process that made it.
//!
//! A child of `fork` has the socket, the sequence numbers and the keys of its parent's sessions, but none of their
//! threads. Anything it sent would reuse numbers and keys that the parent uses again; anything it closed would be
//! closed for the parent. So a session of the parent does nothing in a child, not even when it is dropped.
//!
//! The process is identified by its id, read from the system at every step: a hundred nanoseconds against microseconds.
//! This detects every kind of fork, including the bare system call. It does not detect a child that has its parent's
//! id: the first process of a new name space whose parent was the first of its own, or a descendant that got the id of
//! a process that has ended.

use crate::NetError;

/// The process that made a value.
#[derive(Clone, Copy)]
pub(crate) struct Origin(u32);

impl Origin {
    pub(crate) fn here() -> Self {
        Self(std::process::id())
    }

    pub(crate) fn is_here(self) -> bool {
        self.0 == std::process::id()
    }

    pub(crate) fn check(self) -> Result<(), NetError> {
        if self.is_here() { Ok(()) } else { Err(NetError::Forked) }
    }
}
