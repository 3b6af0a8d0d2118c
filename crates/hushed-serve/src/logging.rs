//! Log lines on standard error.

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt;

/// Writes this process's log lines to standard error from now on, as text or as one JSON object per line; `debug` adds
/// one line per pass. Has no effect if the process already has a subscriber.
pub fn to_stderr(json: bool, debug: bool) {
    let level = if debug { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let lines = fmt().with_max_level(level).with_writer(std::io::stderr).with_target(false);
    // An error means that there is already a subscriber; see the documentation above.
    let _ = if json { lines.json().flatten_event(true).try_init() } else { lines.with_ansi(false).try_init() };
}
