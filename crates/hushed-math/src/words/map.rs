//! Memory of Linux itself, at pages of two megabytes: it is zero when it comes, and gone when it goes.

use std::ffi::{c_int, c_long, c_void};
use std::ptr::{NonNull, null_mut};

use super::PAGE;

// The same on every 64-bit Linux, whose C library every Rust program there is linked to: a crate for three functions
// would say no more.
unsafe extern "C" {
    fn mmap(
        at: *mut c_void,
        length: usize,
        access: c_int,
        kind: c_int,
        file: c_int,
        offset: c_long,
    ) -> *mut c_void;
    fn munmap(start: *mut c_void, length: usize) -> c_int;
    fn madvise(start: *mut c_void, length: usize, advice: c_int) -> c_int;
}

/// `PROT_READ | PROT_WRITE`.
const READ_WRITE: c_int = 3;
/// `MAP_PRIVATE | MAP_ANONYMOUS`, but on MIPS, which Rust has no standard library for any more.
const PRIVATE: c_int = 0x22;
/// `MADV_HUGEPAGE`: a hint; where it is not followed, pages are small.
const LARGE_PAGES: c_int = 14;
/// `MADV_WIPEONFORK`, since Linux 4.14.
const WIPE_IN_CHILDREN: c_int = 18;
/// No advice that any system knows.
const NO_ADVICE: c_int = -1;
/// `MAP_FAILED`.
const FAILED: usize = usize::MAX;

/// Least bytes that the system maps and takes back.
const SYSTEM_PAGE: usize = 1 << 16;

/// What a buffer of `bytes` bytes takes of the address space.
fn length(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(SYSTEM_PAGE)
}

/// `bytes` zero bytes from a page of two megabytes on; null if there are none.
pub(super) fn zero(bytes: usize) -> *mut u8 {
    let Some((length, all)) = length(bytes).and_then(|l| Some((l, l.checked_add(PAGE)?))) else {
        return null_mut();
    };
    // SAFETY: a new mapping, wherever the system has room for it.
    let start = unsafe { mmap(null_mut(), all, READ_WRITE, PRIVATE, -1, 0) };
    if start.addr() == FAILED || start.is_null() {
        return null_mut();
    }
    // What lies before the first large page, and after the buffer, goes back: it was never touched.
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

/// Gives a buffer back.
///
/// # Safety
/// `start` is from [`zero`] with the same length, and nobody uses it any more.
pub(super) unsafe fn free(start: *mut u8, bytes: usize) {
    if let Some(length) = length(bytes) {
        // SAFETY: a mapping of this length, which is its caller's alone.
        unsafe { munmap(start.cast(), length) };
    }
}

/// A word on a page of its own that is zero, and zero again in every process that is forked from this one: the kernel
/// sees to it. It is never given back. None where the kernel does not do that, or an emulator that does not follow
/// advice says that it does.
pub(crate) fn zero_in_children() -> Option<NonNull<u64>> {
    // SAFETY: a new mapping, wherever the system has room for it.
    let page = unsafe { mmap(null_mut(), SYSTEM_PAGE, READ_WRITE, PRIVATE, -1, 0) };
    if page.addr() == FAILED {
        return None;
    }
    // SAFETY: the mapping above, which nobody has yet.
    let follows = unsafe {
        madvise(page, SYSTEM_PAGE, NO_ADVICE) != 0
            && madvise(page, SYSTEM_PAGE, WIPE_IN_CHILDREN) == 0
    };
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
