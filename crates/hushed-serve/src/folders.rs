//! Where this user's files belong (the XDG base directories).

use std::path::PathBuf;

/// Files that can be made again: `$XDG_CACHE_HOME/hushed`, or `~/.cache/hushed`.
#[must_use]
pub fn cache() -> Option<PathBuf> {
    below("XDG_CACHE_HOME", ".cache")
}

/// Files that must last, such as the development certificate: `$XDG_STATE_HOME/hushed`, or `~/.local/state/hushed`.
#[must_use]
pub fn state() -> Option<PathBuf> {
    below("XDG_STATE_HOME", ".local/state")
}

fn below(variable: &str, in_home: &str) -> Option<PathBuf> {
    let set = |name| {
        let value = std::env::var_os(name).map(PathBuf::from);
        // A relative path would mean a different folder depending on where the program is started.
        value.filter(|path| path.is_absolute())
    };
    let base = set(variable).or_else(|| Some(set("HOME")?.join(in_home)));
    Some(base?.join("hushed"))
}
