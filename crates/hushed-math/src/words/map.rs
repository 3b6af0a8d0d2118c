//! Memory mapped from Linux directly, at pages of two megabytes: zero when it is mapped, returned when it is freed.

use std::ffi::{c_int, c_long, c_void};
use std::ptr::{NonNull, null_mut};

use super::layout::PAGE;

// The same on every 64-bit Linux, whose C library every Rust program there is linked to: a crate for three functions
// would add nothing.
unsafe extern "C" {
    fn mmap(at: *mut c_void, length: usize, access: c_int, kind: c_int, file: c_int, offset: c_long) -> *mut c_void;
    fn munmap(start: *mut c_void, length: usize) -> c_int;
    fn madvise(start: *mut c_void, length: usize, advice: c_int) -> c_int;
}

/// `PROT_READ | PROT_WRITE`.
const READ_WRITE: c_int = 3;
/// `MAP_PRIVATE | MAP_ANONYMOUS`, except on MIPS, for which Rust no longer has a standard library.
const PRIVATE: c_int = 0x22;
/// `MADV_HUGEPAGE`: a hint; where it is not followed, pages are small.
const LARGE_PAGES: c_int = 14;
/// `MADV_WIPEONFORK`, since Linux 4.14.
const WIPE_IN_CHILDREN: c_int = 18;
/// Advice that no system knows.
const NO_ADVICE: c_int = -1;
/// `MAP_FAILED`.
const FAILED: usize = usize::MAX;

/// Granularity in bytes with which the system maps and unmaps.
const SYSTEM_PAGE: usize = 1 << 16;

/// The address space taken by a buffer of `bytes` bytes.
fn length(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(SYSTEM_PAGE)
}

/// Maps `bytes` zero bytes that begin at a page of two megabytes; null if there is no memory.
pub(super) fn zero(bytes: usize) -> *mut u8 {
    let Some((length, all)) = length(bytes).and_then(|l| Some((l, l.checked_add(PAGE)?))) else {
        return null_mut();
    };
    // SAFETY: a new mapping, wherever the system has room for it.
    let start = unsafe { mmap(null_mut(), all, READ_WRITE, PRIVATE, -1, 0) };
    if start.addr() == FAILED || start.is_null() {
        return null_mut();
    }
    // The parts before the first large page and after the buffer go back: they were never touched.
    let before = start.addr().next_multiple_of(PAGE) - start.addr();
    let after = all - before - length;
    let buffer = start.wrapping_byte_add(before);
    // SAFETY: all three ranges are of the mapping above, begin and end at pages of the system, and nobody has them yet.
    unsafe {
        if before > 0 {
            munmap(start, before);
        }
        if after > 0 {
            munmap(buffer.wrapping_byte_add(length), after);
        }
        madvise(buffer, length, LARGE_PAGES);
    }
    buffer.cast()
}

/// Returns a buffer to the system.
///
/// # Safety
/// `start` is from [`zero`] with the same length and is no longer used.
pub(super) unsafe fn free(start: *mut u8, bytes: usize) {
    if let Some(length) = length(bytes) {
        // SAFETY: a mapping of this length that belongs to the caller alone.
        unsafe { munmap(start.cast(), length) };
    }
}

/// A word on its own page that is zero, and that the kernel sets to zero again in every process forked from this one.
/// It is never unmapped. None if the kernel does not do this, or if an emulator claims to but does not follow advice.
pub(crate) fn zero_in_children() -> Option<NonNull<u64>> {
    // SAFETY: a new mapping, wherever the system has room for it.
    let page = unsafe { mmap(null_mut(), SYSTEM_PAGE, READ_WRITE, PRIVATE, -1, 0) };
    if page.addr() == FAILED {
        return None;
    }
    // SAFETY: the mapping above, which nobody has yet.
    let follows =
        unsafe { madvise(page, SYSTEM_PAGE, NO_ADVICE) != 0 && madvise(page, SYSTEM_PAGE, WIPE_IN_CHILDREN) == 0 };
    if !follows {
        // SAFETY: the mapping above, which nobody has.
        unsafe { munmap(page, SYSTEM_PAGE) };
        return None;
    }
    NonNull::new(page.cast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_zero_and_begin_at_large_pages() {
        for bytes in [PAGE, PAGE + 64, 3 * PAGE - 8, 5 * PAGE + SYSTEM_PAGE] {
            for _ in 0..3 {
                let start = zero(bytes);
                assert!(!start.is_null() && start.addr().is_multiple_of(PAGE));
                // SAFETY: so many bytes were just mapped.
                let found = unsafe { std::slice::from_raw_parts_mut(start, bytes) };
                assert!(found.iter().all(|&b| b == 0));
                found.fill(1);
                // SAFETY: from `zero`, and not used again.
                unsafe { free(start, bytes) };
            }
        }
        assert!(zero(usize::MAX - 5).is_null() && zero(1 << 60).is_null());
    }
}
