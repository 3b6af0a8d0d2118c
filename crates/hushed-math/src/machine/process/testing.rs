//! A fork for the tests of this crate and others, which may not call the system themselves.

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Child {
    /// With this code.
    Code(u8),
    /// By a panic that it did not catch.
    Panicked,
    /// By a signal.
    Signal(i32),
    /// Not by itself: it was killed after [`PATIENCE`].
    Late,
}

/// How long a parent waits. A child only looks at a few values; one that takes longer is waiting for a lock whose owner
/// is not in the child.
const PATIENCE: Duration = Duration::from_secs(60);
const PANICKED: u8 = 101;
const WNOHANG: c_int = 1;
const SIGKILL: c_int = 9;

unsafe extern "C" {
    fn fork() -> c_int;
    fn _exit(code: c_int) -> !;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
}

/// Runs `look` in a child of this process, on a copy of its memory, and returns how the child ended.
///
/// Only the calling thread exists in the child: `look` must not wait for another thread or take a lock that another
/// thread of this process may be holding. It may allocate, which the C library allows. Nothing of this process is
/// dropped or flushed when the child ends.
///
/// # Panics
/// If the system does not fork.
pub fn in_child(look: impl FnOnce() -> u8) -> Child {
    // SAFETY: no memory is shared with the child. It runs `look` under the terms above and leaves by `_exit`, before
    // anything of its parent's is dropped.
    let pid = unsafe { fork() };
    assert!(pid >= 0, "the system does not fork");
    if pid == 0 {
        let code = catch_unwind(AssertUnwindSafe(look)).unwrap_or(PANICKED);
        // SAFETY: ends the process, whatever it holds.
        unsafe { _exit(c_int::from(code)) }
    }
    wait(pid)
}

/// Waits for a child of this process.
pub(super) fn wait(pid: c_int) -> Child {
    let until = Instant::now() + PATIENCE;
    let mut status = 0;
    // SAFETY: writes one status, of a child of this process.
    while unsafe { waitpid(pid, &raw mut status, WNOHANG) } == 0 {
        if Instant::now() > until {
            // SAFETY: the child was not waited for, so the number is still its own.
            unsafe {
                kill(pid, SIGKILL);
                waitpid(pid, &raw mut status, 0);
            }
            return Child::Late;
        }
        thread::sleep(Duration::from_millis(1));
    }
    // Like WIFEXITED and WEXITSTATUS on every Unix system.
    match (status & 0x7f, (status >> 8 & 0xff) as u8) {
        (0, PANICKED) => Child::Panicked,
        (0, code) => Child::Code(code),
        (signal, _) => Child::Signal(signal),
    }
}
