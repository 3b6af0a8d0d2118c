//! SIGTERM and SIGINT as a flag, and SIGHUP as another.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// A flag that SIGTERM and SIGINT raise, for [`crate::Server::run`]. A second such signal ends the process at once,
/// with 128 plus its number as the exit status.
pub fn stop_on_signals() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        // In this order: the first signal only raises the flag.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// A flag that SIGHUP raises, for [`crate::Entrance::reload`].
pub fn reload_on_hangup() -> io::Result<Arc<AtomicBool>> {
    let reload = Arc::new(AtomicBool::new(false));
    flag::register(SIGHUP, Arc::clone(&reload))?;
    Ok(reload)
}
