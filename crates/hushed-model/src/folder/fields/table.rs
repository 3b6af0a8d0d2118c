//! What a list of fields says.

use std::borrow::Cow;

/// What becomes of a field.
#[derive(Clone, Copy)]
pub(crate) enum Use {
    /// Its parser reads it, and refuses what it cannot use.
    Read,
    /// No answer depends on it: training, other tasks, other libraries, names.
    Nothing,
    /// Refused unless absent, null or one of these values (as JSON), under which no answer depends on it. The second
    /// part says what is supported.
    Only(&'static [&'static str], &'static str),
}

/// A field with what becomes of it.
pub(crate) type Entry = (&'static str, Use);

/// Fields with what becomes of them.
pub(crate) type Table = Cow<'static, [Entry]>;

pub(crate) const OFF: &[&str] = &["false"];
pub(super) const EMPTY: &[&str] = &["{}", "[]", "\"\""];
pub(super) const NO_CODE: Use = Use::Only(EMPTY, "no code of the folder's own (absent)");
