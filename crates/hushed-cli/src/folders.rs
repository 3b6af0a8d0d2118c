//! Where this user's files belong (the XDG base directories).

use std::path::PathBuf;

/// Files that can be made again: `$XDG_CACHE_HOME/hushed`, or `~/.cache/hushed`.
pub fn cache() -> Option<PathBuf> {
    let set = |name| {
        let value = std::env::var_os(name).map(PathBuf::from);
        // A relative path would mean another folder wherever the program is started.
        value.filter(|path| path.is_absolute())
    };
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
    Some(base?.join("hushed"))
}
