//! Checks that a value is used in the process that made it.
//!
//! `fork` copies a process with all its secrets. Two copies of a random stream hide two messages under the same mask;
//! two copies of a key count its decryptions separately. Nothing here forks, but callers of this library may. So
//! streams and keys remember their [`Origin`] and refuse to work anywhere else.
//!
//! Each process has a number, in one word that is 0 in a process that has just begun:
//!
//! | how a child begins | what makes its word 0 |
//! |---|---|
//! | `fork` | `pthread_atfork`; on Linux the kernel as well |
//! | the system call alone (`clone` without `CLONE_VM`, glibc's `_Fork`) | Linux since 4.14: `MADV_WIPEONFORK` |
//! | `vfork`, threads | nothing: they share their memory with the parent, so there is no second copy |
//!
//! Where only the first row holds (other Unix systems, older kernels, emulators that ignore advice), the system call
//! alone goes undetected. So does copying a whole machine, as by a snapshot. A check reads one word and costs as much
//! as a comparison.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::MathError;

#[cfg(any(test, feature = "testing"))]
mod testing;
#[cfg(any(test, feature = "testing"))]
pub use testing::{Child, in_child};

/// The process that made a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin(u64);

impl Origin {
    /// This process.
    #[must_use]
    pub fn here() -> Origin {
        let word = word();
        match word.load(Ordering::Relaxed) {
            0 => Origin(renew(word)),
            number => Origin(number),
        }
    }

    /// Checks that the value is used where it was made.
    ///
    /// # Errors
    /// [`MathError::Forked`] if it is not.
    #[inline]
    pub fn check(self) -> Result<(), MathError> {
        if word().load(Ordering::Relaxed) == self.0 {
            return Ok(());
        }
        Err(MathError::Forked)
    }

    /// [`Origin::check`] where no error can be returned; callers that can return one check beforehand.
    ///
    /// # Panics
    /// If the value, which is called `what`, is used in a process that did not make it.
    #[inline]
    pub fn insist(self, what: &'static str) {
        if self.check().is_err() {
            elsewhere(what);
        }
    }
}

#[cold]
fn elsewhere(what: &'static str) -> ! {
    panic!("{what}: {}", MathError::Forked)
}

/// Numbers begin at 1, and grow from a process to its children: memory is copied, and the next number with it.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Gives this process its number.
#[cold]
fn renew(word: &AtomicU64) -> u64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    match word.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => number,
        // Another thread was faster.
        Err(given) => given,
    }
}

static WORD: OnceLock<&AtomicU64> = OnceLock::new();

#[inline]
fn word() -> &'static AtomicU64 {
    WORD.get_or_init(system::watched)
}

#[cfg(all(unix, not(miri)))]
mod system {
    use std::ffi::c_int;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// For where the kernel wipes nothing: only [`forget`] resets it.
    static UNWATCHED: AtomicU64 = AtomicU64::new(0);

    type Handler = unsafe extern "C" fn();

    unsafe extern "C" {
        fn pthread_atfork(prepare: Option<Handler>, parent: Option<Handler>, child: Option<Handler>) -> c_int;
    }

    /// Runs in a child, before `fork` returns.
    unsafe extern "C" fn forget() {
        if let Some(word) = super::WORD.get() {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// The word that is 0 in every new process.
    pub(super) fn watched() -> &'static AtomicU64 {
        // SAFETY: the handler stores one word, which any thread of the child may do at any time. Registration fails
        // only for lack of memory; then the kernel's half remains, where there is one, which is on Linux.
        unsafe { pthread_atfork(None, None, Some(forget)) };
        wiped_by_the_kernel().unwrap_or(&UNWATCHED)
    }

    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    pub(super) fn wiped_by_the_kernel() -> Option<&'static AtomicU64> {
        let page = crate::words::zero_in_children()?;
        // SAFETY: mapped for good, zero, aligned to a page, and nobody else has the address.
        Some(unsafe { AtomicU64::from_ptr(page.as_ptr()) })
    }

    #[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
    pub(super) fn wiped_by_the_kernel() -> Option<&'static AtomicU64> {
        None
    }
}

/// For systems where nothing forks.
#[cfg(not(all(unix, not(miri))))]
mod system {
    use std::sync::atomic::AtomicU64;

    pub(super) fn watched() -> &'static AtomicU64 {
        static WORD: AtomicU64 = AtomicU64::new(0);
        &WORD
    }
}

#[cfg(all(test, unix, not(miri)))]
mod tests;
