//! The text that a session continues.

use hushed_mpc::TextCache;

/// The state held for a text.
pub(super) struct Text {
    pub(super) cache: TextCache,
    /// Drafts of its last pass: rows that the client may have rejected.
    pub(super) drafts: usize,
}
