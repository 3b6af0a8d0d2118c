//! Log lines on standard error.

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;

/// Writes this process's log lines to standard error from now on, as text or as one JSON object a line; `debug` adds
/// one line for each text. Has no effect if the process has a subscriber already.
pub fn to_stderr(json: bool, debug: bool) {
    let level = if debug {
        LevelFilter::DEBUG
    } else {
        LevelFilter::INFO
    };
    let lines = fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_target(false);
    // An error means that somebody else listens, which is what the documentation says.
    let _ = if json {
        lines.json().flatten_event(true).try_init()
    } else {
        lines.with_ansi(false).try_init()
    };
}
