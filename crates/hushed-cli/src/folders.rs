//! Where this user's files belong (the XDG base directories).

use std::path::PathBuf;

/// Files that can be made again: `$XDG_CACHE_HOME/hushed`, or `~/.cache/hushed`.
pub fn cache() -> Option<PathBuf> {
    Some(base("XDG_CACHE_HOME", ".cache")?.join("hushed"))
}

/// Files that should stay: `$XDG_STATE_HOME/hushed/NAME`, or below `~/.local/state`.
pub fn state(name: &str) -> Option<PathBuf> {
    Some(
        base("XDG_STATE_HOME", ".local/state")?
            .join("hushed")
            .join(name),
    )
}

fn base(variable: &str, below_home: &str) -> Option<PathBuf> {
    let set = |name| {
        let value = std::env::var_os(name).map(PathBuf::from);
        // A relative path would mean another folder wherever the program is started.
        value.filter(|path| path.is_absolute())
    };
    set(variable).or_else(|| Some(set("HOME")?.join(below_home)))
}
